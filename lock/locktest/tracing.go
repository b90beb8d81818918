package locktest

import (
	"slices"

	"github.com/sqlnative/locks/lock"
)

func traceTests() []test {
	return []test{
		{name: "Trace/Order", run: traceOrder},
		{name: "Trace/Loss", run: traceLoss},
		{name: "Trace/Both", run: traceBoth},
	}
}

// told says which events, in order; a renewal may come at any time.
func (c *check) told(e *events, l *lock.Lock, want ...string) {
	c.Helper()
	var got []string
	for _, ev := range e.all() {
		if ev.what == "Renewed" || ev.what == "RenewFailed" {
			continue
		}
		got = append(got, ev.what)
		if ev.Name != c.name {
			c.Errorf("%s names %q", ev.what, ev.Name)
		}
		if waits := ev.what == "Waiting" || ev.what == "Refused"; l != nil && !waits && ev.Token != l.Token() {
			c.Errorf("%s has token %d, the lock %d", ev.what, ev.Token, l.Token())
		}
	}
	if !slices.Equal(got, want) {
		c.Errorf("the events are %v, not %v", got, want)
	}
}

func traceOrder(c *check) {
	a, b := c.locker(), c.locker()
	var holder, trier, waiter events
	got := c.acquire(a, c.name, holder.option())
	c.told(&holder, got, "Acquired")

	_, err := b.Acquire(c.ctx(), c.name, lock.Try(), trier.option())
	c.told(&trier, nil, "Refused")
	if all := trier.all(); len(all) != 1 || all[0].Err != err {
		c.Errorf("Refused says %+v, Acquire %v", all, err)
	}

	answers := c.acquiring(c.ctx(), b, c.name, waiter.option())
	c.wait("it waits", func() bool { return len(waiter.all()) > 0 })
	c.told(&waiter, nil, "Waiting")
	c.is("Waiting", waiter.all()[0].Err, lock.ErrHeld)
	c.release(got)
	c.release(got) // is told once
	c.told(&holder, got, "Acquired", "Released")
	next := c.granted(answers)
	c.told(&waiter, next, "Waiting", "Acquired")
	if took := waiter.all()[1].Took; took <= 0 {
		c.Errorf("it took %v", took)
	}
	c.release(next)
	c.told(&waiter, next, "Waiting", "Acquired", "Released")
	if held := waiter.all()[2].Took; held <= 0 {
		c.Errorf("it was held for %v", held)
	}
}

func traceLoss(c *check) {
	var e events
	got := c.doomed(c.name, e.option())
	c.lost(got)
	c.wait("the loss is told", func() bool { return len(e.of("Lost")) > 0 })
	c.is("Lost", e.of("Lost")[0].Err, lock.ErrLost)
	_ = got.Release(c.ctx())
	if n := len(e.of("Lost")) + len(e.of("Released")); n != 1 {
		c.Errorf("after the release of a lost lock the events are %+v", e.all())
	}
}

// The Locker's own Trace is told, and Acquire's as well.
func traceBoth(c *check) {
	var own, its events
	l := c.locker(own.option())
	got := c.acquire(l, c.name, its.option())
	c.release(got)
	c.told(&own, got, "Acquired", "Released")
	c.told(&its, got, "Acquired", "Released")
}
