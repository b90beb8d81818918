package gocronlock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"go.uber.org/goleak"

	"github.com/sqlnative/locks/contrib/gocronlock"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const patience = 30 * time.Second

// machines starts three schedulers with one job each, which they all run at once; option
// makes what they share. It waits until each has run it or let it be, and returns how
// many have.
func machines(t *testing.T, option func(lock.Locker) gocron.SchedulerOption) (runs int32) {
	t.Helper()
	var m locktest.Memory
	var ran atomic.Int32
	over := make(chan struct{}, 30)
	var all []gocron.Scheduler
	for range 3 {
		l := m.Locker()
		t.Cleanup(func() { _ = l.Close() })
		s, err := gocron.NewScheduler(option(l))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := s.Shutdown(); err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		})
		_, err = s.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartImmediately()), gocron.NewTask(func() { ran.Add(1) }), gocron.WithName("report"),
			gocron.WithEventListeners(
				gocron.AfterJobRuns(func(_ uuid.UUID, _ string) { over <- struct{}{} }),
				gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) {
					if !errors.Is(err, lock.ErrHeld) {
						t.Errorf("Lock: %v", err)
					}
					over <- struct{}{}
				})))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, s)
	}
	for _, s := range all {
		s.Start()
	}
	for range all {
		select {
		case <-over:
		case <-time.After(patience):
			t.Fatal("a scheduler does nothing")
		}
	}
	return ran.Load()
}

// Three schedulers, one run.
func TestLocker(t *testing.T) {
	if n := machines(t, func(l lock.Locker) gocron.SchedulerOption {
		return gocron.WithDistributedLocker(gocronlock.NewLocker(l, lock.HoldAtLeast(time.Hour)))
	}); n != 1 {
		t.Errorf("%d runs", n)
	}
	if n := machines(t, func(lock.Locker) gocron.SchedulerOption { return gocron.WithGlobalJobOptions() }); n != 3 {
		t.Errorf("the control, without a Locker: %d runs", n)
	}
}

// The lock is released when the run has ended.
func TestUnlock(t *testing.T) {
	var m locktest.Memory
	l := m.Locker()
	defer func() { _ = l.Close() }()
	adapter := gocronlock.NewLocker(l)
	got, err := adapter.Lock(t.Context(), "report")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := adapter.Lock(t.Context(), "report"); !errors.Is(err, lock.ErrHeld) {
		t.Errorf("a second Lock: %v", err)
	}
	if err := got.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if got, err = adapter.Lock(t.Context(), "report"); err != nil {
		t.Fatal(err)
	}
	_ = got.Unlock(t.Context())
}

// Who does not lead runs nothing; who leads does.
func TestElector(t *testing.T) {
	var m locktest.Memory
	l := m.Locker()
	defer func() { _ = l.Close() }()
	e, err := lock.NewElection(l, "scheduler")
	if err != nil {
		t.Fatal(err)
	}
	var ran atomic.Int32
	done := make(chan struct{}, 10)
	s, err := gocron.NewScheduler(gocron.WithDistributedElector(gocronlock.NewElector(e)))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Shutdown() }()
	job, err := s.NewJob(gocron.DurationJob(time.Hour), gocron.NewTask(func() {
		ran.Add(1)
		done <- struct{}{}
	}))
	if err != nil {
		t.Fatal(err)
	}
	s.Start()
	if err := job.RunNow(); err != nil {
		t.Logf("RunNow: %v", err)
	}
	if err := gocronlock.NewElector(e).IsLeader(t.Context()); !errors.Is(err, gocronlock.ErrNotLeader) {
		t.Errorf("nobody leads: %v", err)
	}
	ctx, stop := context.WithCancel(t.Context())
	leads, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		ended <- e.Run(ctx, func(ctx context.Context, _ *lock.Lock) error {
			close(leads)
			<-ctx.Done()
			return nil
		})
	}()
	<-leads
	if n := ran.Load(); n != 0 {
		t.Errorf("%d runs before it leads", n)
	}
	if err := job.RunNow(); err != nil {
		t.Errorf("RunNow: %v", err)
	}
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("the leader runs nothing")
	}
	done2, cancel := context.WithCancel(t.Context())
	cancel()
	if err := gocronlock.NewElector(e).IsLeader(done2); !errors.Is(err, context.Canceled) {
		t.Errorf("with a ctx that is done: %v", err)
	}
	stop()
	<-ended
}
