package advisory

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// GooseLocker makes a SessionLocker for goose, under which one process at a time
// migrates:
//
//	locker, err := advisory.GooseLocker(db, "migrations")
//	provider, err := goose.NewProvider(dialect, sqlDB, files, goose.WithSessionLocker(locker))
//	_, err = provider.Status(ctx) // makes goose's table of versions, under the lock
//	_, err = provider.Up(ctx)
//
// Status is there for the very first run. Up looks for what is pending before it takes
// the lock (as of goose 3.30), and makes that table if it is missing; on MySQL and
// MariaDB another process, which has the lock, may then find the table without its
// first row, and fail: "missing zero version migration" (pull request 1120 of
// pressly/goose would end that). Status takes the lock first.
// (On MySQL and MariaDB goose wants parseTime=true in the DSN for it.)
//
// The name is one like every other, with schema and prefix of db in front ([KeyOf]). It
// wants the connection of goose to be to the same database as db, and to be no pooler
// of transactions. SQLite is refused, with an error that wraps
// [errors.ErrUnsupported].
//
// On MySQL and MariaDB it is a GET_LOCK on the connection of goose, which the server
// hands over as soon as it is free. On a node of a Galera cluster, or of group
// replication, that is each node's own: SessionLock refuses it, unless [Unchecked] says
// that all migrate through the same node. On PostgreSQL it is an advisory lock of the
// session, polled every 50 to 150 ms: a waiter inside pg_advisory_lock has a snapshot,
// which a CREATE INDEX CONCURRENTLY in the process that migrates would wait for.
//
// Unchecked is the only option.
func GooseLocker(db *sqldb.DB, name string, opts ...lock.Option) (*SessionLocker, error) {
	key, err := KeyOf(db, name)
	if err != nil {
		return nil, err
	}
	return newSessionLocker(db, name, key, opts)
}

// GooseKeyLocker is [GooseLocker] for a [Key], such as the one that another tool locks
// while it migrates.
func GooseKeyLocker(db *sqldb.DB, key Key, opts ...lock.Option) (*SessionLocker, error) {
	if db == nil {
		return nil, fmt.Errorf("%w: advisory.GooseKeyLocker: the *sqldb.DB is nil", lock.ErrInvalid)
	}
	key, err := key.on(db.Kind())
	if err != nil {
		return nil, err
	}
	return newSessionLocker(db, key.String(), key, opts)
}

func newSessionLocker(db *sqldb.DB, name string, key Key, opts []lock.Option) (*SessionLocker, error) {
	for _, opt := range opts {
		o, err := lock.Collect(strategy, 0, nil, []lock.Option{opt})
		if err != nil {
			return nil, err
		}
		if !configOf(o).unchecked {
			return nil, fmt.Errorf("lock: a locker for goose honours no option but advisory.Unchecked: %w", errUnsupported)
		}
	}
	return &SessionLocker{db: db, name: name, key: key, unchecked: len(opts) > 0}, nil
}

// SessionLocker locks a session of the caller's. It implements the interface
// SessionLocker of github.com/pressly/goose/v3/lock. It is safe for concurrent use, by
// sessions that then exclude each other.
type SessionLocker struct {
	db        *sqldb.DB
	name      string
	key       Key
	unchecked bool
}

// SessionLock waits until the session of conn has the lock, or ctx ends: then the
// error is a [*lock.HeldError] that also matches ctx's. With any error the session is
// closed, so that a grant that came too late does not stay behind; only a server that is
// refused is so before anything was asked for.
func (l *SessionLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	begun := time.Now()
	if err := l.refuse(ctx, conn); err != nil {
		return fmt.Errorf("lock: %q: %w", l.name, err)
	}
	held := false
	for {
		var ok bool
		var err error
		if l.db.Kind() == sqldb.Postgres {
			ok, err = l.tryPostgres(ctx, conn, held)
		} else {
			ok, err = l.tryMySQL(ctx, conn, held)
		}
		if ok {
			return nil
		}
		if err == nil {
			held, err = true, ctx.Err()
		}
		if err == nil {
			continue
		}
		l.abandon(conn)
		if ctx.Err() == nil || !held {
			return fmt.Errorf("lock: %q: %w", l.name, err)
		}
		e := lookAtHolder(ctx, l.db, l.key)
		e.Name, e.Waited, e.Err = l.name, time.Since(begun), ctx.Err()
		return e
	}
}

