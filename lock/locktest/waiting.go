package locktest

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"time"

	"github.com/sqlnative/locks/lock"
)

func waitingTests() []test {
	return []test{
		{name: "Waiting/Try", run: waitingTry},
		{name: "Waiting/Wait", run: waitingWait},
		{name: "Waiting/Context", run: waitingContext},
		{name: "Waiting/Done", run: waitingDone},
		{name: "Waiting/CancelledAtRandom", run: waitingCancelledAtRandom},
		{name: "Waiting/Order", run: waitingOrder},
		{name: "Waiting/HandedOver", run: waitingHandedOver},
		{name: "Waiting/Expiry", run: waitingExpiry},
	}
}

func waitingTry(c *check) {
	a, b := c.locker(lock.TTL(time.Minute)), c.locker()
	got := c.acquire(a, c.name, lock.Label("its label"))
	if got.Name() != c.name {
		c.Errorf("the lock is named %q", got.Name())
	}
	for _, l := range []lock.Locker{a, b} {
		begun := time.Now()
		held := c.held(l, c.name)
		if held.Name != c.name || held.Err != nil || held.Waited > time.Since(begun) {
			c.Errorf("the answer is %+v", held)
		}
		if !c.s.Holder {
			continue
		}
		if held.Holder.Label != "its label" || held.Holder.PID != os.Getpid() || held.Token != got.Token() {
			c.Errorf("the holder is %v with token %d, not %d", held.Holder, held.Token, got.Token())
		}
		if held.Since.IsZero() || held.Left <= 0 || held.Left > time.Minute {
			c.Errorf("held since %v, left %v", held.Since, held.Left)
		}
	}
	c.release(got)
	if got, err := b.Acquire(c.ctx(), c.name, lock.Try()); err != nil {
		c.Errorf("a lock that was released: %v", err)
	} else {
		c.release(got)
	}
}

func waitingWait(c *check) {
	a, b := c.locker(), c.locker()
	c.release(c.acquire(b, c.name)) // it has its connection: what is measured is the waiting
	got := c.acquire(a, c.name)
	const d = 150 * time.Millisecond
	for _, l := range []lock.Locker{a, b} {
		begun := time.Now()
		_, err := l.Acquire(c.ctx(), c.name, lock.Wait(d))
		took := time.Since(begun)
		var held *lock.HeldError
		if !errors.As(err, &held) || held.Err != nil || held.Name != c.name {
			c.Fatalf("the answer is %v", err)
		}
		if took < d || held.Waited < d || held.Waited > took || took > c.patience/4 {
			c.Errorf("it took %v, and says that it waited %v; Wait was %v", took, held.Waited, d)
		}
		if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
			c.Errorf("no ctx ended it, but it says: %v", err)
		}
	}
	c.release(got)
}

// A ctx that ends while the lock is waited for, at the head of the line and behind.
func waitingContext(c *check) {
	a, b := c.locker(), c.locker()
	got := c.acquire(a, c.name)
	for _, want := range []error{context.Canceled, context.DeadlineExceeded} {
		ctx, cancel := context.WithCancel(context.Background())
		if want == context.DeadlineExceeded {
			ctx, cancel = context.WithTimeout(context.Background(), 2*c.s.TTL)
		}
		defer cancel()
		var e events
		first, second := c.acquiring(ctx, b, c.name, e.option()), c.acquiring(ctx, b, c.name, e.option())
		c.wait("one of them waits", func() bool { return len(e.of("Waiting")) > 0 || ctx.Err() != nil })
		seen := len(e.of("Waiting")) > 0 // else the database has not said yet that the lock is held
		if want == context.Canceled {
			time.Sleep(50 * time.Millisecond)
			cancel()
		}
		for _, answers := range []<-chan answer{first, second} {
			ans := c.answer(answers)
			c.is("after ctx has ended", ans.err, want)
			if other := map[error]error{context.Canceled: context.DeadlineExceeded, context.DeadlineExceeded: context.Canceled}[want]; errors.Is(ans.err, other) {
				c.Errorf("it also matches %v: %v", other, ans.err)
			}
			var held *lock.HeldError
			if seen && (!errors.As(ans.err, &held) || !errors.Is(ans.err, lock.ErrHeld) || held.Waited <= 0) {
				c.Errorf("the lock is held, and the answer is %v", ans.err)
			}
		}
	}
	c.release(got)
	c.free(b, c.name) // nobody has stayed in line
}

// A ctx that is done wins over a lock that is free.
func waitingDone(c *check) {
	a, b := c.locker(lock.TTL(time.Hour)), c.locker()
	c.free(a, c.name)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, opts := range [][]lock.Option{nil, {lock.Try()}, {lock.Wait(time.Second)}} {
		if got, err := a.Acquire(ctx, c.name, opts...); err == nil {
			c.Fatalf("a ctx that was done got %v", got)
		} else {
			c.is("Acquire under a ctx that is done", err, context.Canceled)
		}
		c.free(b, c.name)
	}
}

// Whenever the ctx ends, either there is a lock, or there is none: not one that
// nobody has.
func waitingCancelledAtRandom(c *check) {
	a, b := c.locker(lock.TTL(time.Hour)), c.locker()
	begun := time.Now()
	for range 5 {
		c.release(c.acquire(a, c.name))
	}
	pair := time.Since(begun) / 5
	granted, refused := 0, 0
	for range 50 {
		ctx, cancel := context.WithCancel(context.Background())
		timer := time.AfterFunc(rand.N(pair+pair/4+time.Microsecond), cancel)
		got, err := a.Acquire(ctx, c.name)
		timer.Stop()
		cancel()
		switch {
		case err == nil:
			granted++
			c.release(got) // although its ctx has ended
		default:
			refused++
			c.is("after ctx has ended", err, context.Canceled)
			c.free(b, c.name)
		}
	}
	c.free(b, c.name)
	c.Logf("%d granted, %d cancelled", granted, refused)
}

// Those who wait in one process are served in their order.
func waitingOrder(c *check) {
	const waiters = 4
	a, b := c.locker(), c.locker()
	got := c.acquire(a, c.name)
	order := make(chan int, waiters)
	var answers []<-chan error
	for i := range waiters {
		done := make(chan error, 1)
		answers = append(answers, done)
		go func() {
			done <- lock.Do(c.ctx(), b, c.name, func(context.Context, *lock.Lock) error {
				order <- i
				return nil
			})
		}()
		time.Sleep(100 * time.Millisecond) // nothing tells that a waiter stands in line
	}
	c.release(got)
	for i, done := range answers {
		if err := <-done; err != nil {
			c.Fatalf("waiter %d: %v", i, err)
		}
	}
	for i := range waiters {
		if who := <-order; who != i {
			c.Errorf("waiter %d was served as number %d", who, i)
		}
	}
}

// A release reaches who waits in another process.
func waitingHandedOver(c *check) {
	a, b := c.locker(), c.locker()
	got := c.acquire(a, c.name)
	var e events
	answers := c.acquiring(c.ctx(), b, c.name, e.option())
	c.wait("the second one waits", func() bool { return len(e.of("Waiting")) > 0 })
	c.release(got)
	next := c.granted(answers)
	c.alive(next)
	c.release(next)
}

// A lease that has run out is another's, and its holder knows by then.
func waitingExpiry(c *check) {
	got := c.doomed(c.name)
	next := c.granted(c.acquiring(c.ctx(), c.locker(), c.name))
	if err := got.Err(); !errors.Is(err, lock.ErrLost) {
		c.Errorf("another has the lock, and Err of its holder is %v", err)
	}
	c.lost(got)
	c.alive(next)
	c.release(next)
}
