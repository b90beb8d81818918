package lock_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/lock"
)

// A ctx of a lock that lives long is not kept when its parent has ended; a ctx that
// is made after the end has ended.
func TestContextOfALock(t *testing.T) {
	var s strategy
	l, ctrl := granted(&s, 0, nil)
	parent, cancel := context.WithCancelCause(context.Background())
	mine := errors.New("mine")
	ctx := l.Context(parent)
	cancel(mine)
	<-ctx.Done()
	if context.Cause(ctx) != mine || l.Err() != nil {
		t.Errorf("the cause is %v, Err %v", context.Cause(ctx), l.Err())
	}
	ctrl.Lose("stolen", mine)
	late := l.Context(context.Background())
	<-late.Done()
	if cause := context.Cause(late); !errors.Is(cause, lock.ErrLost) || !errors.Is(cause, mine) {
		t.Errorf("the cause is %v", cause)
	}
}

func TestEnter(t *testing.T) {
	var s strategy
	l, ctrl := granted(&s, 0, nil)
	ctx := l.Context(context.Background())
	again := lock.Options{Reentrant: true}
	for what, c := range map[string]struct {
		ctx   context.Context
		scope any
		name  string
		o     lock.Options
		is    error
	}{
		"a ctx that holds nothing": {context.Background(), &s, "job", again, nil},
		"another Locker":           {ctx, new(strategy), "job", again, nil},
		"another name":             {ctx, &s, "job2", again, nil},
		"not Reentrant":            {ctx, &s, "job", lock.Options{}, lock.ErrDeadlock},
		"the other mode":           {ctx, &s, "job", lock.Options{Reentrant: true, Shared: true}, lock.ErrDeadlock},
	} {
		if got, err := lock.Enter(c.ctx, c.scope, c.name, c.o); got != nil || !errors.Is(err, c.is) || (err == nil) != (c.is == nil) {
			t.Errorf("%s: %v, %v", what, got, err)
		}
	}
	inner, err := lock.Enter(ctx, &s, "job", again)
	if err != nil || inner == nil || inner.Token() != 7 || inner.Owner() != "me" {
		t.Fatalf("Enter: %v, %v", inner, err)
	}
	if err := l.ReleaseIn(ctx, nil); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("ReleaseIn without a transaction: %v", err)
	}
	if err := l.Release(ctx); err != nil || s.releases.Load() != 0 {
		t.Errorf("the first of two handles: %v, %d releases", err, s.releases.Load())
	}
	// The ctx came from the handle that was released; the other one does not make it
	// one that holds the lock.
	if got, err := lock.Enter(context.WithoutCancel(ctx), &s, "job", lock.Options{}); got != nil || err != nil {
		t.Errorf("the ctx of a handle that was released: %v, %v", got, err)
	}
	ctrl.Lose("stolen", nil)
	lost := context.WithoutCancel(inner.Context(context.Background()))
	if got, err := lock.Enter(lost, &s, "job", again); got != nil || !errors.Is(err, lock.ErrLost) {
		t.Errorf("a lost lock, Reentrant: %v, %v", got, err)
	}
	if got, err := lock.Enter(lost, &s, "job", lock.Options{}); got != nil || err != nil {
		t.Errorf("a lost lock: %v, %v", got, err)
	}
	if err := inner.Release(ctx); !errors.Is(err, lock.ErrLost) || s.releases.Load() != 1 {
		t.Errorf("the last handle of a lost lock: %v, %d releases", err, s.releases.Load())
	}
}

// Handles that come and go at once: one release, and it is the last thing.
func TestHandlesRace(t *testing.T) {
	for range 100 {
		var s strategy
		l, _ := granted(&s, time.Hour, nil)
		ctx := l.Context(context.Background())
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				inner, err := lock.Enter(ctx, &s, "job", lock.Options{Reentrant: true})
				if err != nil {
					t.Errorf("Enter: %v", err)
				}
				if inner == nil { // the outer one was faster
					return
				}
				if inner.Err() != nil || s.releases.Load() != 0 {
					t.Errorf("a handle of a lock that has ended: %v", inner.Err())
				}
				if err := inner.Release(ctx); err != nil {
					t.Errorf("Release: %v", err)
				}
			})
		}
		wg.Go(func() { _ = l.Release(ctx) })
		wg.Wait()
		if s.releases.Load() != 1 {
			t.Errorf("%d releases", s.releases.Load())
		}
	}
}
