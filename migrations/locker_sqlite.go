package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/sqlnative/locks/sqldb"
)

// sqliteLocker is the write lock of the file. SQLite has no lock that outlives a
// transaction, so it is taken at the beginning of each migration, and whoever gets
// it looks if the migration is still to be done.
type sqliteLocker struct {
	r       *run
	timeout int64 // busy_timeout of the connection, in milliseconds
}

// busyTimeout is how long SQLite itself waits for the file, in milliseconds: not
// for long, so that LockTimeout and ctx are heeded, whatever the pool has.
const busyTimeout = 100

func (l *sqliteLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if err := conn.QueryRowContext(ctx, "PRAGMA busy_timeout").Scan(&l.timeout); err != nil {
		return err
	}
	err := l.setTimeout(ctx, conn, busyTimeout)
	if err == nil {
		err = l.patiently(ctx, func() error { return l.r.prepare(ctx, conn) })
	}
	if err == nil {
		err = l.r.locked()
	}
	if err != nil {
		_ = l.SessionUnlock(context.WithoutCancel(ctx), conn) // goose unlocks only what it has locked
	}
	return err
}

// SessionUnlock makes sure that no transaction goes back into the pool: after a
// COMMIT that readers have kept from the file, database/sql takes the transaction
// for ended, and SQLite does not.
func (l *sqliteLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := unlocking(ctx)
	defer cancel()
	_, _ = conn.ExecContext(ctx, "ROLLBACK") // that no transaction is active is the rule
	if err := l.setTimeout(ctx, conn, l.timeout); err != nil {
		discard(conn)
	}
	return nil
}

func (l *sqliteLocker) setTimeout(ctx context.Context, conn *sql.Conn, ms int64) error {
	var now int64
	return conn.QueryRowContext(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", ms)).Scan(&now)
}

// begin takes the write lock by a statement that changes nothing. As the first one
// of a transaction of any kind it waits; after a read it would fail at once.
func (l *sqliteLocker) begin(ctx context.Context, tx *sql.Tx, s Step) (bool, error) {
	err := l.patiently(l.r.ctx, func() error {
		_, err := tx.ExecContext(ctx, l.r.place.Forget(-1))
		return err
	})
	if err != nil {
		return false, err
	}
	state, err := (&store{r: l.r}).read(ctx, tx)
	return state.Has(s.Version) != s.Down, err
}

// again: where the DSN makes every transaction an immediate one, BEGIN itself,
// which is goose's, waits for the lock.
func (l *sqliteLocker) again(err error) (bool, error) {
	var failed *goose.PartialError
	if !busy(err) || errors.Is(err, ErrLockTimeout) || errors.As(err, &failed) && failed.Failed.Source.Version == l.r.begun {
		return false, nil
	}
	if failed != nil {
		err = failed.Err
	}
	return true, l.late(err)
}

// patiently repeats what the lock of the file refuses, until LockTimeout has passed.
func (l *sqliteLocker) patiently(ctx context.Context, f func() error) error {
	for waited := false; ; {
		err := f()
		if !busy(err) {
			if waited {
				l.r.waited()
			}
			return err
		}
		if err := l.late(err); err != nil {
			return err
		}
		if err := pause(ctx, 10*time.Millisecond, 40*time.Millisecond); err != nil {
			return err
		}
		waited = true
	}
}

func busy(err error) bool {
	class := sqldb.ClassOf(err)
	return class == sqldb.LockTimeout || class == sqldb.Serialization
}

func (l *sqliteLocker) late(err error) error {
	if l.r.left-time.Since(l.r.since) > 0 {
		return nil
	}
	return fmt.Errorf("%w, or another program writes, for %v: see who it is, or %s: %w", ErrLockTimeout, l.r.o.lockTimeout, waitLonger, err)
}
