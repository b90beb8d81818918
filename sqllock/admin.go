package sqllock

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// Info describes a lock that is held.
type Info struct {
	Name   string
	Owner  string
	Token  int64
	Holder lock.Holder
	// Since is when it was granted; Left is how much is left of its lease, or until
	// its HoldAtLeast. Both by the database's clock.
	Since time.Time
	Left  time.Duration
}

// List returns the locks that are held, by name.
func (l *Locker) List(ctx context.Context) ([]Info, error) {
	rows, err := l.db.Query(ctx, l.sql.list.query)
	if err != nil {
		return nil, l.explain("*", err)
	}
	defer func() { _ = rows.Close() }()
	var all []Info
	for rows.Next() {
		var i Info
		var owner, holder *string
		var since *time.Time
		var left int64
		if err := rows.Scan(&i.Name, &owner, &i.Token, &holder, &since, &left); err != nil {
			return nil, err
		}
		if owner != nil {
			i.Owner = *owner
		}
		if holder != nil {
			_ = json.Unmarshal([]byte(*holder), &i.Holder) // for people
		}
		if since != nil {
			i.Since = *since
		}
		i.Left = time.Duration(left) * time.Microsecond
		all = append(all, i)
	}
	return all, rows.Err()
}

// ForceRelease takes a lock away from its holder, whoever that is, also before its
// HoldAtLeast has passed. token is the holder's, as List or a [*lock.HeldError]
// tells it, so that nobody else's lock is hit. The holder learns of it with its next
// renewal, at the latest when a third of its TTL has passed; its Guard fails at once.
// [lock.ErrLost]: the lock is not held under that token. A lock that is pinned by a
// guard is refused with [lock.ErrHeld].
func (l *Locker) ForceRelease(ctx context.Context, name string, token int64) error {
	if err := lock.CheckName(name); err != nil {
		return err
	}
	st := l.sql.force
	for skipped := 0; ; {
		c, err := l.change(ctx, sqldb.Change{Op: "force the release of " + name, Query: st.query, Args: st.args(values{"name": l.text(name), "token": token})})
		switch {
		case err != nil:
			return l.explain(name, err)
		case c.RowsAffected > 0:
			return nil
		}
		held, err := l.look(ctx, name)
		switch {
		case err != nil:
			return err
		case held == nil || held.Token != token || held.Left <= 0:
			return fmt.Errorf("%w: %q is not held with token %d", lock.ErrLost, name, token)
		}
		// It is, and was skipped: a renewal has it for a moment, a guard for longer.
		if skipped++; skipped == forceTries {
			return held
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// forceTries is how often ForceRelease tries a row that it has skipped.
const forceTries = 10

// GC removes the rows of locks that have been free for longer than olderThan, and
// returns how many. Tokens go on growing: they begin at the clock's microseconds. A
// row costs about 200 bytes; names that come again need no GC. It removes 1,000 rows
// at a time, and skips those that somebody is at. What waiters have left that were
// shown ([ShowWaiters]) and died is removed, too, where this user may do that.
func (l *Locker) GC(ctx context.Context, olderThan time.Duration) (removed int64, err error) {
	if olderThan < time.Minute {
		return 0, fmt.Errorf("%w: GC: olderThan is %v; it has to be at least a minute", lock.ErrInvalid, olderThan)
	}
	return l.gc(ctx, olderThan)
}

func (l *Locker) gc(ctx context.Context, olderThan time.Duration) (removed int64, err error) {
	if removed, err = l.sweep(ctx, l.sql.gc, l.sql.gcRows, olderThan); err != nil {
		return removed, err
	}
	_, err = l.sweep(ctx, l.sql.gcWaiters, l.sql.gcWaiterRows, 0)
	if refuses(err) {
		err = nil // there is nothing that it has written
	}
	return removed, err
}

// sweep removes what find finds, or, where rows is not nil, what that makes of it.
func (l *Locker) sweep(ctx context.Context, find stmt, remove func([]rowKey, int64) (string, []any), olderThan time.Duration) (removed int64, err error) {
	age := values{"age": olderThan.Microseconds()}
	for {
		query, args, full := find.query, find.args(age), false
		if remove != nil {
			rows, err := l.oldRows(ctx, find, age)
			if err != nil || len(rows) == 0 {
				return removed, err
			}
			full = len(rows) == gcBatch
			query, args = remove(rows, olderThan.Microseconds())
		}
		var c *sqldb.Changed
		err := sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) (err error) {
			c, err = l.db.Change(ctx, sqldb.Change{Op: "gc", Query: query, Args: args})
			return err
		})
		if err != nil {
			return removed, l.explain("*", err)
		}
		removed += c.RowsAffected
		// Rows that are skipped are found again: what removes none of them ends it.
		if c.RowsAffected == 0 || c.RowsAffected < gcBatch && !full {
			return removed, nil
		}
	}
}

// oldRows reads the keys of rows that are to be removed.
func (l *Locker) oldRows(ctx context.Context, st stmt, age values) ([]rowKey, error) {
	rows, err := l.db.Query(ctx, st.query, st.args(age)...)
	if err != nil {
		return nil, l.explain("*", err)
	}
	defer func() { _ = rows.Close() }()
	var all []rowKey
	for rows.Next() {
		var r rowKey
		if err := rows.Scan(&r.name, &r.slot); err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, rows.Err()
}

// Attach makes a handle of a lock that is held already, by another process or an
// earlier life of this one, from its name, owner and token. It is not renewed from
// here: the handle lasts as long as the lease was when it was looked at, though
// whoever renews it may make it last longer, and Extend makes it last, but only where
// nobody else renews it any more. Close leaves it alone.
// [lock.ErrLost]: it is not held under that identity.
func (l *Locker) Attach(ctx context.Context, name, owner string, token int64) (*lock.Lock, error) {
	if err := lock.CheckName(name); err != nil {
		return nil, err
	}
	if owner == "" || token <= 0 {
		return nil, fmt.Errorf("%w: Attach of %q: owner %q, token %d", lock.ErrInvalid, name, owner, token)
	}
	if err := l.begin(); err != nil {
		return nil, fmt.Errorf("lock: %q: %w", name, err)
	}
	defer l.done()
	sent := time.Now()
	c, ours, err := l.settle(ctx, l.identity(name, owner))
	if err != nil {
		return nil, l.explain(name, err)
	}
	if ours {
		got, ok := l.token(c)
		ours = ok && got == token
	}
	row, err := l.look(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case !ours || row == nil || row.Token != token || row.Left <= 0:
		return nil, fmt.Errorf("%w: %q is not held by owner %s with token %d", lock.ErrLost, name, shorten(owner), token)
	}
	h := &held{l: l, identity: l.identity(name, owner), token: token, noRenew: true, sent: sent, first: sent, ttl: row.Left, want: row.Left, trace: l.trace}
	h.handle, h.ctrl = lock.New(lock.Grant{Name: name, Owner: owner, Token: token, Scope: l, Until: h.trusted(), Trace: l.trace}, h)
	return h.handle, nil
}
