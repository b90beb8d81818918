package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"

	"github.com/sqlnative/locks/advisory"
)

// pgLocker is an advisory lock of the session, polled.
type pgLocker struct {
	r       *run
	session *advisory.SessionLocker
}

func (l *pgLocker) SessionLock(ctx context.Context, conn *sql.Conn) (err error) {
	if err := l.session.SessionLock(ctx, conn); err != nil {
		return fmt.Errorf("taking the lock for migrations: %w", err)
	}
	defer func() {
		if err != nil {
			_ = l.SessionUnlock(ctx, conn)
		}
	}()
	if err := l.r.locked(); err != nil {
		return err
	}
	return l.r.prepare(ctx, conn)
}

func (l *pgLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_ = l.session.SessionUnlock(ctx, conn) // the migrations are what they are
	return nil
}

// errPooler is what a lock on another session means.
var errPooler = errors.New("the server session that runs this transaction is not the one that holds the lock for migrations: a proxy that pools transactions is in between (PgBouncer: pool_mode); connect to PostgreSQL directly")

// begin sets lock_timeout for the transaction, and looks if it runs on the session
// that has the lock.
func (l *pgLocker) begin(ctx context.Context, tx *sql.Tx, _ Step) (bool, error) {
	ms := strconv.FormatInt(max(1, l.r.ddlTimeout().Milliseconds()), 10)
	if _, err := tx.ExecContext(ctx, "SELECT set_config('lock_timeout', $1, true)", ms); err != nil {
		return false, err
	}
	ok, err := l.session.Holds(ctx, tx)
	if err == nil && !ok {
		err = errPooler
	}
	return false, err
}

func (l *pgLocker) again(error) (bool, error) { return false, nil }
