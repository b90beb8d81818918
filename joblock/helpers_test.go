package joblock_test

import (
	"context"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// patience is how long something that has to happen may take.
const patience = 30 * time.Second

// site is a database with the tables, and a strategy.
type site struct {
	*dbtest.DB
	advisory bool
}

// process is a program on the database: a Locker and Jobs of its own.
type process struct {
	*joblock.Jobs
	locker lock.Locker
}

func (s *site) process(t testing.TB) process {
	t.Helper()
	return s.processOn(t, s.DB.DB)
}

// processOn has its jobs on a database handle of its own.
func (s *site) processOn(t testing.TB, db *sqldb.DB) process {
	t.Helper()
	l := s.locker(t)
	jobs, err := joblock.New(t.Context(), db, l)
	if err != nil {
		t.Fatal(err)
	}
	return process{jobs, l}
}

func (s *site) locker(t testing.TB) lock.Locker {
	t.Helper()
	var l lock.Locker
	var err error
	if s.advisory {
		l, err = advisory.New(t.Context(), s.DB.DB)
	} else {
		l, err = sqllock.New(t.Context(), s.DB.DB)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

// migrated makes the tables.
func migrated(t testing.TB, db *dbtest.DB) {
	t.Helper()
	if err := migrations.Up(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
}

// later has d pass for a job: everything that was stored for it becomes older. So
// nobody has to wait for a day.
func (s *site) later(t testing.TB, job string, d time.Duration) {
	t.Helper()
	s.MustExec(t,
		"UPDATE "+s.Table("jobs")+" SET last_start = "+s.Ago("last_start", d)+" WHERE name = '"+job+"'",
		"UPDATE "+s.Table("job_runs")+" SET started_at = "+s.Ago("started_at", d)+", lease_until = "+s.Ago("lease_until", d)+" WHERE job = '"+job+"'",
		"UPDATE "+s.Table("locks")+" SET hold_until = "+s.Ago("hold_until", d)+" WHERE name = '"+joblock.LockName(job)+"'")
}

// history reads the runs of a job, and ends the test unless there are n.
func history(t testing.TB, p process, job string, n int) []joblock.Run {
	t.Helper()
	runs, err := p.History(t.Context(), joblock.Filter{Job: job})
	if err != nil {
		t.Fatal(err)
	}
	if len(runs) != n {
		t.Fatalf("%d runs of %s, want %d: %+v", len(runs), job, n, runs)
	}
	return runs
}

// ran runs a job, and ends the test unless it ran with that outcome.
func ran(t testing.TB, p process, job joblock.Job, want joblock.Outcome, fn func(ctx context.Context) error) (joblock.Result, error) {
	t.Helper()
	res, err := p.Run(t.Context(), job, fn)
	if !res.Ran || res.Outcome != want {
		t.Fatalf("%s: %s, %v; want %s", job.Name, res, err, want)
	}
	return res, err
}

// skipped runs a job that must not run, and returns why.
func skipped(t testing.TB, p process, job joblock.Job) joblock.Result {
	t.Helper()
	res, err := p.Run(t.Context(), job, func(context.Context) error {
		t.Errorf("%s ran", job.Name)
		return nil
	})
	if err != nil || res.Ran {
		t.Fatalf("%s: %s, %v; want it skipped", job.Name, res, err)
	}
	return res
}

func nothing(context.Context) error { return nil }

// running starts a run in a goroutine of its own, and returns when its fn runs. fn
// returns what is sent to it; answer is what Run returned.
type running struct {
	t      testing.TB
	ctx    context.Context // fn's
	finish chan error
	answer chan struct{}
	res    joblock.Result
	err    error
}

func start(t testing.TB, p process, job joblock.Job) *running {
	t.Helper()
	return startCtx(t.Context(), t, p, job)
}

func startCtx(ctx context.Context, t testing.TB, p process, job joblock.Job) *running {
	t.Helper()
	r := &running{t: t, finish: make(chan error, 1), answer: make(chan struct{})}
	in := make(chan struct{})
	go func() {
		defer close(r.answer)
		r.res, r.err = p.Run(ctx, job, func(ctx context.Context) error {
			r.ctx = ctx
			close(in)
			return <-r.finish
		})
	}()
	select {
	case <-in:
	case <-r.answer:
		t.Fatalf("%s: %s, %v", job.Name, r.res, r.err)
	case <-time.After(patience):
		t.Fatalf("%s does not begin", job.Name)
	}
	return r
}

// end has fn return err, and waits for Run.
func (r *running) end(err error) (joblock.Result, error) {
	r.t.Helper()
	r.finish <- err
	select {
	case <-r.answer:
	case <-time.After(patience):
		r.t.Fatal("Run does not return")
	}
	return r.res, r.err
}

// ended waits until fn's ctx has ended, and returns why.
func (r *running) ended() error {
	r.t.Helper()
	select {
	case <-r.ctx.Done():
		return context.Cause(r.ctx)
	case <-time.After(patience):
		r.t.Fatal("fn's ctx does not end")
		return nil
	}
}

// eventually waits until f says so.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long until %s", what)
		}
	}
}
