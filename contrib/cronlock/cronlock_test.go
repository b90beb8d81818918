package cronlock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"go.uber.org/goleak"

	"github.com/sqlnative/locks/contrib/cronlock"
	"github.com/sqlnative/locks/contrib/internal/site"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// answer is what a machine is told of a fire.
type answer struct {
	machine int
	res     joblock.Result
	err     error
}

// often is a schedule that does not let its machine rest.
type often struct{}

func (often) Next(t time.Time) time.Time { return t.Add(20 * time.Millisecond) }

// Three machines fire all the time, for some days: one run a day. The control: without a
// period every fire that finds nobody at it is a run.
func TestWrap(t *testing.T) {
	site.Each(t, func(t *testing.T, s *site.Site) {
		const machines, days = 3, 5
		for _, job := range []joblock.Job{{Name: "daily", Every: 24 * time.Hour}, {Name: "always"}} {
			var runs atomic.Int32
			answers := make(chan answer)
			over := make(chan struct{})
			var all []*cron.Cron
			for i := range machines {
				c := cron.New(cron.WithChain(cron.SkipIfStillRunning(cron.DiscardLogger)))
				once := cronlock.Wrap(t.Context(), s.Jobs(t), job, func(res joblock.Result, err error) {
					select {
					case answers <- answer{i, res, err}:
					case <-over:
					}
				})
				c.Schedule(often{}, once(cron.FuncJob(func() { runs.Add(1) })))
				c.Start()
				all = append(all, c)
			}
			for day := range days {
				// What was fired yesterday may be told today, once (SkipIfStillRunning): a machine
				// has fired today when it has told a second time.
				told := make([]int, machines)
				for slow := machines; slow > 0; {
					select {
					case a := <-answers:
						if a.err != nil || !a.res.Ran && !a.res.NotDue && a.res.Held == nil {
							t.Errorf("%s, %v", a.res, a.err)
						}
						if told[a.machine]++; told[a.machine] == 2 {
							slow--
						}
					case <-time.After(site.Patience):
						t.Fatal("a schedule does not fire")
					}
				}
				if n := int(runs.Load()); job.Every > 0 && n != day+1 {
					t.Fatalf("day %d: %d runs", day, n)
				}
				s.Pass(t, 24*time.Hour)
			}
			close(over)
			for _, c := range all {
				<-c.Stop().Done()
			}
			if n := int(runs.Load()); job.Every == 0 && n <= days {
				t.Errorf("the control: %d runs", n)
			}
			s.MustExec(t, "DELETE FROM "+s.Table("jobs"))
		}
	})
}

// fire has cron run a job once, and returns what is told of it.
func fire(ctx context.Context, jobs *joblock.Jobs, job joblock.Job, inner cron.Job) (a answer) {
	cronlock.Wrap(ctx, jobs, job, func(res joblock.Result, err error) { a = answer{res: res, err: err} })(inner).Run()
	return a
}

// Machines whose clocks are apart fire one after the other: a short job runs on each of
// them, unless Every or AtLeast keeps the others off.
func TestClocksApart(t *testing.T) {
	site.Each(t, func(t *testing.T, s *site.Site) {
		for _, c := range []struct {
			job  joblock.Job
			runs int
		}{
			{joblock.Job{Name: "every", Every: time.Hour}, 1},
			{joblock.Job{Name: "least", AtLeast: time.Minute}, 1},
			{joblock.Job{Name: "neither"}, 3},
		} {
			runs := 0
			for range 3 {
				if a := fire(t.Context(), s.Jobs(t), c.job, cron.FuncJob(func() { runs++ })); a.err != nil {
					t.Error(a.err)
				}
			}
			if runs != c.runs {
				t.Errorf("%s: %d runs", c.job.Name, runs)
			}
		}
	})
}

