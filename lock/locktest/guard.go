package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/sqlnative/locks/lock"
)

func guardTests() []test {
	guard := func(s *Subject) bool { return s.Guard }
	return []test{
		{name: "Guard/Pins", run: guardPins, need: func(s *Subject) bool { return s.Guard && s.NoRenew }},
		{name: "Guard/Lost", run: guardLost, need: func(s *Subject) bool { return s.Guard && s.Steal != nil }},
		{name: "Guard/Ended", run: guardEnded, need: guard},
		{name: "ReleaseIn/Commit", run: releaseInCommit, need: guard},
		{name: "ReleaseIn/Rollback", run: releaseInRollback, need: func(s *Subject) bool { return s.Guard && s.NoRenew }},
		{name: "ReleaseIn/Handles", run: releaseInHandles, need: guard},
	}
}

// kept says that a lock cannot be had while a transaction is at it.
func (c *check) kept(l lock.Locker, name string) {
	c.Helper()
	ctx := c.ctx()
	if c.s.GuardBlocks {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 300*time.Millisecond)
		defer cancel()
	}
	got, err := l.Acquire(ctx, name, lock.Try())
	if err == nil {
		_ = got.Release(context.Background())
		c.Fatal("the lock was granted, though a transaction has it")
	}
	if !c.s.GuardBlocks {
		c.is("a lock that a transaction has", err, lock.ErrHeld)
	}
}

// A guard keeps the lock from others until its transaction ends, long after the
// lease has run out. Without one they have it: the control.
func guardPins(c *check) {
	b := c.locker()
	for _, round := range []struct{ pinned, commits bool }{{false, true}, {true, true}, {true, false}} {
		got := c.doomed(c.name)
		tx, commit, rollback := c.s.Begin(c.TB)
		defer func() { _ = rollback() }()
		if round.pinned {
			if err := got.Guard(c.ctx(), tx); err != nil {
				c.Fatalf("Guard: %v", err)
			}
		}
		c.lost(got)
		time.Sleep(c.s.TTL/2 + lock.Margin(c.s.TTL)) // others may have it now
		if round.pinned {
			c.kept(b, c.name)
		} else if !c.s.GuardBlocks {
			c.release(c.acquire(b, c.name))
		}
		end := rollback
		if round.commits {
			end = commit
		}
		if err := end(); err != nil {
			c.Fatalf("the end of the transaction: %v", err)
		}
		c.free(b, c.name)
		c.is("Guard after the loss", got.Guard(c.ctx(), tx), lock.ErrLost)
		c.is("Release after the loss", got.Release(c.ctx()), lock.ErrLost)
	}
}

// A holder that still trusts its lease, and has lost it, is refused.
func guardLost(c *check) {
	b := c.locker()
	for _, taken := range []bool{false, true} {
		var e events
		got := c.acquire(c.locker(), c.name, lock.TTL(time.Hour), e.option())
		c.s.Steal(c.TB, c.name, got.Token())
		if taken {
			next := c.acquire(b, c.name)
			defer c.release(next)
			defer c.alive(next)
		}
		c.alive(got) // it does not know
		tx, _, rollback := c.s.Begin(c.TB)
		defer func() { _ = rollback() }()
		err := got.Guard(c.ctx(), tx)
		var lost *lock.LostError
		if !errors.As(err, &lost) || lost.Name != c.name || lost.Token != got.Token() {
			c.Fatalf("Guard of a lock that was taken away: %v", err)
		}
		c.is("Err after that", got.Err(), lock.ErrLost)
		c.lost(got)
		if n := len(e.of("Lost")); n != 1 {
			c.Errorf("the Trace was told of %d losses", n)
		}
		c.is("ReleaseIn of a lost lock", got.ReleaseIn(c.ctx(), tx), lock.ErrLost)
		_ = rollback()
		c.is("Release of a lost lock", got.Release(c.ctx()), lock.ErrLost)
	}
}

func guardEnded(c *check) {
	got := c.acquire(c.locker(), c.name)
	tx, commit, rollback := c.s.Begin(c.TB)
	defer func() { _ = rollback() }()
	for range 2 { // as often as one likes
		if err := got.Guard(c.ctx(), tx); err != nil {
			c.Fatalf("Guard: %v", err)
		}
	}
	if err := commit(); err != nil {
		c.Fatalf("Commit: %v", err)
	}
	c.alive(got)
	c.release(got)
	tx, _, rollback = c.s.Begin(c.TB)
	defer func() { _ = rollback() }()
	c.is("Guard of a lock that was released", got.Guard(c.ctx(), tx), lock.ErrReleased)
	c.is("ReleaseIn of a lock that was released", got.ReleaseIn(c.ctx(), tx), lock.ErrReleased)
}

// The release is there with the commit, and not before.
func releaseInCommit(c *check) {
	b := c.locker()
	var e events
	got := c.acquire(c.locker(lock.TTL(time.Hour)), c.name, e.option())
	tx, commit, rollback := c.s.Begin(c.TB)
	defer func() { _ = rollback() }()
	if err := got.Guard(c.ctx(), tx); err != nil {
		c.Fatalf("Guard: %v", err)
	}
	if err := got.ReleaseIn(c.ctx(), tx); err != nil {
		c.Fatalf("ReleaseIn: %v", err)
	}
	c.is("Err after ReleaseIn", got.Err(), lock.ErrReleased)
	c.kept(b, c.name)
	c.release(got) // does nothing any more
	c.kept(b, c.name)
	if err := commit(); err != nil {
		c.Fatalf("Commit: %v", err)
	}
	if c.s.GuardBlocks {
		c.free(b, c.name) // what waited in the database may be before us
	} else {
		c.release(c.acquire(b, c.name, lock.Try()))
	}
	c.told(&e, got, "Acquired", "Released")
}

// A rollback takes the release back: the lock is left to its TTL.
func releaseInRollback(c *check) {
	b := c.locker()
	begun := time.Now()
	ttl := 3 * c.s.TTL
	got := c.acquire(c.locker(), c.name, lock.TTL(ttl), lock.NoRenew())
	tx, _, rollback := c.s.Begin(c.TB)
	if err := got.ReleaseIn(c.ctx(), tx); err != nil {
		c.Fatalf("ReleaseIn: %v", err)
	}
	if err := rollback(); err != nil {
		c.Fatalf("Rollback: %v", err)
	}
	c.is("Err after ReleaseIn", got.Err(), lock.ErrReleased)
	next := c.granted(c.acquiring(c.ctx(), b, c.name))
	if took := time.Since(begun); took < ttl-20*time.Millisecond {
		c.Errorf("another got it after %v of a TTL of %v", took, ttl)
	}
	c.release(next)
}

// It is not the only handle's to release.
func releaseInHandles(c *check) {
	a := c.locker()
	got := c.acquire(a, c.name)
	inner, err := a.Acquire(got.Context(c.ctx()), c.name, lock.Reentrant())
	if err != nil {
		c.Fatalf("Reentrant: %v", err)
	}
	tx, commit, rollback := c.s.Begin(c.TB)
	defer func() { _ = rollback() }()
	for _, l := range []*lock.Lock{got, inner} {
		c.is("ReleaseIn of one of two handles", l.ReleaseIn(c.ctx(), tx), lock.ErrInvalid)
	}
	c.release(inner)
	if err := got.ReleaseIn(c.ctx(), tx); err != nil {
		c.Errorf("ReleaseIn of the last handle: %v", err)
	}
	if err := commit(); err != nil {
		c.Errorf("Commit: %v", err)
	}
	c.release(c.acquire(a, c.name, lock.Try()))
}
