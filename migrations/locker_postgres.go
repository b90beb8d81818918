package migrations

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"time"
)

// pgLocker is an advisory lock of the session. It polls: a waiter inside
// pg_advisory_lock holds a snapshot, and a CREATE INDEX CONCURRENTLY of who holds
// the lock would wait for that one, for ever.
type pgLocker struct{ r *run }

func (l *pgLocker) key() int64 {
	h := lockHash(l.r.place)
	return int64(binary.BigEndian.Uint64(h[:8]))
}

func (l *pgLocker) SessionLock(ctx context.Context, conn *sql.Conn) (err error) {
	defer func() {
		if err != nil {
			l.abandon(conn)
		}
	}()
	for {
		var ok bool
		if err := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1)", l.key()).Scan(&ok); err != nil {
			return fmt.Errorf("taking the lock for migrations: %w", err)
		}
		if ok {
			break
		}
		if err := pause(ctx, 50*time.Millisecond, 100*time.Millisecond); err != nil {
			return err
		}
	}
	if err := l.r.locked(); err != nil {
		return err
	}
	return l.r.prepare(ctx, conn)
}

func (l *pgLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, unlockTimeout)
	defer cancel()
	var ok bool
	err := conn.QueryRowContext(ctx, "SELECT pg_advisory_unlock($1)", l.key()).Scan(&ok)
	if err == nil && ok {
		return nil
	}
	l.abandon(conn)
	return nil // the migrations are what they are; the lock ends with the session
}

// abandon ends the session, and the lock with it. Closing the connection is not
// enough: behind a *sql.DB that pgx makes of its pool, it only goes back there.
func (l *pgLocker) abandon(conn *sql.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), unlockTimeout)
	defer cancel()
	_, _ = conn.ExecContext(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
	discard(conn)
}

// errPooler is what a lock on another session means.
var errPooler = errors.New("the server session that runs this transaction is not the one that holds the lock for migrations: a proxy that pools transactions is in between (PgBouncer: pool_mode); connect to PostgreSQL directly")

// begin sets lock_timeout for the transaction. The lock is taken once more, by the
// transaction: within the session that holds it that is free, in another one it
// fails.
func (l *pgLocker) begin(ctx context.Context, tx *sql.Tx, _ Step) (bool, error) {
	var set string
	var ok bool
	ms := strconv.FormatInt(max(1, l.r.ddlTimeout().Milliseconds()), 10)
	err := tx.QueryRowContext(ctx, "SELECT set_config('lock_timeout', $1, true), pg_try_advisory_xact_lock($2)", ms, l.key()).Scan(&set, &ok)
	if err == nil && !ok {
		err = errPooler
	}
	return false, err
}

func (l *pgLocker) again(error) (bool, error) { return false, nil }
