package gocronlock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	"github.com/sqlnative/locks/contrib/gocronlock"
	"github.com/sqlnative/locks/contrib/internal/site"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
)

// locking is the option of a scheduler on a machine of its own.
func locking(t *testing.T, s *site.Site, opts ...lock.Option) gocron.SchedulerOption {
	t.Helper()
	return gocron.WithDistributedLocker(gocronlock.NewLocker(s.Locker(t), opts...))
}

// Three schedulers fire at once, again and again: each time one runs the job, and the
// others skip it while it runs. The control: without a Locker all of them run it.
func TestLocker(t *testing.T) {
	site.Each(t, func(t *testing.T, s *site.Site) {
		var all []*machine
		for range 3 {
			all = append(all, start(t, locking(t, s), nil))
		}
		for tick := range 5 {
			for _, m := range all {
				m.fire()
			}
			var runs *machine
			deadline := time.Now().Add(site.Patience)
			for n := 0; n < len(all)-1 || runs == nil; {
				if n == len(all) || time.Now().After(deadline) {
					t.Fatalf("tick %d: %d skip it, one runs it: %v", tick, n, runs != nil)
				}
				for _, m := range all {
					select {
					case <-m.began:
						if runs != nil {
							t.Fatalf("tick %d: two run it", tick)
						}
						runs = m
					case err := <-m.told:
						if n++; !errors.Is(err, lock.ErrHeld) {
							t.Errorf("tick %d: Lock: %v", tick, err)
						}
					case <-time.After(5 * time.Millisecond):
					}
				}
			}
			runs.end <- struct{}{}
			if err := runs.answer(); err != nil {
				t.Errorf("tick %d: %v", tick, err)
			}
			unlocked(t, s)
		}
	})
	var all []*machine
	for range 3 {
		all = append(all, start(t, gocron.WithGlobalJobOptions(), nil))
	}
	for _, m := range all {
		m.fire()
		m.running()
	}
	for _, m := range all {
		m.end <- struct{}{}
	}
}

