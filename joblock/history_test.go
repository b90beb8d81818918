package joblock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
)

func TestHistory(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		s := &site{DB: db}
		p := s.process(t)
		for i := range 3 {
			ran(t, p, joblock.Job{Name: "a"}, joblock.OK, nothing)
			ran(t, p, joblock.Job{Name: "b"}, joblock.Failed, func(context.Context) error { return errors.New("broken") })
			d := time.Duration(3-i) * time.Hour // a is 6, 3 and 1 hours old, and b 3.5 hours older
			s.later(t, "a", d)
			s.later(t, "b", d)
		}
		s.later(t, "b", 3*time.Hour+30*time.Minute)
		r := start(t, p, joblock.Job{Name: "c"})
		for _, c := range []struct {
			filter joblock.Filter
			want   string
		}{
			{joblock.Filter{}, "c running, a ok, a ok, b failed, a ok, b failed, b failed"},
			{joblock.Filter{Job: "b"}, "b failed, b failed, b failed"},
			{joblock.Filter{Job: "none"}, ""},
			{joblock.Filter{Outcome: joblock.OK}, "a ok, a ok, a ok"},
			{joblock.Filter{Outcome: joblock.OK, Limit: 1}, "a ok"},
			{joblock.Filter{Outcome: joblock.Running}, "c running"},
			{joblock.Filter{Outcome: joblock.Abandoned}, ""},
			{joblock.Filter{Within: 2 * time.Hour}, "c running, a ok"},
			{joblock.Filter{Job: "a", Outcome: joblock.OK, Within: 5 * time.Hour, Limit: 2}, "a ok, a ok"},
		} {
			runs, err := p.History(t.Context(), c.filter)
			if err != nil {
				t.Fatal(err)
			}
			var got []string
			for _, r := range runs {
				got = append(got, r.Job+" "+string(r.Outcome))
			}
			if s := strings.Join(got, ", "); s != c.want {
				t.Errorf("%+v: %s, want %s", c.filter, s, c.want)
			}
		}
		// A lease that is over reads as abandoned, in the filter too. (Nothing beats here.)
		s.later(t, "c", time.Hour)
		if runs, err := p.History(t.Context(), joblock.Filter{Outcome: joblock.Abandoned}); err != nil || len(runs) != 1 || runs[0].Outcome != joblock.Abandoned {
			t.Errorf("%+v, %v", runs, err)
		}
		if runs, err := p.History(t.Context(), joblock.Filter{Outcome: joblock.Running}); err != nil || len(runs) != 0 {
			t.Errorf("%+v, %v", runs, err)
		}
		// It was not: its process says so.
		if _, err := r.end(nil); err != nil {
			t.Error(err)
		}
		if run := history(t, p, "c", 1)[0]; run.Outcome != joblock.OK {
			t.Errorf("%+v", run)
		}
	})
}

// Prune removes what is old, in batches, and neither what still runs nor when a job is
// due.
func TestPrune(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		s := &site{DB: db}
		counted, counter := dbtest.Count(db.DB)
		p := s.processOn(t, counted)
		daily := joblock.Job{Name: "daily", Every: 48 * time.Hour}
		ran(t, p, daily, joblock.OK, nothing)
		ran(t, p, joblock.Job{Name: "many"}, joblock.OK, nothing)
		var rows []string
		for i := range 1200 {
			rows = append(rows, fmt.Sprintf("('old%d', 'many', %s, 'ok')", i, s.Ago("now", 0)))
		}
		started := "(SELECT last_start FROM " + s.Table("jobs") + " WHERE name = 'many')"
		insert := "INSERT INTO " + s.Table("job_runs") + " (id, job, started_at, outcome) VALUES " + strings.ReplaceAll(strings.Join(rows, ", "), s.Ago("now", 0), started)
		s.MustExec(t, insert)
		s.later(t, "many", 25*time.Hour)
		s.later(t, "daily", 25*time.Hour)
		ran(t, p, joblock.Job{Name: "many"}, joblock.OK, nothing)
		r := start(t, p, joblock.Job{Name: "runs", TTL: 48 * time.Hour})
		s.MustExec(t, "UPDATE "+s.Table("job_runs")+" SET started_at = "+s.Ago("started_at", 25*time.Hour)+" WHERE job = 'runs'")
		counter.Take()
		removed, err := p.Prune(t.Context(), 24*time.Hour)
		if err != nil || removed != 1202 {
			t.Errorf("%d removed, %v", removed, err)
		}
		deletes := 0
		for _, q := range counter.Take() {
			if strings.Contains(q, "DELETE") {
				deletes++
			}
		}
		if deletes != 4 { // 500, 500, 201 of many; 1 of daily
			t.Errorf("%d statements that delete", deletes)
		}
		history(t, p, "many", 1)
		history(t, p, "daily", 0)
		history(t, p, "runs", 1)
		if res := skipped(t, p, daily); !res.NotDue {
			t.Errorf("%+v", res)
		}
		if _, err := r.end(nil); err != nil {
			t.Error(err)
		}
		if removed, err := p.Prune(t.Context(), 0); err != nil || removed != 2 {
			t.Errorf("%d removed, %v", removed, err)
		}
	})
}
