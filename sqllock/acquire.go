package sqllock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	mathrand "math/rand/v2"

	"github.com/sqlnative/locks/lock"
)

// How the head of a queue polls: never sooner than pollMin, and never later than
// pollMax or the end of the holder's lease.
const (
	pollMin = 20 * time.Millisecond
	pollMax = 200 * time.Millisecond
)

// skippedTries is how often a try looks again at a row that is free, but at which
// somebody's transaction is: for as long as a commit takes.
const skippedTries = 3

// Acquire waits until the lock is granted: see [lock.Locker]. In one process those
// who wait for a name stand in a queue, and only its head asks the database, about
// every 100 ms, and as soon as the holder's lease ends.
//
// TTL, Wait, Try, NoRenew, AtMost, HoldAtLeast, Label, Reentrant, WithTrace and
// ShowWaiters are honoured.
func (l *Locker) Acquire(ctx context.Context, name string, opts ...lock.Option) (*lock.Lock, error) {
	o, err := lock.Collect("sqllock", features, l.base, opts)
	if err == nil {
		err = lock.CheckName(name)
	}
	if err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("lock: %q: %w", name, err)
	}
	if err := l.begin(); err != nil {
		return nil, fmt.Errorf("lock: %q: %w", name, err)
	}
	defer l.done()
	if again, err := lock.Enter(ctx, l, name, o); again != nil || err != nil {
		return again, err
	}
	begun := time.Now()
	got, err := l.acquire(ctx, name, o, begun)
	e := lock.Event{Name: name, Took: time.Since(begun), Err: err}
	if err != nil {
		o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Refused }, e)
		return nil, err
	}
	e.Token = got.Token()
	o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Acquired }, e)
	return got, nil
}

// errWaited is the cause of a waiting that has taken as long as Wait allows.
var errWaited = errors.New("waited")

// acquire tries until the lock is granted or the waiting ends: with ctx, with Wait,
// or with the Locker. Which of them, the cause says.
func (l *Locker) acquire(ctx context.Context, name string, o lock.Options, begun time.Time) (*lock.Lock, error) {
	wctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer l.endWithLocker(&cancel)()
	if o.Wait != 0 && o.Wait != lock.Forever {
		var stop context.CancelFunc
		wctx, stop = context.WithTimeoutCause(wctx, o.Wait, errWaited)
		defer stop()
	}
	if !o.NoRenew {
		leave, err := l.renew.enter(wctx)
		if err != nil {
			return nil, l.ended(wctx, ctx, name, nil, begun, err)
		}
		defer leave()
	}
	// A Try looks first: most of those that fail are told so by one plain SELECT, and
	// on SQLite, which has one write lock for all, none of them waits for whoever has
	// it.
	first := o.Wait == 0
	if o.Wait == 0 {
		got, held, err := l.try(wctx, name, o, first)
		switch {
		case err != nil && wctx.Err() != nil:
			return nil, l.ended(wctx, ctx, name, nil, begun, err)
		case err != nil || got != nil:
			return got, err
		}
		return nil, held
	}
	l.inLine(name, 1)
	defer l.inLine(name, -1)
	defer l.announce.waits(name, o, begun)()
	leave, err := l.queue.Enter(wctx, name)
	if err != nil {
		return nil, l.ended(wctx, ctx, name, l.lastSeen(name), begun, err)
	}
	defer leave()
	for held := (*lock.HeldError)(nil); ; first = true {
		// Later tries look first: whoever tries in vain has the row for a moment on MySQL
		// and MariaDB, where its holder's renewal then skips it.
		got, refused, err := l.try(wctx, name, o, first)
		switch {
		case got != nil:
			if l.queue.Len(name) > 1 {
				mine := &lock.HeldError{Name: name, Token: got.Token(), Since: time.Now(), Left: o.TTL}
				_ = json.Unmarshal([]byte(l.me(o.Label)), &mine.Holder)
				l.see(name, mine)
			}
			return got, nil
		case err != nil && wctx.Err() != nil:
			if held == nil { // it came to the head just as its waiting ended
				held = l.lastSeen(name)
			}
			return nil, l.ended(wctx, ctx, name, held, begun, err)
		case errors.Is(err, errLate):
			// It was nobody's, and may still be; but a database that is slow is not to be
			// made slower.
			select {
			case <-time.After(pollMax):
				continue
			case <-wctx.Done():
				return nil, l.ended(wctx, ctx, name, held, begun, err)
			}
		case err != nil:
			return nil, err
		}
		if held == nil {
			o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Waiting }, lock.Event{Name: name, Err: refused})
		}
		held = refused
		l.see(name, held)
		pause := pollMin + mathrand.N(pollMax-pollMin)
		if held.Left > 0 && held.Left < pause {
			pause = held.Left + time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-wctx.Done():
			return nil, l.ended(wctx, ctx, name, held, begun, nil)
		}
	}
}

