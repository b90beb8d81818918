package sqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	mathrand "math/rand/v2"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
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
// TTL, Wait, Try, NoRenew, AtMost, HoldAtLeast, Label, Reentrant and WithTrace are
// honoured.
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
	if err := l.open(); err != nil {
		return nil, fmt.Errorf("lock: %q: %w", name, err)
	}
	if again, err := lock.Enter(ctx, l, name, o); again != nil || err != nil {
		return again, err
	}
	begun := time.Now()
	if !o.NoRenew {
		if err := l.renew.start(ctx); err != nil {
			return nil, fmt.Errorf("lock: %q: %w", name, err)
		}
	}
	got, err := l.wait(ctx, name, o, begun)
	e := lock.Event{Name: name, Took: time.Since(begun), Err: err}
	if err != nil {
		o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Refused }, e)
		return nil, err
	}
	e.Token = got.Token()
	o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Acquired }, e)
	return got, nil
}

// wait tries until the lock is granted or the waiting ends.
func (l *Locker) wait(ctx context.Context, name string, o lock.Options, begun time.Time) (*lock.Lock, error) {
	if o.Wait == 0 {
		got, held, err := l.try(ctx, name, o)
		if err != nil || got != nil {
			return got, err
		}
		return nil, held
	}
	// The waiting ends with ctx, with Wait, or with the Locker; which of them, its
	// cause says.
	wctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(l.life, func() { cancel(lock.ErrClosed) })()
	if o.Wait != lock.Forever {
		timer := time.AfterFunc(o.Wait, func() { cancel(errWaited) })
		defer timer.Stop()
	}
	var held *lock.HeldError
	leave, err := l.queue.Enter(wctx, name)
	if err != nil {
		return nil, l.ended(wctx, ctx, name, held, begun)
	}
	defer leave()
	for {
		got, refused, err := l.try(wctx, name, o)
		switch {
		case got != nil:
			return got, nil
		case err != nil && wctx.Err() != nil:
			return nil, l.ended(wctx, ctx, name, held, begun)
		case err != nil:
			return nil, err
		}
		if held == nil {
			o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Waiting }, lock.Event{Name: name, Err: refused})
		}
		held = refused
		pause := pollMin + mathrand.N(pollMax-pollMin)
		if held.Left > 0 && held.Left < pause {
			pause = held.Left + time.Millisecond
		}
		select {
		case <-time.After(pause):
		case <-wctx.Done():
			return nil, l.ended(wctx, ctx, name, held, begun)
		}
	}
}

// errWaited is the cause of a waiting that has taken as long as Wait allows.
var errWaited = errors.New("waited")

// ended is the error of a waiting that has ended without the lock.
func (l *Locker) ended(wctx, ctx context.Context, name string, held *lock.HeldError, begun time.Time) error {
	cause := context.Cause(wctx)
	if errors.Is(cause, lock.ErrClosed) {
		return fmt.Errorf("lock: %q: %w", name, lock.ErrClosed)
	}
	if held == nil { // another goroutine of this process was before us
		held = &lock.HeldError{Name: name}
		lctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		if seen, err := l.look(lctx, name); err == nil && seen != nil {
			held = seen
		}
	}
	e := *held
	e.Waited = time.Since(begun)
	if !errors.Is(cause, errWaited) {
		e.Err = ctx.Err()
	}
	return &e
}

// try asks the database, and answers the lock, or who holds it.
func (l *Locker) try(ctx context.Context, name string, o lock.Options) (*lock.Lock, *lock.HeldError, error) {
	for skipped := 0; ; {
		got, err := l.take(ctx, name, o)
		if got != nil || err != nil {
			return got, nil, err
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
		default:
			// Free, and yet it was skipped: somebody's transaction is at it, most likely
			// for as long as a commit takes.
			if skipped++; skipped == skippedTries {
				return nil, held, nil
			}
			time.Sleep(300 * time.Microsecond)
		}
	}
}

