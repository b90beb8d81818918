package locktest

import (
	"context"
	"time"

	"github.com/sqlnative/locks/lock"
)

func boundTests() []test {
	return []test{
		{name: "AtMost/Ends", run: atMostEnds, need: func(s *Subject) bool { return s.AtMost }},
		{name: "AtMost/Shorter", run: atMostShorter, need: func(s *Subject) bool { return s.AtMost }},
		{name: "HoldAtLeast/Release", run: holdRelease, need: func(s *Subject) bool { return s.HoldAtLeast }},
		{name: "HoldAtLeast/Close", run: holdClose, need: func(s *Subject) bool { return s.HoldAtLeast }},
		{name: "HoldAtLeast/Longer", run: holdLonger, need: func(s *Subject) bool { return s.HoldAtLeast && s.NoRenew }},
	}
}

// AtMost ends a holder that lives and renews.
func atMostEnds(c *check) {
	ttl, most := 2*c.s.TTL, 3*c.s.TTL
	var e events
	begun := time.Now()
	got := c.acquire(c.locker(), c.name, lock.TTL(ttl), lock.AtMost(most), e.option())
	next := c.granted(c.acquiring(c.ctx(), c.locker(), c.name))
	lived := time.Since(begun)
	c.is("its holder, while another has it", got.Err(), lock.ErrLost)
	c.lost(got)
	if lived < most-20*time.Millisecond {
		c.Errorf("another got it after %v; AtMost was %v", lived, most)
	}
	if len(e.of("Renewed")) == 0 {
		c.Error("it was not renewed before")
	}
	c.is("Release", got.Release(c.ctx()), lock.ErrLost)
	c.alive(next)
	c.release(next)
}

// An AtMost that is shorter than the TTL shortens the first lease.
func atMostShorter(c *check) {
	got := c.acquire(c.locker(), c.name, lock.TTL(time.Hour), lock.AtMost(c.s.TTL))
	next := c.granted(c.acquiring(c.ctx(), c.locker(), c.name))
	c.is("its holder, while another has it", got.Err(), lock.ErrLost)
	c.release(next)
}

// HoldAtLeast survives the release.
func holdRelease(c *check) {
	a, b := c.locker(), c.locker()
	hold := 2 * c.s.TTL
	begun := time.Now()
	c.release(c.acquire(a, c.name, lock.HoldAtLeast(hold)))
	for _, l := range []lock.Locker{a, b} {
		if held := c.held(l, c.name); c.s.Holder && (held.Left <= 0 || held.Left > hold) {
			c.Errorf("%v are left of %v", held.Left, hold)
		}
	}
	next := c.granted(c.acquiring(c.ctx(), b, c.name))
	if took := time.Since(begun); took < hold-20*time.Millisecond {
		c.Errorf("it was held for %v, not %v", took, hold)
	}
	c.release(next)
	c.free(a, c.name) // the next one has not said it
}

// And the end of the process.
func holdClose(c *check) {
	a, b := c.s.New(c.TB), c.locker()
	hold := 2 * c.s.TTL
	begun := time.Now()
	c.acquire(a, c.name, lock.HoldAtLeast(hold))
	if err := a.Close(); err != nil {
		c.Errorf("Close: %v", err)
	}
	c.held(b, c.name)
	next := c.granted(c.acquiring(c.ctx(), b, c.name))
	if took := time.Since(begun); took < hold-20*time.Millisecond {
		c.Errorf("it was held for %v, not %v", took, hold)
	}
	c.release(next)
}

// A HoldAtLeast that is longer than the lease does not make the holder's trust
// longer.
func holdLonger(c *check) {
	a := c.locker()
	hold := 3 * c.s.TTL
	got := c.acquire(a, c.name, lock.TTL(c.s.TTL), lock.NoRenew(), lock.HoldAtLeast(hold))
	c.lost(got)
	c.held(a, c.name)
	if err := got.Release(context.Background()); err == nil {
		c.Error("a lock that was lost was released without a word")
	}
	c.held(a, c.name)
}
