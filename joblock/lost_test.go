package joblock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqllock"
)

// A lock that is taken away ends fn's ctx, and the run is recorded as lost, by its own
// process, though the next has marked it as abandoned; and the next's record is left
// alone.
func TestLost(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		s := &site{DB: db}
		one, two := s.process(t), s.process(t)
		job := joblock.Job{Name: "lost", TTL: time.Second}
		r := start(t, one, job)
		run := history(t, two, "lost", 1)[0]
		if err := two.locker.(*sqllock.Locker).ForceRelease(t.Context(), joblock.LockName("lost"), run.Token); err != nil {
			t.Fatal(err)
		}
		if cause := r.ended(); !errors.Is(cause, lock.ErrLost) {
			t.Errorf("the ctx ends with %v", cause)
		}
		next := start(t, two, job)
		runs := history(t, two, "lost", 2)
		if runs[0].Outcome != joblock.Running || runs[1].Outcome != joblock.Abandoned || runs[0].Token <= runs[1].Token {
			t.Errorf("%+v", runs)
		}
		res, err := r.end(nil)
		if !errors.Is(err, lock.ErrLost) || res.Outcome != joblock.Lost {
			t.Errorf("%s, %v", res, err)
		}
		runs = history(t, two, "lost", 2)
		if runs[0].Outcome != joblock.Running || runs[1].Outcome != joblock.Lost || runs[1].Error == "" || runs[1].Finished == nil {
			t.Errorf("%+v", runs)
		}
		if _, err := next.end(nil); err != nil {
			t.Error(err)
		}
		if run := history(t, two, "lost", 2)[0]; run.Outcome != joblock.OK {
			t.Errorf("%+v", run)
		}
		if res := skipped(t, two, joblock.Job{Name: "lost", Every: time.Hour, RetryFailed: true}); !res.NotDue {
			t.Errorf("the job's row does not say that the last run went well: %+v", res)
		}

		// Only the release finds it out: fn is back before the next renewal.
		job.TTL = time.Hour
		r = start(t, one, job)
		run = history(t, two, "lost", 3)[0]
		if err := two.locker.(*sqllock.Locker).ForceRelease(t.Context(), joblock.LockName("lost"), run.Token); err != nil {
			t.Fatal(err)
		}
		res, err = r.end(nil)
		if !errors.Is(err, lock.ErrLost) || res.Outcome != joblock.Lost {
			t.Errorf("%s, %v", res, err)
		}
		if run := history(t, two, "lost", 3)[0]; run.Outcome != joblock.Lost || run.Error == "" {
			t.Errorf("%+v", run)
		}
		// And what a panic has said stays.
		func() {
			defer func() { _ = recover() }()
			_, _ = one.Run(t.Context(), job, func(context.Context) error {
				run := history(t, two, "lost", 4)[0]
				if err := two.locker.(*sqllock.Locker).ForceRelease(t.Context(), joblock.LockName("lost"), run.Token); err != nil {
					t.Error(err)
				}
				panic("a reason")
			})
		}()
		if run := history(t, two, "lost", 4)[0]; run.Outcome != joblock.Lost || !strings.Contains(run.Error, "a reason") || !strings.Contains(run.Error, "lost_test.go") || !strings.Contains(run.Error, "was lost") {
			t.Errorf("%+v", run)
		}
		job.Every, job.RetryFailed = time.Hour, true // the job's row says so too
		ran(t, two, job, joblock.OK, nothing)
	})
}

// slow is a Locker whose caller is stopped just after it was granted the lock.
type slow struct {
	lock.Locker
	stopped func(l *lock.Lock)
}

func (s slow) Acquire(ctx context.Context, name string, opts ...lock.Option) (*lock.Lock, error) {
	l, err := s.Locker.Acquire(ctx, name, opts...)
	if err == nil {
		s.stopped(l)
	}
	return l, err
}

// The interleaving of the package's documentation: between lock and start the job is
// run by another. There is no period that would refuse the second start; the token does.
func TestStaleStart(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		s := &site{DB: db}
		other := s.process(t)
		job := joblock.Job{Name: "stale"}
		jobs, err := joblock.New(t.Context(), db.DB, slow{s.locker(t), func(l *lock.Lock) {
			if err := other.locker.(*sqllock.Locker).ForceRelease(t.Context(), l.Name(), l.Token()); err != nil {
				t.Fatal(err)
			}
			ran(t, other, job, joblock.OK, nothing)
		}})
		if err != nil {
			t.Fatal(err)
		}
		res, err := jobs.Run(t.Context(), job, func(context.Context) error {
			t.Error("a second run")
			return nil
		})
		if !errors.Is(err, lock.ErrLost) || res.Ran {
			t.Errorf("%s, %v", res, err)
		}
		history(t, other, "stale", 1)
	})
}

// It is decided under the lock: what was read before may be old. The job is run, or
// switched off, after it was found to be due and before the lock is had.
func TestDecidedUnderTheLock(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		s := &site{DB: db}
		other := s.process(t)
		job := joblock.Job{Name: "under", Every: time.Hour}
		var before func()
		jobs, err := joblock.New(t.Context(), db.DB, late{s.locker(t), &before})
		if err != nil {
			t.Fatal(err)
		}
		p := process{Jobs: jobs}
		before = func() { ran(t, other, job, joblock.OK, nothing) }
		if res := skipped(t, p, job); !res.NotDue {
			t.Errorf("%+v", res)
		}
		s.later(t, "under", time.Hour)
		before = func() {
			if err := other.Disable(t.Context(), "under", "now"); err != nil {
				t.Error(err)
			}
		}
		if res := skipped(t, p, job); !res.Disabled || res.Note != "now" {
			t.Errorf("%+v", res)
		}
		history(t, other, "under", 1)
	})
}

// late is a Locker before whose Acquire something happens.
type late struct {
	lock.Locker
	before *func()
}

func (l late) Acquire(ctx context.Context, name string, opts ...lock.Option) (*lock.Lock, error) {
	(*l.before)()
	return l.Locker.Acquire(ctx, name, opts...)
}