// take runs the statement that takes; nil if it took nothing.
func (l *Locker) take(ctx context.Context, name string, o lock.Options) (*lock.Lock, error) {
	h := &held{l: l, name: name, owner: rand.Text(), ttl: o.TTL, atMost: o.AtMost, noRenew: o.NoRenew, trace: o.Trace}
	v := values{"name": l.text(name), "owner": l.text(h.owner), "ttl": h.lease().Microseconds(), "hold": o.HoldAtLeast.Microseconds(), "holder": me(o.Label)}
	c := sqldb.Change{
		Op: "acquire " + name, Query: l.sql.acquire.query, Args: l.sql.acquire.args(v), Returning: l.sql.returning,
		Settle: func(ctx context.Context, db *sqldb.DB) (*sqldb.Changed, bool, error) {
			return l.settle(ctx, name, h.owner)
		},
		Late: func(ctx context.Context, c *sqldb.Changed) {
			if token, ok := l.token(c); ok {
				l.giveBack(ctx, name, h.owner, token)
			}
		},
	}
	var changed *sqldb.Changed
	err := sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) (err error) {
		h.sent = time.Now()
		changed, err = l.db.Change(ctx, c)
		return err
	})
	if err != nil {
		return nil, l.explain(name, err)
	}
	token, ok := l.token(changed)
	if !ok {
		return nil, nil
	}
	h.token = token
	back := func(err error) (*lock.Lock, error) {
		l.giveBack(context.WithoutCancel(ctx), name, h.owner, token)
		return nil, err
	}
	switch {
	case ctx.Err() != nil: // a ctx that is done wins over a grant
		return back(ctx.Err())
	case !time.Now().Before(h.trusted()):
		return back(fmt.Errorf("lock: %q was granted, but the answer took %v of a lease of %v, and was given back: %w", name, sinceSent(h.sent), o.TTL, context.DeadlineExceeded))
	}
	h.handle, h.ctrl = lock.New(lock.Grant{Name: name, Owner: h.owner, Token: token, Scope: l, Until: h.trusted(), Trace: o.Trace}, h)
	if err := l.keep(h); err != nil {
		return nil, err
	}
	return h.handle, nil
}

// token reads the token of a grant.
func (l *Locker) token(c *sqldb.Changed) (token int64, ok bool) {
	switch {
	case c.RowsAffected == 0:
		return 0, false
	case !l.sql.returning:
		return c.LastInsertID, true
	}
	return token, c.Scan(0, &token) == nil
}

// settle finds out whether a statement without an answer has taken the row.
func (l *Locker) settle(ctx context.Context, name, owner string) (*sqldb.Changed, bool, error) {
	var token int64
	st := l.sql.settle
	err := l.db.QueryRow(ctx, st.query, st.args(values{"name": l.text(name), "owner": l.text(owner)})...).Scan(&token)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	res := sqldb.Result{RowsAffected: 1, LastInsertID: token}
	return sqldb.NewChanged(l.db.Kind(), res, []any{token}), true, nil
}

// giveBack releases a grant that nobody wants, for a bounded time; else it is left
// to its TTL.
func (l *Locker) giveBack(ctx context.Context, name, owner string, token int64) {
	l.tasks.Add(1)
	defer l.tasks.Done()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lock.ReleaseBound)
	defer cancel()
	_ = l.free(ctx, name, owner, token)
}

// look reads who holds the row; nil if there is no row.
func (l *Locker) look(ctx context.Context, name string) (*lock.HeldError, error) {
	e := &lock.HeldError{Name: name}
	var owner, holder *string
	var since *time.Time
	var left int64
	st := l.sql.look
	err := l.db.QueryRow(ctx, st.query, st.args(values{"name": l.text(name)})...).Scan(&owner, &e.Token, &holder, &since, &left)
	if errors.Is(err, sql.ErrNoRows) {
		return nil, nil
	}
	if err != nil {
		return nil, l.explain(name, err)
	}
	if holder != nil {
		_ = json.Unmarshal([]byte(*holder), &e.Holder) // for people: another program's text is no error
	}
	if since != nil {
		e.Since = *since
	}
	e.Left = time.Duration(left) * time.Microsecond
	return e, nil
}

// touch makes the row, free. Another's row is as good.
func (l *Locker) touch(ctx context.Context, name string) error {
	st := l.sql.touch
	err := sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
		_, err := l.db.Change(ctx, sqldb.Change{Op: "first touch of " + name, Query: st.query, Args: st.args(values{"name": l.text(name)})})
		return err
	})
	if err != nil && sqldb.ClassOf(err) != sqldb.Duplicate {
		return l.explain(name, err)
	}
	return nil
}

// explain says what to do about an error of the database.
func (l *Locker) explain(name string, err error) error {
	switch sqldb.ClassOf(err) {
	case sqldb.NoTable, sqldb.NoColumn, sqldb.NoSchema:
		return fmt.Errorf("%w: lock %q: %w", lock.ErrNotMigrated, name, err)
	}
	return fmt.Errorf("lock: %q: %w", name, err)
}
