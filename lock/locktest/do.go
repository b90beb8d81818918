package locktest

import (
	"context"
	"errors"
	"time"

	"github.com/sqlnative/locks/lock"
)

func doTests() []test {
	return []test{
		{name: "Do/Returns", run: doReturns},
		{name: "Do/Lost", run: doLost},
		{name: "Do/Panic", run: doPanic},
		{name: "Do/NotHad", run: doNotHad},
		{name: "Do/Wrap", run: doWrap},
		{name: "Do/With", run: doWith},
	}
}

func doReturns(c *check) {
	a, b := c.locker(), c.locker()
	mine := errors.New("mine")
	for _, want := range []error{nil, mine} {
		var inside context.Context
		err := lock.Do(c.ctx(), a, c.name, func(ctx context.Context, l *lock.Lock) error {
			inside = ctx
			c.alive(l)
			c.held(b, c.name)
			return want
		})
		if err != want {
			c.Errorf("fn returned %v, Do %v", want, err)
		}
		<-inside.Done()
		c.is("fn's ctx afterwards", context.Cause(inside), lock.ErrReleased)
		c.release(c.acquire(b, c.name, lock.Try()))
	}
	// fn may release it itself, and its ctx may have ended.
	ctx, cancel := context.WithCancel(c.ctx())
	err := lock.Do(ctx, a, c.name, func(_ context.Context, l *lock.Lock) error {
		cancel()
		return l.Release(ctx)
	})
	if err != nil {
		c.Errorf("fn released it: %v", err)
	}
	c.release(c.acquire(b, c.name, lock.Try()))
}

// A loss ends fn's ctx, and is joined to fn's error.
func doLost(c *check) {
	mine := errors.New("mine")
	for name, fn := range map[string]func(ctx context.Context) error{
		"nil":       func(context.Context) error { return nil },
		"its own":   func(context.Context) error { return mine },
		"the cause": context.Cause,
	} {
		l := c.locker()
		var want error
		err := lock.Do(c.ctx(), l, c.name+name, func(ctx context.Context, _ *lock.Lock) error {
			select {
			case <-ctx.Done():
			case <-time.After(c.patience):
				return errors.New("fn's ctx did not end")
			}
			c.is("the cause", context.Cause(ctx), lock.ErrLost)
			want = fn(ctx)
			return want
		}, c.shortLease(l)...)
		c.is("Do, fn returned "+name, err, lock.ErrLost)
		if want != nil {
			c.is("Do, fn returned "+name, err, want)
		}
	}
}

// A panic goes on, after the release.
func doPanic(c *check) {
	a := c.locker()
	func() {
		defer func() {
			if p := recover(); p != "mine" {
				c.Errorf("recovered %v", p)
			}
		}()
		_ = lock.Do(c.ctx(), a, c.name, func(context.Context, *lock.Lock) error { panic("mine") })
	}()
	c.release(c.acquire(c.locker(), c.name, lock.Try()))
}

func doNotHad(c *check) {
	a, b := c.locker(), c.locker()
	got := c.acquire(a, c.name)
	err := lock.Do(c.ctx(), b, c.name, func(context.Context, *lock.Lock) error {
		c.Error("fn was run without the lock")
		return nil
	}, lock.Try())
	c.is("Do of a lock that is held", err, lock.ErrHeld)
	c.release(got)
}

// Wrap takes the name from the argument.
func doWrap(c *check) {
	a, b := c.locker(), c.locker()
	ran := ""
	f := lock.Wrap(a, func(key string) string { return lock.Name(c.name, key) }, func(ctx context.Context, key string) error {
		ran += key
		c.held(b, lock.Name(c.name, key))
		c.release(c.acquire(b, lock.Name(c.name, "free"), lock.Try()))
		_, err := a.Acquire(ctx, lock.Name(c.name, key))
		c.is("Acquire under fn's ctx", err, lock.ErrDeadlock)
		return nil
	}, lock.Try())
	for _, key := range []string{"x", "y"} {
		if err := f(c.ctx(), key); err != nil {
			c.Errorf("the wrapped function: %v", err)
		}
	}
	got := c.acquire(b, lock.Name(c.name, "x"))
	c.is("the wrapped function, while another has x", f(c.ctx(), "x"), lock.ErrHeld)
	c.release(got)
	if ran != "xy" {
		c.Errorf("it ran with %q", ran)
	}
}

// With gives options that an Acquire's own override.
func doWith(c *check) {
	a := c.locker(lock.TTL(time.Hour), lock.Wait(time.Hour))
	got := c.acquire(a, c.name, lock.TTL(time.Minute), lock.Label("its own"))
	b := lock.With(c.locker(), lock.Try(), lock.Label("of With"))
	if held := c.held(a, c.name); c.s.Holder && (held.Left > time.Minute || held.Holder.Label != "its own") {
		c.Errorf("Acquire's own options do not override the Locker's: %+v", held)
	}
	begun := time.Now()
	_, err := b.Acquire(c.ctx(), c.name)
	c.is("With(Try())", err, lock.ErrHeld)
	_, err = b.Acquire(c.ctx(), c.name, lock.Wait(100*time.Millisecond))
	if c.is("Wait over With(Try())", err, lock.ErrHeld); time.Since(begun) < 100*time.Millisecond {
		c.Error("Acquire's own option does not override With's")
	}
	c.release(got)
	got = c.acquire(b, c.name)
	if held := c.held(a, c.name); c.s.Holder && held.Holder.Label != "of With" {
		c.Errorf("the holder is %v", held.Holder)
	}
	c.release(got)
}
