package sqllock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// cancelGrace is how long an Acquire whose ctx has ended waits for the database to
// end its statement. What has not answered by then is seen to by a goroutine.
const cancelGrace = 100 * time.Millisecond

// errLeft: the caller has gone; what became of its statement is for another
// goroutine to find out.
var errLeft = errors.New("its caller did not wait for the answer")

// errLate: an answer that came later than its lease can be trusted is no acquisition.
var errLate = errors.New("it was granted too late, and given back; the database is too slow for this TTL")

// lostTries is how often a statement is sent again whose connection has broken, and
// that has surely changed nothing: after a restart of the server each connection of
// the pool may be such a one.
const lostTries = 10

// again is the policy of statements that may be sent again after a lost connection.
func again() sqldb.Policy {
	lost := 0
	return sqldb.Policy{Retryable: func(err error) bool {
		if sqldb.ClassOf(err) == sqldb.ConnLost {
			lost++
			return lost < lostTries
		}
		return sqldb.Retryable(err)
	}}
}

// take runs the statement that takes; nil if it took nothing.
func (l *Locker) take(ctx context.Context, name string, o lock.Options) (*lock.Lock, error) {
	h := &held{l: l, identity: l.identity(name, rand.Text()), ttl: o.TTL, want: o.TTL, atMost: o.AtMost, noRenew: o.NoRenew, trace: o.Trace}
	v := values{"name": h.nameArg, "owner": h.ownerArg, "ttl": h.lease().Microseconds(), "hold": o.HoldAtLeast.Microseconds(), "holder": l.me(o.Label)}
	st := l.sql.acquire
	if o.HoldAtLeast > 0 {
		st = l.sql.acquireHold
	}
	c := sqldb.Change{
		Op: "acquire " + name, Query: st.query, Args: st.args(v), Returning: l.sql.returning, Grace: cancelGrace,
		Settle: func(sctx context.Context, _ *sqldb.DB) (*sqldb.Changed, bool, error) {
			if ctx.Err() != nil {
				return nil, false, errLeft
			}
			return l.settle(sctx, h.identity)
		},
	}
	var changed *sqldb.Changed
	err := sqldb.Retry(ctx, again(), func(ctx context.Context) (err error) {
		changed, err = l.change(ctx, c)
		return err
	})
	switch {
	case errors.Is(err, errLeft):
		l.work() // Close waits for it
		go func() {
			defer l.done()
			l.giveBackLate(ctx, h.identity)
		}()
		return nil, ctx.Err()
	case err != nil:
		return nil, l.explain(name, err)
	}
	token, ok := l.token(changed)
	if !ok {
		return nil, nil
	}
	h.token, h.sent, h.first = token, changed.Sent, changed.Sent
	back := func(err error) (*lock.Lock, error) {
		l.giveBack(context.WithoutCancel(ctx), h.identity, token)
		return nil, err
	}
	switch {
	case ctx.Err() != nil: // a ctx that is done wins over a grant
		return back(ctx.Err())
	case !time.Now().Before(h.trusted()):
		return back(fmt.Errorf("lock: %q: %w: the answer took %v of a lease of %v", name, errLate, time.Since(h.sent).Round(time.Millisecond), o.TTL))
	}
	h.handle, h.ctrl = lock.New(lock.Grant{Name: name, Owner: h.owner, Token: token, Scope: l, Until: h.trusted(), Trace: o.Trace}, h)
	if err := l.keep(h); err != nil {
		return nil, err
	}
	return h.handle, nil
}

// change runs a statement that skips a row at which somebody is.
func (l *Locker) change(ctx context.Context, c sqldb.Change) (*sqldb.Changed, error) {
	changed, err := l.db.Change(ctx, c)
	if l.skipped(err) {
		return sqldb.NewChanged(l.db.Kind(), sqldb.Result{}), nil
	}
	return changed, err
}

// skipped recognises how MariaDB says that it has skipped a row: see
// statements_mysql.go.
func (l *Locker) skipped(err error) bool {
	return err != nil && l.db.Kind() == sqldb.MariaDB && sqldb.ClassOf(err) == sqldb.LockTimeout && !sqldb.Uncertain(err)
}

// giveBackLate releases what a statement may have taken whose answer did not come
// and whose caller has gone. It was asked to end, and waits for nothing in the
// server, so it has most likely ended; but it may still be on its way there: so it is
// looked for a few times. What arrives even later is left to its TTL.
func (l *Locker) giveBackLate(ctx context.Context, id identity) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lock.ReleaseBound)
	defer cancel()
	for pause := 20 * time.Millisecond; pause < 2*time.Second; pause *= 4 {
		changed, ours, err := l.settle(ctx, id)
		if err == nil && ours {
			token, _ := l.token(changed)
			l.giveBack(ctx, id, token)
			return
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
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
func (l *Locker) settle(ctx context.Context, id identity) (*sqldb.Changed, bool, error) {
	var token int64
	st := l.sql.settle
	err := l.read(ctx, func(ctx context.Context) error {
		return l.db.QueryRow(ctx, st.query, st.args(values{"name": id.nameArg, "owner": id.ownerArg})...).Scan(&token)
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
func (l *Locker) giveBack(ctx context.Context, id identity, token int64) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lock.ReleaseBound)
	defer cancel()
	_ = l.free(ctx, id, token)
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

// read repeats a read that the server refuses (as a database default, SERIALIZABLE
// on PostgreSQL may do that to a single SELECT), or whose connection breaks.
func (l *Locker) read(ctx context.Context, f func(ctx context.Context) error) error {
	return sqldb.Retry(ctx, again(), func(ctx context.Context) error {
		err := f(ctx)
		if err != nil && ctx.Err() == nil && sqldb.Uncertain(err) {
			return readError{err}
		}
		return err
	})
}

// readError is an error of a statement that changes nothing, whatever became of it.
type readError struct{ error }

// NotApplied is what package sqldb asks of it.
func (readError) NotApplied() bool { return true }
func (e readError) Unwrap() error  { return e.error }

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
