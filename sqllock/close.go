package sqllock

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlnative/locks/lock"
)

// begin counts a piece of work that keeps Close waiting, unless the Locker is
// closed.
func (l *Locker) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return lock.ErrClosed
	}
	l.busy++
	return nil
}

// work counts one whatever the Locker's state.
func (l *Locker) work() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.busy++
}

// done ends a piece of work.
func (l *Locker) done() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.busy--; l.busy == 0 && l.calm != nil {
		close(l.calm)
		l.calm = nil
	}
}

// endWithLocker has an Acquire end with the Locker, until forget is called. (It is
// context.AfterFunc on a ctx of the Locker, for less.)
func (l *Locker) endWithLocker(cancel *context.CancelCauseFunc) (forget func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed { // since begin: endWaiting may have been there already
		(*cancel)(lock.ErrClosed)
	}
	l.ends[cancel] = struct{}{}
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.ends, cancel)
	}
}

// endWaiting ends the Acquires that are under way. The Locker is closed: who comes
// later sees that.
func (l *Locker) endWaiting() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for cancel := range l.ends {
		(*cancel)(lock.ErrClosed)
	}
}

// idle waits until no work is under way; false: ctx ended before.
func (l *Locker) idle(ctx context.Context) bool {
	l.mu.Lock()
	if l.busy == 0 {
		l.mu.Unlock()
		return true
	}
	if l.calm == nil {
		l.calm = make(chan struct{})
	}
	calm := l.calm
	l.mu.Unlock()
	select {
	case <-calm:
		return true
	case <-ctx.Done():
		return false
	}
}

// closing is what bounds the releases of Close: all of them together, and a few at
// a time, since a thousand need not take a thousand connections.
type closing struct {
	ctx    context.Context
	places chan struct{}
}

type closingKey struct{}

// closingOf finds it in the ctx of a release, which is detached from Close's, but
// carries its values.
func closingOf(ctx context.Context) *closing {
	c, _ := ctx.Value(closingKey{}).(*closing)
	return c
}

func (c *closing) enter() error {
	select {
	case c.places <- struct{}{}:
		return nil
	case <-c.ctx.Done():
		return c.ctx.Err()
	}
}

func (c *closing) leave() { <-c.places }

// Close releases what is held, for at most 5 s in all; what could not be released
// by then is left to its TTL, and is an error. Holders see [lock.ErrReleased], with
// [lock.Reentrant] those who came later [lock.ErrLost]; those who wait get
// [lock.ErrClosed], and so does every later Acquire. Handles made by Attach are left
// alone: they are another's to release.
//
// When it returns, nothing of the Locker is running, and its connection is back in
// the pool; only if the database has not answered for those 5 s, what was sent to it
// comes to its end by itself, within [sqldb.Bound]. Safe to call twice.
func (l *Locker) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), lock.ReleaseBound)
	defer cancel()
	l.mu.Lock()
	l.closed = true
	all := make([]*held, 0, len(l.held))
	for h := range l.held {
		all = append(all, h)
	}
	l.mu.Unlock()
	l.endWaiting()
	l.announce.close()
	l.renew.stop(ctx)

	c := &closing{ctx: ctx, places: make(chan struct{}, 8)}
	rctx := context.WithValue(ctx, closingKey{}, c)
	errs := make(chan error, len(all))
	for _, h := range all { // all at once: every holder is told at once
		l.work()
		go func() {
			defer l.done()
			errs <- l.giveUp(rctx, h)
		}()
	}
	var failed error
	for n := range all {
		select {
		case err := <-errs:
			failed = errors.Join(failed, err)
			continue
		case <-ctx.Done():
		}
		failed = errors.Join(failed, fmt.Errorf("lock: Close: the database has not answered the release of %d locks: left to their TTL: %w", len(all)-n, ctx.Err()))
		break
	}
	if !l.idle(ctx) && failed == nil {
		return fmt.Errorf("lock: Close: the database has not answered: %w", ctx.Err())
	}
	return failed
}

// giveUp releases a lock at Close, whatever the number of its handles.
func (l *Locker) giveUp(ctx context.Context, h *held) error {
	err := h.handle.Release(ctx)
	l.mu.Lock()
	_, still := l.held[h]
	l.mu.Unlock()
	if still { // that was not its last handle
		h.ctrl.Lose("the Locker was closed", lock.ErrClosed)
		err = h.Release(ctx)
	}
	if errors.Is(err, lock.ErrLost) {
		return nil // its holder has been told
	}
	return err
}

// Shutdown takes no new work, and keeps renewing what is held until all of it is
// released, or ctx ends; then it closes the Locker. It returns ctx's error if that
// is what ended it, joined with what Close says.
func (l *Locker) Shutdown(ctx context.Context) error {
	l.mu.Lock()
	l.closed = true
	var gone chan struct{}
	if len(l.held) > 0 {
		if l.allGone == nil {
			l.allGone = make(chan struct{})
		}
		gone = l.allGone
	}
	l.mu.Unlock()
	l.endWaiting()
	var err error
	if gone != nil {
		select {
		case <-gone:
		case <-ctx.Done():
			err = ctx.Err()
		}
	}
	return errors.Join(err, l.Close())
}
