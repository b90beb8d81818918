package advisory

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

const (
	// maxSlice is how long one wait in the server may take: a waiter that has died is
	// granted the lock no later.
	maxSlice = 10 * time.Second
	// minSlice is what a wait takes at least, if there is time: every slice loses its
	// place in the server's queue.
	minSlice = time.Second
	// How a wait polls that finds no session, or has less time left than the server can
	// wait.
	pollMin = 20 * time.Millisecond
	pollMax = 200 * time.Millisecond
)

// wait stands in the queue of the name, and waits at its head. held is what a try has
// answered before; nil: there was none. atHead: that was at the head of the queue.
func (l *Locker) wait(wctx, ctx context.Context, t target, o *lock.Options, held *lock.HeldError, atHead bool, begun time.Time) (*lock.Lock, error) {
	wctx, cancel := context.WithCancelCause(wctx)
	defer cancel(nil)
	defer context.AfterFunc(l.life, func() { cancel(lock.ErrClosed) })()
	waiting := func(held *lock.HeldError) {
		l.see(t.line, held)
		o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Waiting }, lock.Event{Name: t.name, Err: held})
	}
	told := held != nil
	if told {
		waiting(held)
	}
	if !atHead {
		leave, err := l.queue.Enter(wctx, t.line)
		if err != nil {
			return nil, l.ended(wctx, ctx, t, nil, begun, nil)
		}
		defer leave()
	}
	w := &waiter{l: l, t: t, o: o, ctx: wctx}
	defer w.close()
	for {
		if !told { // it has come to the head, and nobody has said yet that it has to wait
			got, refused, err := l.try(wctx, t, o, false)
			switch {
			case err != nil && over(wctx):
				return nil, l.ended(wctx, ctx, t, nil, begun, err)
			case got != nil || err != nil:
				return got, err
			}
			waiting(refused)
			told = true
		}
		got, err := w.once()
		switch {
		case got == nil && (wctx.Err() != nil || err != nil && over(wctx)):
			if isContext(err) {
				err = nil
			}
			return nil, l.ended(wctx, ctx, t, w.holder(ctx), begun, err)
		case got != nil || err != nil:
			return got, err
		}
	}
}

// waiter is the head of a queue.
type waiter struct {
	l   *Locker
	t   target
	o   *lock.Options
	ctx context.Context
	s   *conn // its own, between two slices
}

// close lets others have its session.
func (w *waiter) close() {
	if w.s != nil {
		w.s.stopWaiting(w.t.key)
		w.s = nil
	}
}

// once waits for one slice in the server, or for one pause between two tries.
func (w *waiter) once() (*lock.Lock, error) {
	every := pollOf(w.o)
	lease, err := w.l.sql.lease(w.o.TTL)
	if err != nil {
		return nil, err
	}
	slice := min(max(lease/3, minSlice), maxSlice)
	if deadline, ok := w.ctx.Deadline(); ok {
		slice = min(slice, time.Until(deadline))
	}
	slice = w.l.sql.slice(slice)
	if every > 0 || slice == 0 {
		return w.poll(every)
	}
	h := &held{l: w.l, name: w.t.name, key: w.t.key, shared: w.o.Shared, scope: w.t.scope, trace: w.o.Trace}
	if w.s == nil {
		if w.s, err = w.l.alone(w.ctx, h, lease); err != nil {
			return nil, fmt.Errorf("lock: %q: %w", w.t.name, err)
		}
	}
	if w.s == nil {
		return w.poll(0)
	}
	r := &request{op: opBlock, h: h, ctx: w.ctx, wait: slice, done: make(chan struct{}, 1), calm: make(chan struct{})}
	err = w.s.do(w.ctx, r)
	if r.left() {
		w.abandon(r)
		w.s = nil // it ends
	}
	switch {
	case err == nil && r.got:
		w.close()
		return h.handle, nil
	case err == nil:
		w.l.see(w.t.line, &lock.HeldError{Name: w.t.name})
		return nil, nil
	}
	gone := errors.Is(err, errGone) || errors.Is(err, errAgain) || sqldb.ClassOf(err) == sqldb.ConnLost
	w.close()
	switch {
	case w.ctx.Err() != nil:
		return nil, w.ctx.Err()
	case w.l.isClosed():
		return nil, fmt.Errorf("lock: %q: %w", w.t.name, lock.ErrClosed)
	case gone: // the server has restarted, or somebody has ended the session
		return w.poll(0) // a try, which answers with an error if the server is not there
	}
	return nil, w.l.explain(w.t.name, err)
}

// abandon has the server end a wait that nobody waits for any more, and returns at
// once. What is granted meanwhile the session gives back by ending.
func (w *waiter) abandon(r *request) {
	s := w.s
	w.l.work()
	go func() {
		defer w.l.done()
		defer close(r.calm)
		ctx, cancel := context.WithTimeout(context.Background(), sqldb.Bound)
		defer cancel()
		// It may reach the server before the statement does, and be forgotten: so it is
		// repeated.
		for pause := 5 * time.Millisecond; ; pause = min(2*pause, 250*time.Millisecond) {
			_ = s.conn.Interrupt(ctx) // if it fails, the end of the slice, or the bound, ends it
			select {
			case <-r.done:
				return
			case <-time.After(pause):
			case <-ctx.Done():
				s.die("a wait that was given up does not end", errSilent)
				<-r.done
				return
			}
		}
	}()
}

// poll pauses, and tries. It tries on a session with others, and not on one that it
// had for itself.
func (w *waiter) poll(every time.Duration) (*lock.Lock, error) {
	w.close()
	pause := pollMin + rand.N(pollMax-pollMin)
	if every > 0 {
		pause = every/2 + rand.N(every/2)
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.ctx.Done():
		return nil, w.ctx.Err()
	}
	got, _, err := w.l.try(w.ctx, w.t, w.o, false)
	if w.ctx.Err() != nil && got == nil {
		return nil, w.ctx.Err()
	}
	return got, err
}

// holder asks who holds it, if the caller is still there to be told.
func (w *waiter) holder(ctx context.Context) *lock.HeldError {
	if ctx.Err() != nil || w.l.life.Err() != nil {
		return nil
	}
	return lookAtHolder(ctx, w.l.db, w.t.key)
}

// line is what is known of a name that is asked for. Those behind the head, who ask the
// server nothing, tell it when their waiting ends. That may be when the head's does, by
// the same ctx: so it is kept until nobody asks.
type line struct {
	asking int
	held   *lock.HeldError // the answer to the last try; nil: there was none yet
}

// see notes that the lock is held. Who holds it is not forgotten for an answer that does
// not say.
func (l *Locker) see(name string, held *lock.HeldError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	at, ok := l.lines[name]
	if ok && (at.held == nil || held.Holder != (lock.Holder{})) {
		at.held = held
		l.lines[name] = at
	}
}

func (l *Locker) lastSeen(name string) *lock.HeldError {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines[name].held
}

// thisProcess describes it.
func thisProcess() lock.Holder {
	host, err := os.Hostname()
	if err != nil {
		host = ""
	}
	return lock.Holder{Host: host, PID: os.Getpid(), Label: "this process"}
}
