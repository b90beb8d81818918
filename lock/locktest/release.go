package locktest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sqlnative/locks/lock"
)

func releaseTests() []test {
	return []test{
		{name: "Release/Twice", run: releaseTwice},
		{name: "Release/Cancelled", run: releaseCancelled},
		{name: "Release/AfterLoss", run: releaseAfterLoss},
		{name: "Release/Expired", run: releaseExpired, need: func(s *Subject) bool { return s.NoRenew }},
	}
}

// Release is safe to call twice, also at once.
func releaseTwice(c *check) {
	a, b := c.locker(), c.locker()
	got := c.acquire(a, c.name)
	c.release(got)
	c.release(got)
	c.is("Err", got.Err(), lock.ErrReleased)
	select {
	case <-got.Done():
	default:
		c.Error("Done is not closed")
	}
	next := c.acquire(b, c.name, lock.Try())
	c.release(got)
	c.held(a, c.name) // the second release has not touched the successor

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			if err := next.Release(context.Background()); err != nil {
				c.Errorf("eight at once: %v", err)
			}
		})
	}
	wg.Wait()
	c.free(a, c.name)
}

// Release works when ctx has ended.
func releaseCancelled(c *check) {
	got := c.acquire(c.locker(lock.TTL(time.Hour)), c.name)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := got.Release(ctx); err != nil {
		c.Errorf("Release under a ctx that has ended: %v", err)
	}
	c.release(c.acquire(c.locker(), c.name, lock.Try()))
}

// A release after the loss says so, each time, and does not touch the successor.
func releaseAfterLoss(c *check) {
	b := c.locker()
	got := c.doomed(c.name)
	next := c.granted(c.acquiring(c.ctx(), b, c.name))
	for range 2 {
		err := got.Release(c.ctx())
		var lost *lock.LostError
		if !errors.As(err, &lost) || lost.Name != c.name {
			c.Fatalf("Release after the loss: %v", err)
		}
	}
	c.is("Err", got.Err(), lock.ErrLost)
	c.alive(next)
	if held := c.held(b, c.name); c.s.Holder && held.Token != next.Token() {
		c.Errorf("the row has token %d, not the successor's %d", held.Token, next.Token())
	}
	c.release(next)
}

// A lock whose trust has run out, but that nobody has taken, is free at once.
func releaseExpired(c *check) {
	const ttl = 4 * time.Second // the margin is 400 ms
	got := c.acquire(c.locker(), c.name, lock.TTL(ttl), lock.NoRenew())
	if c.s.Extend {
		if err := got.Extend(c.ctx(), c.s.TTL); err != nil {
			c.Fatalf("Extend: %v", err)
		}
	}
	c.lost(got)
	c.is("Release", got.Release(c.ctx()), lock.ErrLost)
	c.release(c.acquire(c.locker(), c.name, lock.Try()))
}
