package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// Lock is a lock that is held. It is safe for concurrent use.
type Lock struct {
	c *core

	// Under c.mu:
	gone   bool            // this handle was released
	ctx    context.Context // ends with the lock, or with this handle; see context
	cancel context.CancelCauseFunc

	mu       sync.Mutex // held while a release runs
	released bool
	err      error // what the release found
}

// Name is the lock's name.
func (l *Lock) Name() string { return l.c.g.Name }

// Owner is the random identity under which the lock is held; empty where the
// strategy has none.
func (l *Lock) Owner() string { return l.c.g.Owner }

// Token is the fencing token: for one name it only grows, from holder to holder,
// through release, expiry, crash and clean-up. Whatever the lock protects can refuse
// a holder whose token is smaller than one that it has seen. 0: the strategy has
// none.
func (l *Lock) Token() int64 { return l.c.g.Token }

// Context returns a ctx that ends with parent, when the lock is lost
// ([context.Cause] is a [*LostError]), and when it is released ([ErrReleased]). An
// Acquire under it knows that the lock is held: see [Reentrant].
func (l *Lock) Context(parent context.Context) context.Context {
	next, _ := parent.Value(heldKey{}).(*chain)
	ctx, cancel := context.WithCancelCause(context.WithValue(parent, heldKey{}, &chain{l, next}))
	own := l.context()
	stop := context.AfterFunc(own, func() { cancel(context.Cause(own)) })
	context.AfterFunc(ctx, func() { stop() }) // a lock that lives long keeps no ctx that has ended
	return ctx
}

// Done is closed when the lock is lost or released.
func (l *Lock) Done() <-chan struct{} { return l.context().Done() }

// Err is nil while the lock is held, then a [*LostError] or [ErrReleased]. It looks
// at the clock itself, and so tells a loss also to code that runs, after a pause,
// before Done could be closed.
func (l *Lock) Err() error {
	err := l.c.look()
	if errors.Is(err, ErrLost) {
		return err
	}
	if l.hasLeft() {
		return ErrReleased
	}
	return err
}

// Guard is the strongest promise here: inside the caller's own outermost
// transaction it pins the lock until that transaction ends, or returns [ErrLost].
// It assumes nothing about time: a process that was paused for an hour after Guard
// still holds the lock when it commits. See the strategy for what it locks.
func (l *Lock) Guard(ctx context.Context, tx *sqldb.Tx) error {
	if err := l.usable("Guard", tx); err != nil {
		return err
	}
	return l.noteLoss(l.c.s.Guard(ctx, tx))
}

// ReleaseIn releases the lock with the commit of the caller's transaction: others
// get it when what the transaction has written is there to be seen. If the
// transaction is rolled back, the row is as it was, but this handle is done all the
// same: the lock is left to its TTL, no longer renewed. It is refused while the lock
// has further handles ([Reentrant]).
func (l *Lock) ReleaseIn(ctx context.Context, tx *sqldb.Tx) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.usable("ReleaseIn", tx); err != nil {
		return err
	}
	c := l.c
	c.mu.Lock()
	handles := c.handles
	c.mu.Unlock()
	if handles > 1 {
		return fmt.Errorf("%w: ReleaseIn: %q has %d handles", ErrInvalid, l.Name(), handles)
	}
	if err := l.noteLoss(c.s.ReleaseIn(ctx, tx)); err != nil {
		return err
	}
	l.released = true
	l.leave()
	c.mu.Lock()
	if c.err == nil {
		c.finish(ErrReleased)
	}
	c.mu.Unlock()
	c.told(nil)
	return nil
}

// usable says why the lock can't be used in tx.
func (l *Lock) usable(op string, tx *sqldb.Tx) error {
	switch {
	case tx == nil:
		return fmt.Errorf("%w: %s of %q: the transaction is nil", ErrInvalid, op, l.Name())
	case tx.Err() != nil:
		return fmt.Errorf("%w: %s of %q: %w", ErrInvalid, op, l.Name(), tx.Err())
	}
	return l.Err()
}

// noteLoss ends the lock if a statement has found out that it is lost.
func (l *Lock) noteLoss(err error) error {
	if errors.Is(err, ErrLost) {
		return l.c.lose("the database says that it is no longer ours", nil)
	}
	return err
}

// Extend makes the lease d long from now, whatever its TTL was: for a lock with
// [NoRenew], or before something that takes long. d is bounded as [TTL] is.
func (l *Lock) Extend(ctx context.Context, d time.Duration) error {
	var o Options
	if err := TTL(d)(&o); err != nil {
		return fmt.Errorf("%w: Extend of %q: %w", ErrInvalid, l.Name(), err)
	}
	if err := l.Err(); err != nil {
		return err
	}
	until, err := l.c.s.Extend(ctx, d)
	if err != nil {
		return l.noteLoss(err)
	}
	if !(&Controller{l.c}).Renewed(until) {
		return l.Err()
	}
	return nil
}

// Release gives the lock back; [Lock.Context] and [Lock.Done] end before. It works
// when ctx is done: it runs detached from it, for at most 5 s, and what the database
// has not answered by then is left to the TTL. It never touches a successor's lock.
//
// Safe to call twice: once it has succeeded, or the lock was lost, a further call
// does nothing and returns the same; after another error it tries again. [ErrLost]
// says that the lock was no longer ours when it was released, so what was done under
// it may have been done beside another holder.
func (l *Lock) Release(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.released {
		return l.err
	}
	c := l.c
	_ = c.look() // a lease that has run out is lost, not released
	l.leave()
	c.mu.Lock()
	last := c.handles == 1
	if !last {
		c.handles--
		l.released = true
		l.err = lostOnly(c.err)
		c.mu.Unlock()
		return l.err
	}
	if c.err == nil {
		c.finish(ErrReleased)
	}
	lost := lostOnly(c.err)
	c.mu.Unlock()

	// Also a lock that was lost by the clock: the row may still be ours, and a
	// statement that carries owner and token harms nobody.
	rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ReleaseBound)
	defer cancel()
	err := c.s.Release(rctx)
	switch {
	case lost != nil:
		err = lost
	case errors.Is(err, ErrLost):
		err = &LostError{Name: c.g.Name, Token: c.g.Token, Reason: "it was no longer ours when it was released"}
	}
	c.told(err)
	if err != nil && !errors.Is(err, ErrLost) {
		return fmt.Errorf("lock: release of %q (token %d): left to its TTL: %w", c.g.Name, c.g.Token, err)
	}
	l.released, l.err = true, err
	return err
}

func lostOnly(err error) error {
	if errors.Is(err, ErrLost) {
		return err
	}
	return nil
}

// told tells the Trace of a release.
func (c *core) told(err error) {
	e := Event{Name: c.g.Name, Token: c.g.Token, Took: time.Since(c.acquired), Err: err}
	switch {
	case err == nil:
		c.g.Trace.Tell(func(t *Trace) func(Event) { return t.Released }, e)
	case !errors.Is(err, ErrLost):
		c.g.Trace.Tell(func(t *Trace) func(Event) { return t.ReleaseFailed }, e)
	}
}
