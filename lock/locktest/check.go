package locktest

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/lock"
)

// patience is how long a test waits for what has to happen: long enough for a
// machine that does ten other things.
const patience = 20 * time.Second

// check is what a case works with.
type check struct {
	testing.TB
	s        Subject
	name     string // a lock that no other case uses
	patience time.Duration
}

func newCheck(t testing.TB, s Subject, name string) *check {
	return &check{t, s, fmt.Sprintf("%s %08x", name, rand.Uint32()), patience}
}

// locker makes a Locker that is closed at the end.
func (c *check) locker(opts ...lock.Option) lock.Locker {
	c.Helper()
	l := c.s.New(c.TB, opts...)
	c.Cleanup(func() {
		if err := l.Close(); err != nil {
			c.Errorf("Close: %v", err)
		}
	})
	return l
}

// ctx ends when nothing has happened for too long.
func (c *check) ctx() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), c.patience)
	c.Cleanup(cancel)
	return ctx
}

// acquire takes a lock, which has to work.
func (c *check) acquire(l lock.Locker, name string, opts ...lock.Option) *lock.Lock {
	c.Helper()
	got, err := l.Acquire(c.ctx(), name, opts...)
	if err != nil {
		c.Fatalf("Acquire: %v", err)
	}
	return got
}

// free says that a lock can be had now, and gives it back. Now, or a little later:
// what is given back after a ctx has ended takes a moment.
func (c *check) free(l lock.Locker, name string) {
	c.Helper()
	got, err := l.Acquire(c.ctx(), name, lock.Wait(c.patience/4))
	if err != nil {
		c.Fatalf("the lock should be free: %v", err)
	}
	c.release(got)
}

// held says that a lock cannot be had.
func (c *check) held(l lock.Locker, name string, opts ...lock.Option) *lock.HeldError {
	c.Helper()
	got, err := l.Acquire(c.ctx(), name, append(opts, lock.Try())...)
	if err == nil {
		_ = got.Release(context.Background())
		c.Fatal("the lock was granted, though another has it")
	}
	var held *lock.HeldError
	if !errors.As(err, &held) || !errors.Is(err, lock.ErrHeld) {
		c.Fatalf("the answer is no HeldError: %v", err)
	}
	return held
}

func (c *check) release(l *lock.Lock) {
	c.Helper()
	if err := l.Release(c.ctx()); err != nil {
		c.Fatalf("Release: %v", err)
	}
}

// is says that err matches all targets.
func (c *check) is(what string, err error, targets ...error) {
	c.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			c.Fatalf("%s: the error is %v; it has to match %v", what, err, target)
		}
	}
}

// doomed returns a lock whose lease runs out although its holder lives, because it
// is not renewed, or cannot be.
func (c *check) doomed(name string, opts ...lock.Option) *lock.Lock {
	c.Helper()
	opts = append(opts, lock.TTL(c.s.TTL))
	if c.s.NoRenew {
		return c.acquire(c.locker(), name, append(opts, lock.NoRenew())...)
	}
	if len(c.s.Faults) == 0 {
		c.Fatal("the Subject has neither NoRenew nor a fault: it cannot be shown that a lease runs out")
	}
	l := c.locker()
	got := c.acquire(l, name, opts...)
	heal := c.s.Faults[0].Break(c.TB, l)
	c.Cleanup(heal)
	return got
}

// lost waits until the lock is lost.
func (c *check) lost(l *lock.Lock) *lock.LostError {
	c.Helper()
	select {
	case <-l.Done():
	case <-time.After(c.patience):
		c.Fatal("the holder was not told that it has lost the lock")
	}
	var lost *lock.LostError
	if err := l.Err(); !errors.As(err, &lost) || lost.Name != l.Name() || lost.Token != l.Token() || lost.Reason == "" {
		c.Fatalf("Err after the loss: %v", err)
	}
	return lost
}

// alive says that the lock is held still.
func (c *check) alive(l *lock.Lock) {
	c.Helper()
	if err := l.Err(); err != nil {
		c.Fatalf("the lock is not held any more: %v", err)
	}
}

// wait waits until cond holds.
func (c *check) wait(what string, cond func() bool) {
	c.Helper()
	for begun := time.Now(); !cond(); time.Sleep(time.Millisecond) {
		if time.Since(begun) > c.patience {
			c.Fatalf("waited in vain: %s", what)
		}
	}
}

// answer is what an Acquire that runs in the background came to.
type answer struct {
	l   *lock.Lock
	err error
	at  time.Time
}

// acquiring starts an Acquire. If nobody takes what it got, it is released at the
// end.
func (c *check) acquiring(ctx context.Context, l lock.Locker, name string, opts ...lock.Option) <-chan answer {
	answers := make(chan answer, 1)
	var wg sync.WaitGroup
	ctx, cancel := context.WithCancel(ctx)
	wg.Go(func() {
		got, err := l.Acquire(ctx, name, opts...)
		answers <- answer{got, err, time.Now()}
	})
	c.Cleanup(func() {
		cancel()
		wg.Wait()
		select {
		case a := <-answers:
			if a.l != nil {
				_ = a.l.Release(context.Background())
			}
		default:
		}
	})
	return answers
}

// answer waits for it.
func (c *check) answer(answers <-chan answer) answer {
	c.Helper()
	select {
	case a := <-answers:
		return a
	case <-time.After(c.patience):
		c.Fatal("Acquire did not return")
		return answer{}
	}
}

// granted waits for a lock that an Acquire in the background gets.
func (c *check) granted(answers <-chan answer) *lock.Lock {
	c.Helper()
	a := c.answer(answers)
	if a.err != nil {
		c.Fatalf("Acquire: %v", a.err)
	}
	return a.l
}

// events keeps what a Trace is told.
type events struct {
	mu   sync.Mutex
	list []event
}

type event struct {
	what string
	lock.Event
}

func (e *events) trace() *lock.Trace {
	note := func(what string) func(lock.Event) {
		return func(ev lock.Event) {
			e.mu.Lock()
			defer e.mu.Unlock()
			e.list = append(e.list, event{what, ev})
		}
	}
	return &lock.Trace{
		Waiting: note("Waiting"), Acquired: note("Acquired"), Refused: note("Refused"), Renewed: note("Renewed"),
		RenewFailed: note("RenewFailed"), Lost: note("Lost"), Released: note("Released"), ReleaseFailed: note("ReleaseFailed"),
	}
}

// option is WithTrace.
func (e *events) option() lock.Option { return lock.WithTrace(e.trace()) }

// of are the events of a kind so far.
func (e *events) of(what string) (list []event) {
	for _, ev := range e.all() {
		if ev.what == what {
			list = append(list, ev)
		}
	}
	return list
}

func (e *events) all() []event {
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]event(nil), e.list...)
}
