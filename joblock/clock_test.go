package joblock_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/sqldb"
)

// clocked are machines whose clocks are wrong. Each lives in a bubble of testing/synctest,
// whose clock is its own: it begins in the year 2000, and goes only when nothing else does.
type clocked struct {
	t     *testing.T
	s     *site
	fires []chan joblock.Job
	says  chan said
	runs  atomic.Int32
	wg    sync.WaitGroup
}

// said is what a machine says of a fire.
type said struct {
	res joblock.Result
	err error
	at  time.Time // by the machine's clock
}

// start starts a machine whose clock is off from 2000 by d.
func (c *clocked) start(d time.Duration) {
	fire := make(chan joblock.Job)
	c.fires = append(c.fires, fire)
	c.wg.Go(func() {
		synctest.Test(c.t, func(t *testing.T) {
			time.Sleep(d)
			p := (&site{c.s.Another(t), c.s.advisory}).process(t)
			for job := range fire {
				var a said
				a.at = time.Now()
				a.res, a.err = p.Run(t.Context(), job, func(context.Context) error { c.runs.Add(1); return nil })
				c.says <- a
			}
		})
	})
}

// end ends them.
func (c *clocked) end() {
	for _, f := range c.fires {
		close(f)
	}
	c.wg.Wait()
}

// fire has machines fire, at the same moment, and returns what they say. (With SQLite, one
// after the other: who finds the file busy sleeps, which takes no time in a bubble.)
func (c *clocked) fire(job joblock.Job, machines ...chan joblock.Job) (all []said) {
	c.t.Helper()
	hear := func() {
		c.t.Helper()
		select {
		case a := <-c.says:
			if a.err != nil || !a.res.Ran && !a.res.NotDue && a.res.Held == nil {
				c.t.Errorf("%s, %v by a machine at %v", a.res, a.err, a.at)
			}
			all = append(all, a)
		case <-time.After(patience):
			c.t.Fatal("a machine does not answer")
		}
	}
	for _, m := range machines {
		m <- job
		if c.s.Kind() == sqldb.SQLite {
			hear()
		}
	}
	for len(all) < len(machines) {
		hear()
	}
	return all
}

// Machines whose clocks are minutes and decades apart, behind the database's and ahead of
// it, fire at the same moment, every day: one run a day, whoever comes first. (TestProcesses
// has 32 processes, with one clock.)
func TestClocksApart(t *testing.T) {
	strategies(t, func(t *testing.T, s *site) {
		const days, decades = 8, 60 * 365 * 24 * time.Hour
		c := &clocked{t: t, s: s, says: make(chan said, 100)}
		defer c.end()
		for _, d := range []time.Duration{0, 2 * time.Minute, 7 * time.Minute, decades} {
			c.start(d)
		}
		job := joblock.Job{Name: "daily", Every: 24 * time.Hour}
		var first, last time.Time
		for day := range days {
			if day%2 == 0 { // each of them is once the first, before all fire
				if a := c.fire(job, c.fires[day/2%len(c.fires)])[0]; !a.res.Ran {
					t.Errorf("day %d: %s by a machine at %v", day, a.res, a.at)
				}
			}
			for _, a := range c.fire(job, c.fires...) {
				if first.IsZero() || a.at.Before(first) {
					first = a.at
				}
				if a.at.After(last) {
					last = a.at
				}
			}
			if n := int(c.runs.Load()); n != day+1 {
				t.Fatalf("day %d: %d runs", day, n)
			}
			s.later(t, "daily", 24*time.Hour)
		}
		for _, r := range history(t, s.process(t), "daily", days) {
			if d := time.Since(r.Started); d < 24*time.Hour-time.Minute || d > (days+1)*24*time.Hour || r.Outcome != joblock.OK {
				t.Errorf("a machine's clock stands in the history: %+v", r)
			}
		}
		// The controls: the clocks are apart, and without a period every fire runs.
		if now := time.Now(); last.Sub(first) < decades-time.Hour || !first.Before(now) || !last.After(now) {
			t.Errorf("the machines' clocks say %v to %v", first, last)
		}
		for _, m := range c.fires {
			if a := c.fire(joblock.Job{Name: "always"}, m)[0]; !a.res.Ran {
				t.Errorf("without a period: %s", a.res)
			}
		}
	})
}
