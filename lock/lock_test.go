package lock_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// strategy is one whose answers a test sets.
type strategy struct {
	release          func(ctx context.Context) error
	extend           func() (time.Time, error)
	releases, losses atomic.Int64
}

func (s *strategy) Release(ctx context.Context) error {
	s.releases.Add(1)
	if s.release != nil {
		return s.release(ctx)
	}
	return nil
}

func (s *strategy) Extend(context.Context, time.Duration) (time.Time, error) { return s.extend() }

func (s *strategy) ReleaseIn(context.Context, *sqldb.Tx) error { return nil }
func (s *strategy) Guard(context.Context, *sqldb.Tx) error     { return nil }
func (s *strategy) Lost()                                      { s.losses.Add(1) }

// granted is a lock whose lease can be trusted for d.
func granted(s *strategy, d time.Duration, t *lock.Trace) (*lock.Lock, *lock.Controller) {
	g := lock.Grant{Name: "job", Owner: "me", Token: 7, Scope: s, Trace: t}
	if d != 0 {
		g.Until = time.Now().Add(d)
	}
	return lock.New(g, s)
}

func TestTrust(t *testing.T) {
	sent := time.Now()
	for ttl, trust := range map[time.Duration]time.Duration{
		200 * time.Millisecond: 150 * time.Millisecond, 500 * time.Millisecond: 450 * time.Millisecond,
		time.Second: 900 * time.Millisecond, 30 * time.Second: 27 * time.Second,
	} {
		if got := lock.TrustedUntil(sent, ttl).Sub(sent); got != trust {
			t.Errorf("a lease of %v is trusted for %v, not %v", ttl, got, trust)
		}
	}
}

// A lease ends by the clock, and not before; a renewal moves the end.
func TestLeaseEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s strategy
		var stats lock.Stats
		l, ctrl := granted(&s, time.Second, stats.Trace())
		ctx := l.Context(t.Context())
		time.Sleep(time.Second - 1)
		synctest.Wait()
		if l.Err() != nil || ctx.Err() != nil {
			t.Fatalf("a nanosecond before its end: %v, %v", l.Err(), ctx.Err())
		}
		if !ctrl.Renewed(time.Now().Add(time.Second)) {
			t.Fatal("not renewed")
		}
		time.Sleep(time.Second - 1)
		synctest.Wait()
		if l.Err() != nil {
			t.Fatalf("a nanosecond before its new end: %v", l.Err())
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		var lost *lock.LostError
		if !errors.As(l.Err(), &lost) || lost.Token != 7 || !errors.Is(context.Cause(ctx), lock.ErrLost) || ctx.Err() != context.Canceled {
			t.Errorf("at its end: %v, %v", l.Err(), context.Cause(ctx))
		}
		if s.losses.Load() != 1 || stats.Lost.Load() != 1 {
			t.Errorf("%d losses, the strategy was told of %d", stats.Lost.Load(), s.losses.Load())
		}
		if ctrl.Renewed(time.Now().Add(time.Hour)) || l.Err() == nil {
			t.Error("a renewal brought a lost lock back")
		}
		ctrl.Lose("again", nil)
		for range 2 {
			if err := l.Release(t.Context()); !errors.Is(err, lock.ErrLost) || s.releases.Load() != 1 {
				t.Errorf("Release of a lost lock: %v, %d calls", err, s.releases.Load())
			}
		}
		if stats.Released.Load() != 0 || stats.Lost.Load() != 1 {
			t.Error("a lost lock was told as released")
		}
	})
}

// Err looks at the clock: it need not wait for the timer, which a busy or paused
// process runs late.
func TestErrBeforeTheTimer(t *testing.T) {
	var s strategy
	for range 20 {
		l, _ := granted(&s, 200*time.Microsecond, nil)
		until := time.Now().Add(200 * time.Microsecond) // no earlier than the lock's
		for time.Now().Before(until) {
		}
		if err := l.Err(); !errors.Is(err, lock.ErrLost) {
			t.Fatalf("at the end of the trust: %v", err)
		}
		select {
		case <-l.Done():
		default:
			t.Fatal("Err tells of a loss, and Done is open")
		}
	}
}

