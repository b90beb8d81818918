package sqllock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// held is a lock that was granted: what [lock.Lock] asks of the strategy.
type held struct {
	l           *Locker
	name, owner string
	token       int64
	atMost      time.Duration // 0: no end but the lease's
	noRenew     bool
	handle      *lock.Lock
	ctrl        *lock.Controller
	trace       *lock.Trace

	// sent and ttl are changed by renewals, under the renewer's mutex once the lock is
	// known to it. first is when the grant was sent.
	sent  time.Time
	first time.Time
	ttl   time.Duration
	retry time.Time // a renewal has failed, or the row was skipped: try again then
}

var _ lock.Strategy = (*held)(nil)

// lease is how long the first lease is.
func (h *held) lease() time.Duration {
	if h.atMost > 0 {
		return min(h.ttl, h.atMost)
	}
	return h.ttl
}

// trusted is until when the lease that was asked for at h.sent can be trusted.
func (h *held) trusted() time.Time {
	if h.first.IsZero() {
		h.first = h.sent
	}
	until := lock.TrustedUntil(h.sent, h.ttl)
	if h.atMost > 0 {
		if end := lock.TrustedUntil(h.first, h.atMost); end.Before(until) {
			return end
		}
	}
	return until
}

func (h *held) values() values {
	return values{"name": h.l.text(h.name), "owner": h.l.text(h.owner), "token": h.token}
}

// Lost ends the renewal.
func (h *held) Lost() {
	h.l.renew.forget(h)
	h.l.remove(h)
}

// Release frees the row.
func (h *held) Release(ctx context.Context) error {
	h.l.renew.remove(h) // also waits for a renewal that is under way
	err := h.l.free(ctx, h.name, h.owner, h.token)
	if err == nil || errors.Is(err, lock.ErrLost) || ctx.Err() != nil {
		h.l.remove(h)
	}
	return err
}

// free releases by identity, as often as it may help until ctx ends.
func (l *Locker) free(ctx context.Context, name, owner string, token int64) error {
	st := l.sql.release
	v := values{"name": l.text(name), "owner": l.text(owner), "token": token}
	unsure := false // a statement without an answer may have freed it
	for skipped := 0; ; {
		c, err := l.db.Change(ctx, sqldb.Change{Op: "release " + name, Query: st.query, Args: st.args(v)})
		switch {
		case err == nil && c.RowsAffected > 0:
			return nil
		case err == nil:
			_, ours, err := l.settle(ctx, name, owner)
			switch {
			case err != nil:
				return err
			case !ours && unsure:
				return nil // an earlier statement, whose answer did not come, has freed it
			case !ours:
				return lock.ErrLost
			}
			// Ours, and skipped: a guard of our own pins it on MySQL and MariaDB.
			if skipped++; skipped == skippedTries {
				return errors.New("a transaction pins the row, most likely a guard of its own that has not ended")
			}
		case sqldb.Uncertain(err):
			unsure = true
		case !sqldb.Retryable(err):
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		time.Sleep(time.Millisecond)
	}
}

// ReleaseIn frees the row with the caller's commit.
func (h *held) ReleaseIn(ctx context.Context, tx *sqldb.Tx) error {
	st := h.l.sql.releaseTx
	res, err := tx.Exec(ctx, st.query, st.args(h.values())...)
	switch {
	case err != nil:
		return h.l.explain(h.name, err)
	case res.RowsAffected == 0:
		return lock.ErrLost
	}
	h.l.renew.remove(h)
	h.l.remove(h)
	return nil
}

// Extend makes the lease ttl long from now.
func (h *held) Extend(ctx context.Context, ttl time.Duration) (time.Time, error) {
	l := h.l
	if h.atMost > 0 {
		return time.Time{}, fmt.Errorf("lock: %q was acquired with AtMost, and cannot be extended: %w", h.name, errors.ErrUnsupported)
	}
	st := l.sql.extend
	v := h.values()
	v["ttl"] = ttl.Microseconds()
	for try := 1; ; try++ {
		sent := time.Now()
		c, err := l.db.Change(ctx, sqldb.Change{Op: "extend " + h.name, Query: st.query, Args: st.args(v)})
		if err != nil {
			return time.Time{}, l.explain(h.name, err)
		}
		if c.RowsAffected > 0 {
			return l.renew.extended(h, sent, ttl), nil
		}
		switch _, ours, err := l.settle(ctx, h.name, h.owner); {
		case err != nil:
			return time.Time{}, l.explain(h.name, err)
		case !ours:
			return time.Time{}, lock.ErrLost
		case try == skippedTries:
			return time.Time{}, fmt.Errorf("lock: %q: a transaction pins the row, most likely a guard of its own that has not ended; its lease stays as it is", h.name)
		}
		time.Sleep(300 * time.Microsecond)
	}
}

// Guard pins the row in the caller's transaction.
func (h *held) Guard(ctx context.Context, tx *sqldb.Tx) error {
	l := h.l
	if nested(tx) {
		return fmt.Errorf("%w: Guard of %q: a nested transaction of pgx is a savepoint, and rolling back to it would drop the guard: use the outermost one", lock.ErrInvalid, h.name)
	}
	v := h.values()
	if st := l.sql.guardWrite; st.query != "" {
		res, err := tx.Exec(ctx, st.query, st.args(v)...)
		if err != nil {
			return l.explain(h.name, err)
		}
		if res.RowsAffected == 0 {
			return h.lostOrStale(ctx)
		}
	} else if ours, err := h.read(ctx, tx, l.sql.guard); err != nil {
		return l.explain(h.name, err)
	} else if !ours {
		return h.lostOrStale(ctx)
	}
	if st := l.sql.snapshot; st.query != "" {
		ours, err := h.read(ctx, tx, st)
		if err != nil {
			return l.explain(h.name, err)
		}
		if !ours {
			return fmt.Errorf("%w: %q", lock.ErrStaleSnapshot, h.name)
		}
	}
	return nil
}

// read reports whether the transaction sees the row as ours.
func (h *held) read(ctx context.Context, tx *sqldb.Tx, st stmt) (bool, error) {
	var owner string
	var token int64
	err := tx.QueryRow(ctx, st.query, st.args(h.values())...).Scan(&owner, &token)
	if errors.Is(err, sql.ErrNoRows) {
		return false, nil
	}
	return err == nil, err
}

// lostOrStale is why a transaction does not see the row as ours: PostgreSQL shows a
// REPEATABLE READ transaction the row as it was when it began.
func (h *held) lostOrStale(ctx context.Context) error {
	if h.l.db.Kind() != sqldb.Postgres {
		return lock.ErrLost
	}
	_, ours, err := h.l.settle(ctx, h.name, h.owner)
	switch {
	case err != nil:
		return h.l.explain(h.name, err)
	case ours:
		return fmt.Errorf("%w: %q", lock.ErrStaleSnapshot, h.name)
	}
	return lock.ErrLost
}

// nested reports whether tx is one of pgx's nested transactions.
func nested(tx *sqldb.Tx) bool {
	n, ok := tx.Driver().(interface{ Nested() bool })
	return ok && n.Nested()
}

// shorten is for errors: a holder's text that somebody else has written.
func shorten(s string) string { return strings.ToValidUTF8(s[:min(len(s), 200)], "?") }
