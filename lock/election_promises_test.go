package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
)

// scripted is a Locker whose Acquire answers what before answers, unless that is nil; opts
// come before those of the caller, as a Locker's own do.
type scripted struct {
	lock.Locker
	before func() error
	opts   []lock.Option
}

func (s scripted) Acquire(ctx context.Context, name string, opts ...lock.Option) (*lock.Lock, error) {
	if s.before != nil {
		if err := s.before(); err != nil {
			return nil, err
		}
	}
	return s.Locker.Acquire(ctx, name, append(slices.Clone(s.opts), opts...)...)
}

// What no further try would change ends Run, at once and as it is.
func TestElectionEnds(t *testing.T) {
	bubble(t, func(t *testing.T, _ *locktest.Memory, a, _ lock.Locker) {
		for _, kind := range []error{lock.ErrInvalid, lock.ErrNotMigrated, lock.ErrClosed, lock.ErrDeadlock, errors.ErrUnsupported} {
			begun, refusal := time.Now(), fmt.Errorf("refused: %w", kind)
			ctx, stop := context.WithTimeout(t.Context(), time.Hour)
			err := election(t, scripted{Locker: a, before: func() error { return refusal }}).Run(ctx, untilDone)
			stop()
			if err != refusal || time.Since(begun) != 0 { //nolint:errorlint // as it is
				t.Errorf("%v: Run returned %v after %v", kind, err, time.Since(begun))
			}
		}
	})
}

// Anything else is tried again, with pauses that grow, up to 10 s; and begin anew after a
// term.
func TestElectionPauses(t *testing.T) {
	bubble(t, func(t *testing.T, m *locktest.Memory, a, _ lock.Locker) {
		var mu sync.Mutex
		var tries []time.Time
		down := true
		e := election(t, scripted{Locker: a, before: func() error {
			mu.Lock()
			defer mu.Unlock()
			if !down {
				return nil
			}
			tries = append(tries, time.Now())
			return errors.New("no answer")
		}})
		ctx, stop := context.WithCancel(t.Context())
		outage := func(begin func()) {
			t.Helper()
			mu.Lock()
			down, tries = true, nil
			mu.Unlock()
			begin()
			time.Sleep(time.Hour)
			mu.Lock()
			if len(tries) < 300 {
				t.Errorf("%d tries in an hour", len(tries))
			}
			for i, at := range tries[min(1, len(tries)):] {
				pause := at.Sub(tries[i])
				if most := min(100*time.Millisecond<<min(i, 20), 10*time.Second); pause < most/2 || pause > most {
					t.Errorf("pause %d is %v, of at most %v", i, pause, most)
				}
			}
			down = false
			mu.Unlock()
			time.Sleep(10 * time.Second)
			synctest.Wait()
			if !e.IsLeader() {
				t.Error("it does not lead after the outage")
			}
		}
		var done <-chan error
		outage(func() { done = campaign(ctx, e, untilDone) })
		outage(func() { m.Lose("leader") })
		stop()
		<-done
	})
}