// Of a loss and a release at once one wins, and all say the same.
func TestLossMeetsRelease(t *testing.T) {
	for i := range 300 {
		var s strategy
		var stats lock.Stats
		l, ctrl := granted(&s, time.Hour, stats.Trace())
		ctx := l.Context(context.Background())
		var wg sync.WaitGroup
		var released [2]error
		wg.Go(func() { ctrl.Lose("stolen", nil) })
		wg.Go(func() { ctrl.Renewed(time.Now().Add(time.Duration(i) * time.Microsecond)) })
		for j := range released {
			wg.Go(func() { released[j] = l.Release(context.Background()) })
		}
		wg.Wait()
		<-ctx.Done()
		lost := errors.Is(l.Err(), lock.ErrLost)
		if !lost && !errors.Is(l.Err(), lock.ErrReleased) {
			t.Fatalf("Err is %v", l.Err())
		}
		for _, err := range released {
			if errors.Is(err, lock.ErrLost) != lost {
				t.Errorf("Err is %v, Release says %v", l.Err(), err)
			}
		}
		if n := stats.Lost.Load(); (n == 1) != lost || n+stats.Released.Load() != 1 || s.losses.Load() != n || s.releases.Load() != 1 {
			t.Errorf("lost: %v; told: %d lost, %d released; the strategy: %d losses, %d releases", lost, n, stats.Released.Load(), s.losses.Load(), s.releases.Load())
		}
	}
}

// A release that fails is tried again by the next call, and the lock is over
// meanwhile.
func TestReleaseFails(t *testing.T) {
	gone := errors.New("gone")
	s := &strategy{release: func(context.Context) error { return gone }}
	var stats lock.Stats
	l, ctrl := granted(s, time.Hour, stats.Trace())
	if err := l.Release(t.Context()); !errors.Is(err, gone) || errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrReleased) {
		t.Errorf("Release: %v", err)
	}
	if !errors.Is(l.Err(), lock.ErrReleased) || stats.ReleaseFailed.Load() != 1 || ctrl.Renewed(time.Now().Add(time.Hour)) {
		t.Errorf("after that: %v", l.Err())
	}
	s.release = nil
	for range 2 {
		if err := l.Release(t.Context()); err != nil {
			t.Errorf("Release, when it works again: %v", err)
		}
	}
	if s.releases.Load() != 2 || stats.Released.Load() != 1 {
		t.Errorf("%d releases, %d told", s.releases.Load(), stats.Released.Load())
	}
}

// The strategy's ctx is detached from the caller's, and bounded.
func TestReleaseIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		s := &strategy{release: func(ctx context.Context) error {
			if ctx.Err() != nil || ctx.Value(key{}) != "value" {
				t.Errorf("its ctx has ended (%v), or lost its values", ctx.Err())
			}
			<-ctx.Done()
			return ctx.Err()
		}}
		l, _ := granted(s, time.Hour, nil)
		ctx, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
		cancel()
		begun := time.Now()
		if err := l.Release(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Release: %v", err)
		}
		if took := time.Since(begun); took != lock.ReleaseBound {
			t.Errorf("it took %v", took)
		}
	})
}

// A lost release that the database finds out.
func TestReleaseFindsTheLoss(t *testing.T) {
	s := &strategy{release: func(context.Context) error { return lock.ErrLost }}
	l, _ := granted(s, 0, nil)
	for range 2 {
		var lost *lock.LostError
		if err := l.Release(t.Context()); !errors.As(err, &lost) || lost.Name != "job" || lost.Token != 7 {
			t.Errorf("Release: %v", err)
		}
	}
}

func TestExtend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &strategy{extend: func() (time.Time, error) { return time.Now().Add(time.Hour), nil }}
		l, _ := granted(s, time.Second, nil)
		if err := l.Extend(t.Context(), time.Millisecond); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("Extend below the floor: %v", err)
		}
		if err := l.Extend(t.Context(), time.Hour); err != nil {
			t.Errorf("Extend: %v", err)
		}
		time.Sleep(time.Minute)
		if err := l.Err(); err != nil {
			t.Errorf("after Extend: %v", err)
		}
		// An answer that came too late extends nothing.
		s.extend = func() (time.Time, error) {
			until := time.Now().Add(time.Second)
			time.Sleep(2 * time.Hour)
			return until, nil
		}
		if err := l.Extend(t.Context(), time.Second); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Extend, answered too late: %v", err)
		}
		l, _ = granted(s, 0, nil)
		s.extend = func() (time.Time, error) { return time.Time{}, lock.ErrLost }
		if err := l.Extend(t.Context(), time.Second); !errors.Is(err, lock.ErrLost) || !errors.Is(l.Err(), lock.ErrLost) {
			t.Errorf("Extend, found lost: %v, then %v", err, l.Err())
		}
	})
}