// A Func gets the ctx of the run: it ends with Wrap's, when AtMost has passed, and when the
// lock is lost; and its error is the run's. Any other job fails by a panic alone.
func TestFunc(t *testing.T) {
	site.Each(t, func(t *testing.T, s *site.Site) {
		jobs := s.Jobs(t)
		last := func(name string) joblock.Run {
			t.Helper()
			runs, err := jobs.History(t.Context(), joblock.Filter{Job: name})
			if err != nil || len(runs) != 1 {
				t.Fatalf("%+v, %v", runs, err)
			}
			return runs[0]
		}
		broken := errors.New("broken")
		wait := cronlock.Func(func(ctx context.Context) error {
			<-ctx.Done()
			return errors.Join(broken, context.Cause(ctx))
		})
		if a := fire(t.Context(), jobs, joblock.Job{Name: "slow", AtMost: 10 * time.Millisecond}, wait); !errors.Is(a.err, broken) || a.res.Outcome != joblock.TimedOut {
			t.Errorf("AtMost: %s, %v", a.res, a.err)
		}
		if r := last("slow"); r.Outcome != joblock.TimedOut {
			t.Errorf("%+v", r)
		}
		ctx, stop := context.WithCancel(t.Context())
		begun := make(chan struct{})
		go func() {
			<-begun
			stop()
		}()
		if a := fire(ctx, jobs, joblock.Job{Name: "stopped"}, cronlock.Func(func(ctx context.Context) error {
			close(begun)
			return wait(ctx)
		})); !errors.Is(a.err, context.Canceled) || a.res.Outcome != joblock.Failed {
			t.Errorf("its ctx ends: %s, %v", a.res, a.err)
		}
		if a := fire(ctx, jobs, joblock.Job{Name: "stopped"}, wait); !errors.Is(a.err, context.Canceled) || a.res.Ran {
			t.Errorf("its ctx has ended: %s, %v", a.res, a.err)
		}
		cronlock.Wrap(t.Context(), jobs, joblock.Job{Name: "untold"}, nil)(cron.FuncJob(func() {})).Run()
		if r := last("untold"); r.Outcome != joblock.OK {
			t.Errorf("%+v", r)
		}
		// A panic goes on, to what cron has for that.
		cron.NewChain(cron.Recover(cron.DiscardLogger), cronlock.Wrap(t.Context(), jobs, joblock.Job{Name: "panic"}, nil)).Then(cron.FuncJob(func() { panic("boom") })).Run()
		if r := last("panic"); r.Outcome != joblock.Failed || !strings.HasPrefix(r.Error, "panic: boom") {
			t.Errorf("%+v", r)
		}
		if a := fire(t.Context(), jobs, joblock.Job{Name: strings.Repeat("x", 252)}, wait); !errors.Is(a.err, lock.ErrInvalid) || a.res.Ran {
			t.Errorf("the name is too long: %s, %v", a.res, a.err)
		}
	})
	ran := false
	cron.Job(cronlock.Func(func(context.Context) error { ran = true; return nil })).Run()
	if !ran {
		t.Error("a Func that is not wrapped does not run")
	}
}

// The lock of a job that runs is lost: the ctx of a Func ends, and the run is recorded so.
func TestLost(t *testing.T) {
	site.Each(t, func(t *testing.T, s *site.Site) {
		jobs, locker := s.Machine(t)
		a := fire(t.Context(), jobs, joblock.Job{Name: "lost", TTL: time.Second}, cronlock.Func(func(ctx context.Context) error {
			s.TakeAway(t, locker, joblock.LockName("lost"))
			select {
			case <-ctx.Done():
				return context.Cause(ctx)
			case <-time.After(site.Patience):
				return errors.New("the ctx does not end")
			}
		}))
		if !errors.Is(a.err, lock.ErrLost) || a.res.Outcome != joblock.Lost {
			t.Errorf("%s, %v", a.res, a.err)
		}
		if a := fire(t.Context(), s.Jobs(t), joblock.Job{Name: "lost"}, cron.FuncJob(func() {})); a.err != nil || !a.res.Ran {
			t.Errorf("the next: %s, %v", a.res, a.err)
		}
	})
}
