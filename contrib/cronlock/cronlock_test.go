package cronlock_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	"go.uber.org/goleak"
	_ "modernc.org/sqlite"

	"github.com/sqlnative/locks/contrib/cronlock"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
	"github.com/sqlnative/locks/sqllock"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// machine is a program on the database of a file.
func machine(t *testing.T, file string) *joblock.Jobs {
	t.Helper()
	pool, err := sql.Open("sqlite", "file:"+file+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	db, err := sqlitedb.New(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	if err := migrations.Up(t.Context(), db); err != nil {
		t.Fatal(err)
	}
	locker, err := sqllock.New(t.Context(), db)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close() })
	jobs, err := joblock.New(t.Context(), db, locker)
	if err != nil {
		t.Fatal(err)
	}
	return jobs
}

type answer struct {
	res joblock.Result
	err error
}

// Three schedules that fire every second: one run in an hour.
func TestWrap(t *testing.T) {
	file := filepath.Join(t.TempDir(), "cron.db")
	var runs atomic.Int32
	answers := make(chan answer, 100)
	for range 3 {
		c := cron.New(cron.WithSeconds())
		once := cronlock.Wrap(t.Context(), machine(t, file), joblock.Job{Name: "report", Every: time.Hour}, func(res joblock.Result, err error) { answers <- answer{res, err} })
		if _, err := c.AddJob("* * * * * *", once(cron.FuncJob(func() { runs.Add(1) }))); err != nil {
			t.Fatal(err)
		}
		c.Start()
		defer func() { <-c.Stop().Done() }()
	}
	for range 6 {
		select {
		case a := <-answers:
			if a.err != nil || !a.res.Ran && !a.res.NotDue && a.res.Held == nil {
				t.Errorf("%s, %v", a.res, a.err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("no schedule fires")
		}
	}
	if n := runs.Load(); n != 1 {
		t.Errorf("%d runs", n)
	}
}

// A Func gets the ctx, and its error is the run's; without Wrap it runs as well.
func TestFunc(t *testing.T) {
	jobs := machine(t, filepath.Join(t.TempDir(), "cron.db"))
	broken := errors.New("broken")
	var got answer
	f := cronlock.Func(func(ctx context.Context) error {
		<-ctx.Done()
		return broken
	})
	cronlock.Wrap(t.Context(), jobs, joblock.Job{Name: "slow", AtMost: 10 * time.Millisecond}, func(res joblock.Result, err error) { got = answer{res, err} })(f).Run()
	if !errors.Is(got.err, broken) || got.res.Outcome != joblock.TimedOut {
		t.Errorf("%s, %v", got.res, got.err)
	}
	cronlock.Wrap(t.Context(), jobs, joblock.Job{Name: "untold"}, nil)(cron.FuncJob(func() {})).Run()
	if runs, err := jobs.History(t.Context(), joblock.Filter{Job: "untold"}); err != nil || len(runs) != 1 || runs[0].Outcome != joblock.OK {
		t.Errorf("%+v, %v", runs, err)
	}
	ran := false
	cron.Job(cronlock.Func(func(context.Context) error { ran = true; return nil })).Run()
	if !ran {
		t.Error("a Func that is not wrapped does not run")
	}
}