// refuse looks at the server before anything is locked.
func (l *SessionLocker) refuse(ctx context.Context, conn *sql.Conn) error {
	if l.unchecked || !l.db.Kind().InnoDB() {
		return nil
	}
	rows, err := conn.QueryContext(ctx, replicationMySQL)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	return replicated(rows)
}

// SessionUnlock gives the lock back, within 5 s, also when ctx has ended. If there is
// no answer the session is closed, and the lock ends with it. A [*lock.LostError] says
// that the session did not have the lock any more, so that another may have been at
// work at the same time; that session is closed too.
func (l *SessionLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lock.ReleaseBound)
	defer cancel()
	var query string
	var args []any
	if l.db.Kind() == sqldb.Postgres {
		call, a := l.key.pg("pg_advisory_unlock")
		query, args = "SELECT CASE WHEN "+call+" THEN 1 ELSE 0 END", a
	} else {
		query, args = "SELECT RELEASE_LOCK(?)", []any{l.key.name}
	}
	var released sql.NullInt64
	err := conn.QueryRowContext(ctx, query, args...).Scan(&released)
	if err == nil && released.Int64 == 1 {
		return nil
	}
	l.abandon(conn)
	if err != nil {
		return nil // the session ends, and the lock with it
	}
	return &lock.LostError{Name: l.name, Reason: "its session did not have it when it was given back"}
}

// Holds reports whether the session that q runs on, such as the transaction of a
// migration, has the lock. It does not if that is another session than the one of
// SessionLock: a proxy that pools transactions is in between.
func (l *SessionLocker) Holds(ctx context.Context, q interface {
	QueryRowContext(ctx context.Context, query string, args ...any) *sql.Row
},
) (bool, error) {
	query, args := "SELECT COALESCE(IS_USED_LOCK(?) = CONNECTION_ID(), 0)", []any{l.key.name}
	if l.db.Kind() == sqldb.Postgres {
		upper, lower, sub := l.key.halves()
		query, args = holdsPostgres, []any{upper, lower, sub}
	}
	var holds bool
	if err := q.QueryRowContext(ctx, query, args...).Scan(&holds); err != nil {
		return false, fmt.Errorf("lock: %q: %w", l.name, err)
	}
	return holds, nil
}

// tryPostgres tries, after a pause if it was tried before.
func (l *SessionLocker) tryPostgres(ctx context.Context, conn *sql.Conn, again bool) (ok bool, err error) {
	if again {
		if err := pollPause(ctx); err != nil {
			return false, err
		}
	}
	call, args := l.key.pg("pg_try_advisory_lock")
	err = conn.QueryRowContext(ctx, "SELECT "+call, args...).Scan(&ok)
	return ok, err
}

// tryMySQL tries, and if it was tried before, waits in the server. It does so for a
// second: a server thread whose client has gone waits to the end of it.
func (l *SessionLocker) tryMySQL(ctx context.Context, conn *sql.Conn, again bool) (bool, error) {
	seconds := 0
	if again {
		seconds = 1
	}
	var got sql.NullInt64
	if err := conn.QueryRowContext(ctx, "SELECT GET_LOCK(?, ?)", l.key.name, seconds).Scan(&got); err != nil {
		return false, err
	}
	if !got.Valid {
		return false, errors.New("GET_LOCK answered NULL: the statement was killed, or max_statement_time is below a second")
	}
	return got.Int64 == 1, nil
}

// pollPause is between two tries on PostgreSQL: of random length, so that waiters do
// not try in step.
func pollPause(ctx context.Context) error {
	timer := time.NewTimer(50*time.Millisecond + rand.N(100*time.Millisecond))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// abandon ends the session, and the lock with it. On PostgreSQL closing the connection
// is not enough: behind a *sql.DB that pgx makes of its pool, it only goes back there.
func (l *SessionLocker) abandon(conn *sql.Conn) {
	if l.db.Kind() == sqldb.Postgres {
		ctx, cancel := context.WithTimeout(context.Background(), lock.ReleaseBound)
		defer cancel()
		_, _ = conn.ExecContext(ctx, "SELECT pg_terminate_backend(pg_backend_pid())")
	}
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}
