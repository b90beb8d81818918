package joblock_test

import (
	"testing"
	"time"

	"github.com/sqlnative/locks/joblock"
)

// What is marked as running, and whose process has died, is pruned as well: nobody would
// ever end it. If it has not died, its end finds no row, and that is no error.
func TestPruneAbandoned(t *testing.T) {
	strategies(t, func(t *testing.T, s *site) {
		p := s.process(t)
		job := joblock.Job{Name: "dead", TTL: time.Hour}
		r := start(t, p, job)
		s.later(t, "dead", 25*time.Hour)
		if run := history(t, p, "dead", 1)[0]; run.Outcome != joblock.Abandoned {
			t.Errorf("%+v", run)
		}
		if n, err := p.Prune(t.Context(), 26*time.Hour); err != nil || n != 0 {
			t.Errorf("%d removed that are not old, %v", n, err)
		}
		if n, err := p.Prune(t.Context(), 24*time.Hour); err != nil || n != 1 {
			t.Errorf("%d removed, %v", n, err)
		}
		history(t, p, "dead", 0)
		if res, err := r.end(nil); err != nil || res.Outcome != joblock.OK {
			t.Errorf("%s, %v", res, err)
		}
		history(t, p, "dead", 0)
	})
}
