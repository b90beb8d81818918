package sqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// take runs the statement that takes; nil if it took nothing.
func (l *Locker) take(ctx context.Context, name string, o lock.Options) (*lock.Lock, error) {
	h := &held{l: l, name: name, owner: rand.Text(), ttl: o.TTL, want: o.TTL, atMost: o.AtMost, noRenew: o.NoRenew, trace: o.Trace}
	v := values{"name": l.text(name), "owner": l.text(h.owner), "ttl": h.lease().Microseconds(), "hold": o.HoldAtLeast.Microseconds(), "holder": me(o.Label)}
	c := sqldb.Change{
		Op: "acquire " + name, Query: l.sql.acquire.query, Args: l.sql.acquire.args(v), Returning: l.sql.returning,
		Settle: func(ctx context.Context, db *sqldb.DB) (*sqldb.Changed, bool, error) {
			return l.settle(ctx, name, h.owner)
		},
	}
	changed, err := l.attended(ctx, h, c)
	if err != nil {
		return nil, l.explain(name, err)
	}
	token, ok := l.token(changed)
	if !ok {
		return nil, nil
	}
	h.token, h.first = token, h.sent
	back := func(err error) (*lock.Lock, error) {
		l.giveBack(context.WithoutCancel(ctx), name, h.owner, token)
		return nil, err
	}
	switch {
	case ctx.Err() != nil: // a ctx that is done wins over a grant
		return back(ctx.Err())
	case !time.Now().Before(h.trusted()):
		return back(fmt.Errorf("lock: %q was granted, but the answer took %v of a lease of %v, and was given back: %w",
			name, time.Since(h.sent).Round(time.Millisecond), o.TTL, context.DeadlineExceeded))
	}
	h.handle, h.ctrl = lock.New(lock.Grant{Name: name, Owner: h.owner, Token: token, Scope: l, Until: h.trusted(), Trace: o.Trace}, h)
	if err := l.keep(h); err != nil {
		return nil, err
	}
	return h.handle, nil
}

// attended runs the statement that takes, and lets the caller go at once when ctx
// ends: what is granted then is given back. Close waits for that.
func (l *Locker) attended(ctx context.Context, h *held, c sqldb.Change) (changed *sqldb.Changed, err error) {
	run := func() (sent time.Time, changed *sqldb.Changed, err error) {
		err = sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) (err error) {
			sent = time.Now()
			changed, err = l.db.Change(ctx, c)
			return err
		})
		return sent, changed, err
	}
	if l.db.Kind() == sqldb.SQLite { // it returns at once by itself
		h.sent, changed, err = run()
		return changed, err
	}
	type answer struct {
		sent    time.Time
		changed *sqldb.Changed
		err     error
	}
	done := make(chan answer, 1)
	var left atomic.Bool // whoever sets it first has the answer: the caller by leaving, or the statement
	l.work()
	go func() {
		defer l.done()
		sent, changed, err := run()
		if left.CompareAndSwap(false, true) {
			done <- answer{sent, changed, err}
			return
		}
		if err != nil {
			return
		}
		if token, ok := l.token(changed); ok {
			l.giveBack(ctx, h.name, h.owner, token)
		}
	}()
	select {
	case a := <-done:
		h.sent = a.sent
		return a.changed, a.err
	case <-ctx.Done():
	}
	// A statement that was not sent yet, because no connection could be had, says so
	// when ctx ends: that is worth a moment.
	select {
	case a := <-done:
		h.sent = a.sent
		return a.changed, a.err
	case <-time.After(20 * time.Millisecond):
	}
	if left.CompareAndSwap(false, true) {
		return nil, ctx.Err()
	}
	a := <-done
	h.sent = a.sent
	return a.changed, a.err
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
	err := l.read(ctx, func(ctx context.Context) error {
		return l.db.QueryRow(ctx, st.query, st.args(values{"name": l.text(name), "owner": l.text(owner)})...).Scan(&token)
	})
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lock.ReleaseBound)
	defer cancel()
	_ = l.free(ctx, name, owner, token)
}

// look reads who holds the row; nil if there is no row.
func (l *Locker) look(ctx context.Context, name string) (*lock.HeldError, error) {
	var e *lock.HeldError
	err := l.read(ctx, func(ctx context.Context) (err error) {
		e, err = l.lookOn(ctx, l.db, l.sql.look, name)
		return err
	})
	return e, err
}

// read repeats a read that the server refuses: as a database default, SERIALIZABLE
// on PostgreSQL may do that to a single SELECT.
func (l *Locker) read(ctx context.Context, f func(ctx context.Context) error) error {
	return sqldb.Retry(ctx, sqldb.Policy{}, f)
}

// lookOn is look where st runs.
func (l *Locker) lookOn(ctx context.Context, on sqldb.Handle, st stmt, name string) (*lock.HeldError, error) {
	e := &lock.HeldError{Name: name}
	var owner, holder *string
	var since *time.Time
	var left int64
	err := on.QueryRow(ctx, st.query, st.args(values{"name": l.text(name)})...).Scan(&owner, &e.Token, &holder, &since, &left)
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

// noRows reports whether a query has answered that there is no row.
func noRows(err error) bool { return errors.Is(err, sql.ErrNoRows) }
