package advisory

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlnative/locks/lock"
)

// begin counts an Acquire, which keeps Close waiting, unless the Locker is closed. It
// returns how many ask for the name, this one included.
func (l *Locker) begin(name string) (asking int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, lock.ErrClosed
	}
	l.busy++
	at := l.lines[name]
	at.asking++
	l.lines[name] = at
	return at.asking, nil
}

// leave counts that it has ended.
func (l *Locker) leave(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at := l.lines[name]
	if at.asking--; at.asking > 0 {
		l.lines[name] = at
	} else {
		delete(l.lines, name)
	}
	l.rest()
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
	l.rest()
}

// rest is done with l.mu held.
func (l *Locker) rest() {
	if l.busy--; l.busy == 0 && l.calm != nil {
		close(l.calm)
		l.calm = nil
	}
}

// calmed waits until no work is under way; false: ctx ended before.
func (l *Locker) calmed(ctx context.Context) bool {
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

func (l *Locker) isClosed() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.closed
}

// forget forgets a lock that has ended.
func (l *Locker) forget(h *held) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.held, h)
	if len(l.held) == 0 && l.allGone != nil {
		close(l.allGone)
		l.allGone = nil
	}
}

// closingKey is the key of the ctx that bounds all releases of Close together.
type closingKey struct{}

// closingOf finds it in the ctx of a release, which is detached from Close's, but
// carries its values; nil: it is no release of Close.
func closingOf(ctx context.Context) context.Context {
	c, _ := ctx.Value(closingKey{}).(context.Context)
	return c
}

// Close releases what is held, for at most 5 s in all, and gives the connections back;
// what could not be released by then is left to the server, which frees it when it
// notices that its connection was closed, or after its TTL, and is an error. Holders see
// [lock.ErrReleased], with [lock.Reentrant] those who came later [lock.ErrLost]; those
// who wait get [lock.ErrClosed], and so does every later Acquire.
//
// When it returns, nothing of the Locker is running, and its connections are back in
// the pool or closed; only if the server has not answered for those 5 s, what was sent
// to it comes to its end by itself. Safe to call twice.
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
	l.end(lock.ErrClosed)

	rctx := context.WithValue(ctx, closingKey{}, ctx)
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
		failed = errors.Join(failed, fmt.Errorf("lock: Close: the server has not answered the release of %d locks: left to their TTL: %w", len(all)-n, ctx.Err()))
		break
	}
	l.quit(ctx)
	if !l.calmed(ctx) && failed == nil {
		return fmt.Errorf("lock: Close: the server has not answered: %w", ctx.Err())
	}
	return failed
}

// quit has all sessions go back; those that do not by the end of ctx are closed.
func (l *Locker) quit(ctx context.Context) {
	l.mu.Lock()
	all := append([]*conn(nil), l.sessions...)
	l.mu.Unlock()
	for _, s := range all {
		l.work()
		go func() {
			defer l.done()
			select {
			case s.reqs <- &request{op: opQuit}:
			case <-s.gone:
			case <-ctx.Done():
				s.die("the Locker was closed", lock.ErrClosed)
			}
		}()
	}
}

// giveUp releases a lock at Close, whatever the number of its handles.
func (l *Locker) giveUp(ctx context.Context, h *held) error {
	err := h.handle.Release(ctx)
	l.mu.Lock()
	_, still := l.held[h]
	l.mu.Unlock()
	if still { // that was not its last handle
		err = h.Release(ctx)
		h.ctrl.Lose("the Locker was closed", lock.ErrClosed)
	}
	if errors.Is(err, lock.ErrLost) {
		return nil // its holder has been told
	}
	return err
}

// Shutdown takes no new work, and keeps what is held until all of it is released, or
// ctx ends; then it closes the Locker. It returns ctx's error if that is what ended it,
// joined with what Close says.
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
	l.end(lock.ErrClosed)
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
