package advisory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// target is what is to be locked: a name, or a key.
type target struct {
	name  string // what people call it
	line  string // in which queue
	key   Key
	scope any // of re-entrance
}

// Acquire waits until the lock is granted: see [lock.Locker]. The first try, and every
// lock that nobody else wants, is one round trip on a session that has other locks as
// well. Who has to wait waits in the server, on a session of its own; in one process
// those who wait for a name stand in a queue, and only its head asks the server.
//
// TTL, Wait, Try, Reentrant, WithTrace and [Poll] are honoured, and Shared on
// PostgreSQL. On MySQL and MariaDB a TTL is cut to whole seconds, and has to be one or
// more.
func (l *Locker) Acquire(ctx context.Context, name string, opts ...lock.Option) (*lock.Lock, error) {
	o, err := l.collect(opts)
	if err == nil {
		err = lock.CheckName(name)
	}
	if err != nil {
		return nil, err
	}
	return l.do(ctx, target{name: name, line: name, key: l.names.key(name), scope: l}, o)
}

// AcquireKey is [Locker.Acquire] for a [Key], so that the lock is shared with other
// programs: an Int64 or a Pair on PostgreSQL, a Raw name on MySQL and MariaDB.
func (l *Locker) AcquireKey(ctx context.Context, key Key, opts ...lock.Option) (*lock.Lock, error) {
	o, err := l.collect(opts)
	if err == nil {
		key, err = key.on(l.db.Kind())
	}
	if err != nil {
		return nil, err
	}
	name := key.String()
	return l.do(ctx, target{name: name, line: "\x00" + name, key: key, scope: &l.names}, o)
}

func (l *Locker) do(ctx context.Context, t target, o lock.Options) (*lock.Lock, error) {
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("lock: %q: %w", t.name, err)
	}
	asking, err := l.begin(t.line)
	if err != nil {
		return nil, fmt.Errorf("lock: %q: %w", t.name, err)
	}
	defer l.leave(t.line)
	if again, err := lock.Enter(ctx, t.scope, t.name, o); again != nil || err != nil {
		return again, err
	}
	begun := time.Now()
	got, err := l.acquire(ctx, t, &o, asking == 1, begun)
	e := lock.Event{Name: t.name, Err: err}
	if o.Trace != nil {
		e.Took = time.Since(begun)
	}
	if err != nil {
		o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Refused }, e)
		return nil, err
	}
	o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Acquired }, e)
	return got, nil
}

// acquire tries, and then waits, if that is wanted. Who is the first of this process to
// ask for it tries at the head of the queue, so that those who come meanwhile, and stand
// in it right away, stand behind.
func (l *Locker) acquire(ctx context.Context, t target, o *lock.Options, first bool, begun time.Time) (*lock.Lock, error) {
	wctx := ctx
	if o.Wait != 0 && o.Wait != lock.Forever {
		var stop context.CancelFunc
		wctx, stop = context.WithTimeoutCause(ctx, o.Wait, errWaited)
		defer stop()
	}
	var held *lock.HeldError
	if first = first && o.Wait != 0; first {
		var leave func()
		if leave, first = l.queue.Head(t.line); first {
			defer leave()
		}
	}
	if o.Wait == 0 || first {
		var got *lock.Lock
		var err error
		got, held, err = l.try(wctx, t, o, o.Wait == 0)
		switch {
		case err != nil && over(wctx):
			return nil, l.ended(wctx, ctx, t, nil, begun, err)
		case err != nil || got != nil:
			return got, err
		case o.Wait == 0:
			return nil, held
		}
	}
	return l.wait(wctx, ctx, t, o, held, first, begun)
}

// tries is how often a lock is tried on another session when the first one turns out
// to be dead.
const tries = 5

// try asks once, and answers the lock, or who holds it. look: who that is is asked for,
// if the answer does not say so by itself.
func (l *Locker) try(ctx context.Context, t target, o *lock.Options, look bool) (*lock.Lock, *lock.HeldError, error) {
	lease, err := l.sql.lease(o.TTL)
	if err != nil {
		return nil, nil, err
	}
	for n := 1; ; n++ {
		h := &held{l: l, name: t.name, key: t.key, shared: o.Shared, scope: t.scope, trace: o.Trace}
		s, join, err := l.pick(ctx, h, lease, o.Wait == 0)
		if err != nil {
			return nil, nil, fmt.Errorf("lock: %q: %w", t.name, err)
		}
		if s == nil { // this very Locker holds it
			return nil, l.mine(t), nil
		}
		r := &request{op: opTry, h: h, ctx: ctx, look: look}
		if join {
			r.op = opJoin
		}
		err = s.do(ctx, r)
		s.leaveIt(h.key, r)
		switch {
		case err == nil && r.got:
			return h.handle, nil, nil
		case err == nil:
			return nil, r.held, nil
		case over(ctx):
			return nil, nil, ctx.Err()
		case l.isClosed():
			return nil, nil, fmt.Errorf("lock: %q: %w", t.name, lock.ErrClosed)
		case errors.Is(err, errAgain):
			n--
			continue
		case n < tries && (errors.Is(err, errGone) || sqldb.ClassOf(err) == sqldb.ConnLost):
			continue // what a session that has ended was granted has ended with it
		}
		return nil, nil, l.explain(t.name, err)
	}
}

// over reports whether ctx has ended, or is about to: a driver that is given its
// deadline may answer a moment before.
func over(ctx context.Context) bool {
	if ctx.Err() != nil {
		return true
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < 5*time.Millisecond {
		<-ctx.Done()
		return true
	}
	return false
}

// mine says that this process holds it.
func (l *Locker) mine(t target) *lock.HeldError {
	return &lock.HeldError{Name: t.name, Holder: thisProcess()}
}
