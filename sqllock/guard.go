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

// Guard pins the row in the caller's transaction.
func (h *held) Guard(ctx context.Context, tx *sqldb.Tx) error {
	l := h.l
	if nested(tx) {
		return fmt.Errorf("%w: Guard of %q: a nested transaction of pgx is a savepoint, and rolling back to it would drop the guard: use the outermost one", lock.ErrInvalid, h.name)
	}
	if st := l.sql.guard; st.query != "" {
		switch ours, err := h.read(ctx, tx, st); {
		case err != nil:
			return l.explain(h.name, err)
		case !ours:
			return h.lostOrStale(ctx, tx)
		}
	}
	// Before anything is written: a transaction sees what it has written itself,
	// however old its snapshot.
	if st := l.sql.snapshot; st.query != "" {
		switch ours, err := h.read(ctx, tx, st); {
		case err != nil:
			return l.explain(h.name, err)
		case !ours:
			return &staleError{h.name}
		}
	}
	if st := l.sql.guardWrite; st.query != "" {
		switch res, err := tx.Exec(ctx, st.query, st.args(h.values())...); {
		case err != nil:
			return l.explain(h.name, err)
		case res.RowsAffected == 0:
			return h.lostOrStale(ctx, tx)
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
// REPEATABLE READ transaction the row as it was when that began. Only then is
// another connection asked for the truth, and not for long: the caller's
// transaction may have the only one of the pool. What is not known then is called
// stale: a new transaction will tell.
func (h *held) lostOrStale(ctx context.Context, tx *sqldb.Tx) error {
	if h.l.db.Kind() != sqldb.Postgres {
		return lock.ErrLost
	}
	var level string
	if err := tx.QueryRow(ctx, "SELECT current_setting('transaction_isolation')").Scan(&level); err != nil {
		return h.l.explain(h.name, err)
	}
	if strings.HasPrefix(level, "read ") {
		return lock.ErrLost
	}
	bounded, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	if _, ours, err := h.l.settle(bounded, h.identity); err == nil && !ours {
		return lock.ErrLost
	}
	return &staleError{h.name}
}

// staleError is [lock.ErrStaleSnapshot], in the class of the error with which a
// server says the same: so [sqldb.Retry] begins the transaction anew.
type staleError struct{ name string }

func (e *staleError) Error() string        { return fmt.Sprintf("%v: %q", lock.ErrStaleSnapshot, e.name) }
func (e *staleError) Is(target error) bool { return target == lock.ErrStaleSnapshot }

// SQLState is that of a serialization failure.
func (e *staleError) SQLState() string { return "40001" }

// nested reports whether tx is one of pgx's nested transactions.
func nested(tx *sqldb.Tx) bool {
	n, ok := tx.Driver().(interface{ Nested() bool })
	return ok && n.Nested()
}

// shorten is for errors: a text that somebody else has written.
func shorten(s string) string { return strings.ToValidUTF8(s[:min(len(s), 200)], "?") }