// unlocked waits until the job is not locked any more: gocron unlocks it when it has told
// that the run is over.
func unlocked(t *testing.T, s *site.Site) {
	t.Helper()
	l, err := s.Locker(t).Acquire(t.Context(), lock.Name("gocron", "report"), lock.Wait(site.Patience))
	if err != nil {
		t.Fatalf("it stays locked: %v", err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}

// A job that takes less time than the machines' clocks are apart runs on each of them,
// unless HoldAtLeast keeps the others off; and then once each period.
func TestClocksApart(t *testing.T) {
	site.Each(t, func(t *testing.T, s *site.Site) {
		fires := func(opts ...lock.Option) (runs int) {
			var all []*machine
			for range 3 {
				all = append(all, start(t, locking(t, s, opts...), func() {}))
			}
			for range 3 {
				for _, m := range all {
					m.fire()
					switch err := m.answer(); {
					case err == nil:
						runs++
						if len(opts) == 0 {
							unlocked(t, s)
						}
					case !errors.Is(err, lock.ErrHeld) && !s.Advisory:
						t.Errorf("Lock: %v", err)
					case !errors.Is(err, errors.ErrUnsupported) && s.Advisory:
						t.Errorf("Lock: %v", err)
					}
				}
				s.Pass(t, time.Hour)
			}
			return runs
		}
		if n := fires(); n != 9 {
			t.Errorf("the control, without HoldAtLeast: %d runs", n)
		}
		want := 3
		if s.Advisory { // which refuses it: the job runs nowhere
			want = 0
		}
		if n := fires(lock.HoldAtLeast(time.Hour)); n != want {
			t.Errorf("with HoldAtLeast: %d runs", n)
		}
	})
}

// The lock is released by Unlock, also when the ctx is done, and once.
func TestUnlock(t *testing.T) {
	site.Each(t, func(t *testing.T, s *site.Site) {
		one, two := gocronlock.NewLocker(s.Locker(t)), gocronlock.NewLocker(s.Locker(t))
		got, err := one.Lock(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range []gocron.Locker{one, two} {
			if _, err := l.Lock(t.Context(), "report"); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("a second Lock: %v", err)
			}
		}
		other, err := two.Lock(t.Context(), "REPORT")
		if err != nil {
			t.Fatalf("another job: %v", err)
		}
		if err := other.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := got.Unlock(ctx); err != nil {
			t.Errorf("Unlock with a ctx that is done: %v", err)
		}
		next, err := two.Lock(t.Context(), "report")
		if err != nil {
			t.Fatalf("after Unlock: %v", err)
		}
		if err := got.Unlock(t.Context()); err != nil {
			t.Errorf("a second Unlock: %v", err)
		}
		if _, err := one.Lock(t.Context(), "report"); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("a second Unlock released what another has: %v", err)
		}
		if err := next.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if _, err := one.Lock(ctx, "report"); !errors.Is(err, context.Canceled) {
			t.Errorf("Lock with a ctx that is done: %v", err)
		}
	})
}

// A lock that is lost while the job runs: the task goes on, as gocron does not hand it the
// lock. Trace tells it; and Unlock, whose error gocron drops, touches nobody else's.
func TestLost(t *testing.T) {
	site.Each(t, func(t *testing.T, s *site.Site) {
		lost := make(chan lock.Event, 1)
		locker := s.Locker(t)
		option := gocron.WithDistributedLocker(gocronlock.NewLocker(locker, lock.TTL(time.Second), lock.WithTrace(&lock.Trace{Lost: func(e lock.Event) { lost <- e }})))
		ended := make(chan error, 1)
		var m *machine
		m = start(t, option, func(ctx context.Context) {
			m.began <- struct{}{}
			<-m.end
			ended <- ctx.Err()
		})
		m.fire()
		m.running()
		s.TakeAway(t, locker, lock.Name("gocron", "report"))
		select {
		case e := <-lost:
			if e.Name != lock.Name("gocron", "report") {
				t.Errorf("%+v", e)
			}
		case <-time.After(site.Patience):
			t.Fatal("nobody tells that it is lost")
		}
		next := start(t, locking(t, s), nil)
		next.fire()
		next.running() // beside the other
		m.end <- struct{}{}
		if err := <-ended; err != nil {
			t.Errorf("the task's ctx: %v", err)
		}
		if err := m.answer(); err != nil {
			t.Errorf("the run whose lock was lost: %v", err)
		}
		m.fire()
		if err := m.answer(); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("while the next runs: %v", err)
		}
		next.end <- struct{}{}
		if err := next.answer(); err != nil {
			t.Error(err)
		}
		unlocked(t, s)
	})
}

// A scheduler that is shut down while its job runs leaves no lock behind.
func TestShutdown(t *testing.T) {
	site.Each(t, func(t *testing.T, s *site.Site) {
		var m *machine
		m = start(t, locking(t, s), func(ctx context.Context) {
			m.began <- struct{}{}
			<-ctx.Done()
		})
		m.fire()
		m.running()
		if err := m.Shutdown(); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
		next := start(t, locking(t, s), nil)
		next.fire()
		next.running()
		next.end <- struct{}{}
		if err := next.answer(); err != nil {
			t.Error(err)
		}
		unlocked(t, s)
	})
}

// A name that can't be a lock's is an error of Lock, which gocron tells nobody but
// AfterLockError; a Go function's name, which gocron takes for want of another, can.
func TestNames(t *testing.T) {
	var mem locktest.Memory
	locker := mem.Locker()
	defer func() { _ = locker.Close() }()
	l := gocronlock.NewLocker(locker)
	for _, name := range []string{strings.Repeat("x", lock.MaxName-6), "", "a:b\\c", "pkg.(*T).m-fm"} {
		if name == strings.Repeat("x", lock.MaxName-6) {
			if _, err := l.Lock(t.Context(), name); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("the name is too long: %v", err)
			}
			name = name[1:]
		}
		got, err := l.Lock(t.Context(), name)
		if err != nil {
			t.Errorf("%q: %v", name, err)
			continue
		}
		if err := got.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
	for _, name := range []string{"\xff", "\x00"} {
		if _, err := l.Lock(t.Context(), name); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%q: %v", name, err)
		}
	}
	_ = locker.Close()
	if _, err := l.Lock(t.Context(), "report"); !errors.Is(err, lock.ErrClosed) {
		t.Errorf("with a Locker that is closed: %v", err)
	}
}