// seen is what the head of a queue has seen last: those behind it, who ask the
// database nothing, tell it when their waiting ends. That may be when the head's
// does, by the same ctx: so it is kept until nobody waits.
type seen struct {
	waiting int
	held    *lock.HeldError
	at      time.Time
}

// inLine counts who waits for a name.
func (l *Locker) inLine(name string, n int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seen[name]
	if s.waiting += n; s.waiting == 0 {
		delete(l.seen, name)
		return
	}
	l.seen[name] = s
}

// see notes what the head has seen.
func (l *Locker) see(name string, held *lock.HeldError) {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seen[name]
	s.held, s.at = held, time.Now()
	l.seen[name] = s
}

func (l *Locker) lastSeen(name string) *lock.HeldError {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := l.seen[name]
	if s.held == nil {
		return nil
	}
	e := *s.held
	e.Left -= time.Since(s.at)
	return &e
}

// ended is the error of a waiting that has ended without the lock. Who holds it is
// not claimed if the database has not said: it may be that it does not answer, or
// that no connection could be had, and then nobody need hold it.
func (l *Locker) ended(wctx, ctx context.Context, name string, held *lock.HeldError, begun time.Time, err error) error {
	cause := context.Cause(wctx)
	if errors.Is(cause, lock.ErrClosed) {
		return fmt.Errorf("lock: %q: %w", name, lock.ErrClosed)
	}
	waited := errors.Is(cause, errWaited) && ctx.Err() == nil
	if held == nil && waited { // Wait was too short for one answer: it is asked for once
		lctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		held, _ = l.look(lctx, name)
	}
	if held == nil {
		if err == nil || !waited && !errors.Is(err, ctx.Err()) {
			err = errors.Join(ctx.Err(), err)
		}
		if l.db.Driver().MaxConns() == 1 {
			err = fmt.Errorf("%w (the pool has one connection: a transaction of the caller's own may have it)", err)
		}
		return fmt.Errorf("lock: %q: not had after %v: %w", name, time.Since(begun).Round(time.Millisecond), err)
	}
	e := *held
	e.Waited = time.Since(begun)
	if !waited {
		e.Err = ctx.Err()
	}
	return &e
}

// try asks the database, and answers the lock, or who holds it. first says to look
// at the row before trying to take it.
func (l *Locker) try(ctx context.Context, name string, o lock.Options, first bool) (*lock.Lock, *lock.HeldError, error) {
	for skipped := 0; ; first = false {
		if !first {
			got, err := l.take(ctx, name, o)
			if got != nil || err != nil {
				return got, nil, err
			}
		}
		held, err := l.look(ctx, name)
		switch {
		case err != nil:
			return nil, nil, err
		case held == nil: // first touch
			if err := l.touch(ctx, name); err != nil {
				return nil, nil, err
			}
		case held.Left > 0:
			return nil, held, nil
		case !first:
			// Free, and yet it was skipped: somebody's transaction is at it, most likely
			// for as long as a commit takes.
			if skipped++; skipped == skippedTries {
				return nil, held, nil
			}
			time.Sleep(300 * time.Microsecond)
		}
	}
}
