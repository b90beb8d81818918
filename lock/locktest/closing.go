package locktest

import (
	"context"
	"time"

	"github.com/sqlnative/locks/lock"
)

func closeTests() []test {
	return []test{
		{name: "Close/Releases", run: closeReleases},
		{name: "Close/Waiters", run: closeWaiters},
		{name: "Close/Racing", run: closeRacing},
	}
}

// Close releases what is held, and its holders see that.
func closeReleases(c *check) {
	a, b := c.s.New(c.TB, lock.TTL(time.Hour)), c.locker()
	var names []string
	var all []*lock.Lock
	for _, n := range []string{"1", "2", "3"} {
		names = append(names, c.name+n)
		all = append(all, c.acquire(a, c.name+n))
	}
	ctx := all[0].Context(context.Background())
	for range 2 {
		if err := a.Close(); err != nil {
			c.Errorf("Close: %v", err)
		}
	}
	<-ctx.Done()
	c.is("the cause", context.Cause(ctx), lock.ErrReleased)
	for i, l := range all {
		c.is("Err after Close", l.Err(), lock.ErrReleased)
		c.release(l) // once more, which does nothing
		c.release(c.acquire(b, names[i], lock.Try()))
	}
	for _, opts := range [][]lock.Option{nil, {lock.Try()}, {lock.Wait(time.Minute)}} {
		_, err := a.Acquire(c.ctx(), c.name, opts...)
		c.is("Acquire after Close", err, lock.ErrClosed)
	}
}

// Those who wait are told, at the head of the line and behind.
func closeWaiters(c *check) {
	a, b := c.locker(), c.s.New(c.TB)
	got := c.acquire(a, c.name)
	var e events
	first := c.acquiring(c.ctx(), b, c.name, e.option())
	c.wait("the first one waits", func() bool { return len(e.of("Waiting")) > 0 })
	second := c.acquiring(c.ctx(), b, c.name)
	time.Sleep(20 * time.Millisecond) // it need not wait by now: it is told in any case
	if err := b.Close(); err != nil {
		c.Errorf("Close: %v", err)
	}
	for _, answers := range []<-chan answer{first, second} {
		c.is("a waiter after Close", c.answer(answers).err, lock.ErrClosed)
	}
	c.alive(got)
	c.release(got)
	c.free(a, c.name)
}

// An Acquire that meets Close ends with a lock that is released, or with ErrClosed.
func closeRacing(c *check) {
	b := c.locker()
	for i := range 10 {
		a := c.s.New(c.TB, lock.TTL(time.Hour))
		answers := c.acquiring(c.ctx(), a, c.name)
		time.Sleep(time.Duration(i) * 200 * time.Microsecond)
		if err := a.Close(); err != nil {
			c.Errorf("Close: %v", err)
		}
		switch ans := c.answer(answers); {
		case ans.err != nil:
			c.is("an Acquire that met Close", ans.err, lock.ErrClosed)
		default:
			c.is("Err of a lock of a Locker that is closed", ans.l.Err(), lock.ErrReleased)
		}
		c.free(b, c.name)
	}
}
