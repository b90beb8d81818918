package locktest

import (
	"context"

	"github.com/sqlnative/locks/lock"
)

func tokenTests() []test {
	return []test{{name: "Token/Grows", run: tokenGrows, need: func(s *Subject) bool { return s.Token }}}
}

// Through release, expiry and the end of a process.
func tokenGrows(c *check) {
	b := c.locker()
	var last int64
	seen := func(l *lock.Lock, after string) {
		c.Helper()
		if l.Token() <= last {
			c.Errorf("after %s the token is %d; it was %d before", after, l.Token(), last)
		}
		if l.Owner() == "" {
			c.Error("the owner is empty")
		}
		last = l.Token()
	}
	got := c.acquire(b, c.name)
	seen(got, "the first touch")
	c.release(got)
	got = c.acquire(b, c.name)
	seen(got, "a release")
	c.release(got)

	a := c.s.New(c.TB)
	seen(c.acquire(a, c.name), "a release by another Locker")
	if err := a.Close(); err != nil {
		c.Errorf("Close: %v", err)
	}
	seen(c.doomed(c.name), "Close")
	got = c.granted(c.acquiring(c.ctx(), b, c.name))
	seen(got, "expiry")
	c.release(got)
	if c.s.Steal != nil {
		got = c.acquire(b, c.name)
		seen(got, "a release")
		c.s.Steal(c.TB, c.name, got.Token())
		next := c.acquire(b, c.name)
		seen(next, "a forced release")
		_ = got.Release(context.Background())
		c.release(next)
	}
}

func sharedTests() []test {
	return []test{{name: "Shared/Together", run: sharedTogether, need: func(s *Subject) bool { return s.Shared }}}
}

// Readers together, a writer alone.
func sharedTogether(c *check) {
	a, b := c.locker(), c.locker()
	one := c.acquire(a, c.name, lock.Shared())
	two := c.acquire(a, c.name, lock.Shared(), lock.Try())
	three := c.acquire(b, c.name, lock.Shared(), lock.Try())
	c.held(a, c.name)
	c.held(b, c.name)
	_, err := a.Acquire(one.Context(c.ctx()), c.name, lock.Reentrant())
	c.is("the other mode of what ctx holds", err, lock.ErrDeadlock)
	again, err := a.Acquire(one.Context(c.ctx()), c.name, lock.Reentrant(), lock.Shared())
	if err != nil {
		c.Fatalf("the same mode of what ctx holds: %v", err)
	}
	writer := c.acquiring(c.ctx(), b, c.name)
	for _, l := range []*lock.Lock{one, two, three} {
		c.release(l)
	}
	select {
	case <-writer:
		c.Fatal("a writer got in beside a reader")
	default:
	}
	c.alive(again)
	c.release(again)
	alone := c.granted(writer)
	c.held(a, c.name, lock.Shared())
	c.release(alone)
	c.release(c.acquire(a, c.name, lock.Shared(), lock.Try()))
}
