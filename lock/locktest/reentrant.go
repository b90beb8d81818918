package locktest

import (
	"context"
	"errors"

	"github.com/sqlnative/locks/lock"
)

func reentrantTests() []test {
	return []test{
		{name: "Reentrant/Deadlock", run: reentrantDeadlock},
		{name: "Reentrant/Counts", run: reentrantCounts},
		{name: "Reentrant/Lost", run: reentrantLost},
		{name: "Reentrant/Released", run: reentrantReleased},
	}
}

// Waiting for oneself is an error at once; for others it is not.
func reentrantDeadlock(c *check) {
	a, b := c.locker(), c.locker()
	outer := c.acquire(a, c.name)
	other := c.acquire(a, c.name+" other")
	ctx := other.Context(outer.Context(c.ctx())) // two locks deep
	for _, opts := range [][]lock.Option{nil, {lock.Try()}, {lock.Wait(1)}} {
		_, err := a.Acquire(ctx, c.name, opts...)
		c.is("Acquire of what ctx holds", err, lock.ErrDeadlock)
		if errors.Is(err, lock.ErrHeld) {
			c.Errorf("it matches ErrHeld too: %v", err)
		}
	}
	// Another process does not know this ctx.
	for _, opt := range []lock.Option{lock.Try(), lock.Reentrant()} {
		_, err := b.Acquire(ctx, c.name, opt, lock.Try())
		if c.is("another Locker", err, lock.ErrHeld); errors.Is(err, lock.ErrDeadlock) {
			c.Errorf("another Locker: %v", err)
		}
	}
	// A ctx that holds nothing is nobody's.
	c.held(a, c.name)
	third, err := a.Acquire(ctx, c.name+" third")
	if err != nil {
		c.Fatalf("another name: %v", err)
	}
	c.release(third)
	c.release(other)
	c.release(outer)
}

// Reentrant counts handles; the lock is released with the last one, in whatever
// order.
func reentrantCounts(c *check) {
	a, b := c.locker(), c.locker()
	for _, innerFirst := range []bool{true, false} {
		outer := c.acquire(a, c.name)
		ctx := outer.Context(c.ctx())
		inner, err := a.Acquire(ctx, c.name, lock.Reentrant())
		if err != nil {
			c.Fatalf("Reentrant: %v", err)
		}
		if inner == outer || inner.Token() != outer.Token() || inner.Owner() != outer.Owner() || inner.Name() != c.name {
			c.Errorf("the second handle has token %d, the first one %d", inner.Token(), outer.Token())
		}
		innermost, err := a.Acquire(inner.Context(ctx), c.name, lock.Reentrant(), lock.Try())
		if err != nil {
			c.Fatalf("Reentrant, once more: %v", err)
		}
		c.release(innermost)
		c.release(innermost) // counts once
		first, second := outer, inner
		if innerFirst {
			first, second = inner, outer
		}
		c.release(first)
		c.release(first)
		c.is("Err of the handle that was released", first.Err(), lock.ErrReleased)
		c.alive(second)
		select {
		case <-first.Done():
		default:
			c.Error("Done of the handle that was released is not closed")
		}
		c.held(b, c.name)
		c.release(second)
		c.release(c.acquire(b, c.name, lock.Try()))
	}
}

// A lost lock is never re-entered.
func reentrantLost(c *check) {
	l := c.locker()
	got := c.acquire(l, c.name, c.shortLease(l)...)
	ctx := got.Context(c.ctx())
	inner, err := l.Acquire(ctx, c.name, lock.Reentrant())
	if err != nil {
		c.Fatalf("Reentrant: %v", err)
	}
	c.lost(got)
	c.lost(inner)
	if again, err := l.Acquire(ctx, c.name, lock.Reentrant()); err == nil {
		c.Fatalf("the ctx of a lost lock got %v", again)
	}
	_, err = l.Acquire(context.WithoutCancel(ctx), c.name, lock.Reentrant())
	c.is("Reentrant of a lost lock", err, lock.ErrLost)
	for _, handle := range []*lock.Lock{inner, got} {
		c.is("Release", handle.Release(c.ctx()), lock.ErrLost)
	}
	c.free(c.locker(), c.name)
}

// shortLease are the options of a lock that is going to be lost; if need be, the
// Locker is cut off once the lock is held.
func (c *check) shortLease(l lock.Locker) []lock.Option {
	c.Helper()
	opts := []lock.Option{lock.TTL(c.s.TTL)}
	if c.s.NoRenew {
		return append(opts, lock.NoRenew())
	}
	if len(c.s.Faults) == 0 {
		c.Fatal("the Subject has neither NoRenew nor a fault: no lock can be lost")
	}
	return append(opts, lock.WithTrace(&lock.Trace{Acquired: func(lock.Event) { c.Cleanup(c.s.Faults[0].Break(c.TB, l)) }}))
}

// A ctx whose lock was released holds nothing any more.
func reentrantReleased(c *check) {
	a := c.locker()
	got := c.acquire(a, c.name)
	ctx := context.WithoutCancel(got.Context(context.Background()))
	c.release(got)
	for _, opts := range [][]lock.Option{{lock.Try()}, {lock.Try(), lock.Reentrant()}} {
		again, err := a.Acquire(ctx, c.name, opts...)
		if err != nil {
			c.Fatalf("the ctx of a lock that was released: %v", err)
		}
		if c.s.Token && again.Token() <= got.Token() {
			c.Errorf("token %d after %d", again.Token(), got.Token())
		}
		c.release(again)
	}
}
