package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/sqlnative/locks/lock"
)

func leaseTests() []test {
	return []test{
		{name: "Lease/Renewed", run: leaseRenewed},
		{name: "Lease/Fixed", run: leaseFixed, need: func(s *Subject) bool { return s.NoRenew }},
		{name: "Lease/Clock", run: leaseClock, need: func(s *Subject) bool { return s.NoRenew }},
		{name: "Lease/Context", run: leaseContext},
		{name: "Lease/Stolen", run: leaseStolen, need: func(s *Subject) bool { return s.Steal != nil }},
		{name: "Lease/Extend", run: leaseExtend, need: func(s *Subject) bool { return s.Extend && s.NoRenew }},
	}
}

// A holder that lives keeps its lock from who waits, for several TTLs.
func leaseRenewed(c *check) {
	var e events
	ttl := 2 * c.s.TTL
	got := c.acquire(c.locker(), c.name, lock.TTL(ttl), e.option())
	ctx := got.Context(context.Background())
	if next, err := c.locker().Acquire(c.ctx(), c.name, lock.Wait(2*ttl+ttl/2)); err == nil {
		_ = next.Release(context.Background())
		c.Fatalf("the lock was granted to another while its holder lives; it says: %v", got.Err())
	} else {
		c.is("waiting for a lock that is renewed", err, lock.ErrHeld)
	}
	c.alive(got)
	if ctx.Err() != nil {
		c.Errorf("its ctx has ended: %v", context.Cause(ctx))
	}
	if n := len(e.of("Renewed")); n < 3 {
		c.Errorf("it was renewed %d times in two and a half TTLs", n)
	}
	c.release(got)
}

// A lease that is not renewed ends, for its holder before it does for others.
func leaseFixed(c *check) {
	var e events
	begun := time.Now()
	got := c.acquire(c.locker(), c.name, lock.TTL(c.s.TTL), lock.NoRenew(), e.option())
	c.lost(got)
	if lived := time.Since(begun); lived < c.s.TTL-lock.Margin(c.s.TTL) {
		c.Errorf("it lived %v of %v", lived, c.s.TTL)
	}
	if n := len(e.of("Renewed")) + len(e.of("RenewFailed")); n > 0 {
		c.Errorf("%d renewals of a lock with NoRenew", n)
	}
	c.is("Release", got.Release(c.ctx()), lock.ErrLost)
	c.free(c.locker(), c.name)
}

// Err looks at the clock: no later than when the lease can no longer be trusted it
// says so.
func leaseClock(c *check) {
	l := c.locker()
	for range 2 {
		got := c.acquire(l, c.name, lock.TTL(c.s.TTL), lock.NoRenew())
		time.Sleep(time.Until(lock.TrustedUntil(time.Now(), c.s.TTL)))
		c.is("Err at the end of the trust", got.Err(), lock.ErrLost)
		_ = got.Release(c.ctx())
	}
}

// Its ctx ends with the parent, with the loss, and with the release, each with its
// cause.
func leaseContext(c *check) {
	l := c.locker()
	got := c.acquire(l, c.name)
	mine := errors.New("mine")
	parent, cancel := context.WithCancelCause(context.Background())
	ctx, lasting := got.Context(parent), got.Context(context.Background())
	cancel(mine)
	<-ctx.Done()
	if cause := context.Cause(ctx); cause != mine || lasting.Err() != nil || got.Err() != nil {
		c.Errorf("parent has ended: the cause is %v, the other ctx says %v, the lock %v", cause, lasting.Err(), got.Err())
	}
	c.release(got)
	select {
	case <-lasting.Done():
	case <-time.After(c.patience):
		c.Fatal("the ctx did not end with the release")
	}
	if cause := context.Cause(lasting); !errors.Is(cause, lock.ErrReleased) || errors.Is(cause, lock.ErrLost) {
		c.Errorf("released: the cause is %v", cause)
	}
	late := got.Context(context.Background())
	<-late.Done()
	c.is("a ctx of a released lock", context.Cause(late), lock.ErrReleased)

	doomed := c.doomed(c.name)
	ctx = doomed.Context(context.Background())
	c.lost(doomed)
	select {
	case <-ctx.Done():
	case <-time.After(c.patience):
		c.Fatal("the ctx did not end with the loss")
	}
	var lost *lock.LostError
	if cause := context.Cause(ctx); !errors.As(cause, &lost) || lost.Name != c.name || lost.Token != doomed.Token() {
		c.Errorf("lost: the cause is %v", cause)
	}
	c.is("a ctx of a lost lock", ctx.Err(), context.Canceled)
}

// A lock that was taken away is found out with the next renewal.
func leaseStolen(c *check) {
	var e events
	got := c.acquire(c.locker(), c.name, lock.TTL(3*c.s.TTL), e.option())
	next := c.locker()
	c.s.Steal(c.TB, c.name, got.Token())
	succ := c.acquire(next, c.name)
	c.lost(got)
	c.wait("the Trace is told", func() bool { return len(e.of("Lost")) == 1 })
	c.is("Release of a lock that was taken away", got.Release(c.ctx()), lock.ErrLost)
	c.alive(succ)
	c.held(next, c.name)
	c.release(succ)

	// And by a release that comes before the next renewal.
	got = c.acquire(c.locker(), c.name)
	c.s.Steal(c.TB, c.name, got.Token())
	succ = c.acquire(next, c.name)
	for range 2 {
		c.is("Release of a lock that was taken away", got.Release(c.ctx()), lock.ErrLost)
	}
	c.alive(succ)
	c.held(next, c.name)
	c.release(succ)
}

// Extend makes a lease longer, or shorter, from now.
func leaseExtend(c *check) {
	a, b := c.locker(), c.locker()
	got := c.acquire(a, c.name, lock.TTL(c.s.TTL), lock.NoRenew())
	if err := got.Extend(c.ctx(), time.Minute); err != nil {
		c.Fatalf("Extend: %v", err)
	}
	for _, d := range []time.Duration{-1, 0, lock.MinTTL - 1, 1<<63 - 1} {
		c.is("Extend by "+d.String(), got.Extend(c.ctx(), d), lock.ErrInvalid)
	}
	time.Sleep(c.s.TTL + 20*time.Millisecond)
	c.alive(got)
	if held := c.held(b, c.name); c.s.Holder && held.Left < 30*time.Second {
		c.Errorf("after Extend(1m) %v are left", held.Left)
	}
	if err := got.Extend(c.ctx(), c.s.TTL); err != nil {
		c.Fatalf("Extend: %v", err)
	}
	next := c.granted(c.acquiring(c.ctx(), b, c.name))
	c.is("Extend of a lost lock", got.Extend(c.ctx(), time.Minute), lock.ErrLost)
	c.alive(next)
	c.release(next)
	c.is("Extend of a released lock", next.Extend(c.ctx(), time.Minute), lock.ErrReleased)

	// A renewed lock goes on being renewed.
	var e events
	got = c.acquire(a, c.name, lock.TTL(time.Minute), e.option())
	if err := got.Extend(c.ctx(), 2*c.s.TTL); err != nil {
		c.Fatalf("Extend: %v", err)
	}
	c.wait("it is renewed", func() bool { return len(e.of("Renewed")) > 1 })
	c.alive(got)
	c.release(got)
}