// What Run makes of what fn returns.
func TestElectionAnswers(t *testing.T) {
	broken, shutdown := errors.New("broken"), errors.New("shutdown")
	for _, c := range []struct {
		name   string
		lose   bool // the lock is lost, else ctx ends, with shutdown as its cause
		fn     func(ctx context.Context, l *lock.Lock) error
		want   error
		again  bool // it campaigns again
		before bool // fn returns before either happens
	}{
		{name: "nil after the end", fn: func(context.Context, *lock.Lock) error { return nil }, want: context.Canceled},
		{name: "its ctx's error, wrapped", fn: func(ctx context.Context, _ *lock.Lock) error { return fmt.Errorf("work: %w", ctx.Err()) }, want: context.Canceled},
		{name: "the cause", fn: func(ctx context.Context, _ *lock.Lock) error { return context.Cause(ctx) }, want: context.Canceled},
		{name: "another error after the end", fn: func(context.Context, *lock.Lock) error { return broken }, want: broken},
		{name: "nil after the loss", lose: true, fn: func(context.Context, *lock.Lock) error { return nil }, again: true},
		{name: "its ctx's error after the loss", lose: true, fn: func(ctx context.Context, _ *lock.Lock) error { return ctx.Err() }, again: true},
		{name: "its ctx's cause after the loss", lose: true, fn: func(ctx context.Context, _ *lock.Lock) error { return context.Cause(ctx) }, again: true},
		{name: "ErrLost", lose: true, fn: func(_ context.Context, l *lock.Lock) error { return fmt.Errorf("guard: %w", l.Err()) }, again: true},
		{name: "another error after the loss", lose: true, fn: func(context.Context, *lock.Lock) error { return broken }, want: broken},
		{name: "another's Canceled", before: true, fn: func(context.Context, *lock.Lock) error { return context.Canceled }, want: context.Canceled},
	} {
		t.Run(c.name, func(t *testing.T) {
			bubble(t, func(t *testing.T, m *locktest.Memory, a, _ lock.Locker) {
				ctx, end := context.WithCancelCause(t.Context())
				terms := 0
				done := campaign(ctx, election(t, a), func(ctx context.Context, l *lock.Lock) error {
					if terms++; terms > 1 {
						return shutdown
					}
					if !c.before {
						<-ctx.Done()
					}
					return c.fn(ctx, l)
				})
				synctest.Wait()
				if c.lose {
					m.Lose("leader")
				} else if !c.before {
					end(shutdown)
				}
				want, wantTerms := c.want, 1
				if c.again {
					want, wantTerms = shutdown, 2
				}
				if err := <-done; err != want || terms != wantTerms { //nolint:errorlint // as it is
					t.Errorf("Run returned %v after %d terms; want %v after %d", err, terms, want, wantTerms)
				}
				end(nil)
			})
		})
	}
}

// All functions are told; IsLeader says the same meanwhile; and the end of a term that is
// given back is told before another can be elected.
func TestElectionTells(t *testing.T) {
	bubble(t, func(t *testing.T, _ *locktest.Memory, a, b lock.Locker) {
		e := election(t, a)
		first, last := changes(e), changes(e)
		e.OnChange(func(leader bool) {
			if e.IsLeader() != leader {
				t.Errorf("while %v is told, IsLeader is %v", leader, !leader)
			}
			if _, err := b.Acquire(t.Context(), "leader", lock.Try()); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("while %v is told, another can be elected: %v", leader, err)
			}
		})
		broken := errors.New("broken")
		for range 2 {
			if err := e.Run(t.Context(), func(context.Context, *lock.Lock) error { return broken }); err != broken { //nolint:errorlint // as it is
				t.Errorf("Run returned %v", err)
			}
		}
		for _, told := range []func() []bool{first, last} {
			if got := told(); !slices.Equal(got, []bool{true, false, true, false}) {
				t.Errorf("OnChange told %v", got)
			}
		}
	})
}

// A candidate waits, whatever its Locker does by default; and the caller's slice of options
// stays the caller's.
func TestElectionWaits(t *testing.T) {
	bubble(t, func(t *testing.T, _ *locktest.Memory, a, b lock.Locker) {
		held, err := a.Acquire(t.Context(), "leader")
		if err != nil {
			t.Fatal(err)
		}
		opts := append(make([]lock.Option, 0, 2), lock.TTL(time.Minute))
		e := election(t, scripted{Locker: b, opts: []lock.Option{lock.Try()}}, opts...)
		if opts[:2][1] != nil {
			t.Error("it has written into the caller's slice")
		}
		ctx, stop := context.WithCancel(t.Context())
		done := campaign(ctx, e, untilDone)
		time.Sleep(time.Hour)
		if err := held.Release(t.Context()); err != nil {
			t.Error(err)
		}
		synctest.Wait() // and no pause
		if !e.IsLeader() {
			t.Error("it does not lead")
		}
		stop()
		<-done
	})
}
