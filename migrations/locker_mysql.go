package migrations

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"time"
)

// mysqlLocker is a GET_LOCK, for MySQL and MariaDB.
type mysqlLocker struct {
	r        *run
	previous int64 // lock_wait_timeout of the session
}

// name has a fixed length and lower case: MySQL compares without case, and takes
// 64 characters at most. GET_LOCK is server-wide, so the database is part of it.
func (l *mysqlLocker) name() string {
	h := lockHash(l.r.place)
	return "sqllock_migrate_" + hex.EncodeToString(h[:16])
}

func (l *mysqlLocker) SessionLock(ctx context.Context, conn *sql.Conn) (err error) {
	defer func() {
		if err != nil {
			discard(conn)
		}
	}()
	for {
		// Slices of a second: a server thread whose client has gone waits to their end.
		var got sql.NullInt64
		if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK('"+l.name()+"', 1)").Scan(&got); err != nil {
			return fmt.Errorf("taking the lock for migrations: %w", err)
		}
		if !got.Valid {
			return errors.New("taking the lock for migrations: GET_LOCK answered NULL: the statement was killed, or max_statement_time is below a second")
		}
		if got.Int64 == 1 {
			break
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	if err := l.r.locked(); err != nil {
		return err
	}
	// DDL waits for transactions that have used the table: a year, by default.
	if err := conn.QueryRowContext(ctx, "SELECT @@SESSION.lock_wait_timeout").Scan(&l.previous); err != nil {
		return err
	}
	seconds := max(1, (l.r.ddlTimeout()+time.Second-1)/time.Second)
	if _, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %d", seconds)); err != nil {
		return err
	}
	return l.r.prepare(ctx, conn)
}

func (l *mysqlLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, unlockTimeout)
	defer cancel()
	_, err := conn.ExecContext(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %d", l.previous))
	var released sql.NullInt64
	if err == nil {
		err = conn.QueryRowContext(ctx, "SELECT RELEASE_LOCK('"+l.name()+"')").Scan(&released)
	}
	if err != nil || released.Int64 != 1 {
		discard(conn)
	}
	return nil // the migrations are what they are; the lock ends with the session
}

func (l *mysqlLocker) begin(context.Context, *sql.Tx, Step) (bool, error) { return false, nil }

func (l *mysqlLocker) again(error) (bool, error) { return false, nil }
