package migrations

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/sqlnative/locks/advisory"
)

// mysqlLocker is a GET_LOCK, for MySQL and MariaDB. It also sets lock_wait_timeout for
// the session: DDL waits for transactions that have used the table, a year by default.
type mysqlLocker struct {
	r        *run
	session  *advisory.SessionLocker
	previous int64 // lock_wait_timeout of the session; 0: it was not changed
}

func (l *mysqlLocker) SessionLock(ctx context.Context, conn *sql.Conn) (err error) {
	if err := l.session.SessionLock(ctx, conn); err != nil {
		return fmt.Errorf("taking the lock for migrations: %w", err)
	}
	defer func() {
		if err != nil {
			_ = l.SessionUnlock(ctx, conn)
		}
	}()
	l.previous = 0
	if err := l.r.locked(); err != nil {
		return err
	}
	var previous int64
	if err := conn.QueryRowContext(ctx, "SELECT @@SESSION.lock_wait_timeout").Scan(&previous); err != nil {
		return err
	}
	l.previous = previous
	seconds := max(1, (l.r.ddlTimeout()+time.Second-1)/time.Second)
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %d", seconds)); err != nil {
		return err
	}
	return l.r.prepare(ctx, conn)
}

func (l *mysqlLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := unlocking(ctx)
	defer cancel()
	if l.previous > 0 {
		if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %d", l.previous)); err != nil {
			discard(conn)
			return nil // the lock ends with the session
		}
	}
	_ = l.session.SessionUnlock(ctx, conn) // the migrations are what they are
	return nil
}

func (l *mysqlLocker) begin(context.Context, *sql.Tx, Step) (bool, error) { return false, nil }

func (l *mysqlLocker) again(error) (bool, error) { return false, nil }
