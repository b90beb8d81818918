package joblock_test

import (
	"testing"

	"github.com/sqlnative/locks/joblock"
)

// A job that was switched on again has forgotten why it was off: who switches it off by
// hand says nothing.
func TestEnableForgetsTheNote(t *testing.T) {
	strategies(t, func(t *testing.T, s *site) {
		p := s.process(t)
		if err := p.Disable(t.Context(), "noted", "the archive is being moved"); err != nil {
			t.Fatal(err)
		}
		if err := p.Enable(t.Context(), "noted"); err != nil {
			t.Fatal(err)
		}
		s.MustExec(t, "UPDATE "+s.Table("jobs")+" SET disabled = true")
		if res := skipped(t, p, joblock.Job{Name: "noted"}); !res.Disabled || res.Note != "" {
			t.Errorf("%+v", res)
		}
	})
}
