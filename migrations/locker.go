package migrations

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"time"

	"github.com/pressly/goose/v3/lock"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/sqldb"
)

// locker lets one process migrate at a time. SessionLock also calls
// prepare, since nobody else can be doing so then.
type locker interface {
	lock.SessionLocker
	// begin prepares the transaction of a step. skip says that somebody else has
	// taken the step meanwhile.
	begin(ctx context.Context, tx *sql.Tx, s Step) (skip bool, err error)
	// again says if what failed was still waiting for the lock, and shall be done
	// again, or, with an error, has waited for long enough.
	again(err error) (waits bool, end error)
}

func newLocker(r *run) locker {
	if r.place.Kind == sqldb.SQLite {
		return &sqliteLocker{r: r}
	}
	// Galera and group replication are not refused: see the package's documentation.
	session, err := advisory.GooseLocker(r.db, lockName, advisory.Unchecked())
	if err != nil {
		panic("migrations: the lock for migrations: " + err.Error()) // the name is a good one, and the server has such locks
	}
	if r.place.Kind == sqldb.Postgres {
		return &pgLocker{r: r, session: session}
	}
	return &mysqlLocker{r: r, session: session}
}

// lockName is what is locked, together with schema and prefix of the tables.
const lockName = "sqllock migrations"

// locked is called with the lock held: from now on the caller's ctx is looked at
// between migrations only. If it has ended already, it ends here.
func (r *run) locked() error {
	r.held.Store(true)
	r.waited()
	return r.ctx.Err()
}

// unlocking bounds giving the lock back, which no context of the caller's ends.
func unlocking(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
}

// discard closes a connection for good when it is given back to the pool.
func discard(conn *sql.Conn) {
	_ = conn.Raw(func(any) error { return driver.ErrBadConn })
}

// prepare looks at what is in the way of the steps to come, and makes the table of
// versions where Up does not find it.
func (r *run) prepare(ctx context.Context, conn *sql.Conn) error {
	state, err := (&store{r: r}).read(ctx, conn)
	missing := schema.Missing(err)
	if err != nil && !missing {
		return r.place.ReadError(err)
	}
	if err := catalogOn(r.place, conn).refuseAny(ctx, r.o.pending(state, r.down), r.down); err != nil {
		return err
	}
	if r.down || !missing {
		return nil
	}
	tx, err := conn.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback() }()
	if r.place.Kind == sqldb.Postgres {
		if err := createSchema(ctx, tx, r.place); err != nil {
			return err
		}
	}
	for _, text := range schema.Bookkeeping(r.place.Kind).Up {
		if _, err := tx.ExecContext(ctx, r.place.Render(text)); err != nil {
			return fmt.Errorf("making the table of versions: %w", err)
		}
	}
	return tx.Commit()
}

// createSchema makes the schema where there is none. CREATE SCHEMA IF NOT EXISTS
// alone wants the right to make one even if it is there.
func createSchema(ctx context.Context, tx *sql.Tx, p schema.Place) error {
	var exists bool
	if err := tx.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_namespace WHERE nspname = $1)", p.Schema).Scan(&exists); err != nil {
		return err
	}
	if exists {
		return nil
	}
	if _, err := tx.ExecContext(ctx, "CREATE SCHEMA IF NOT EXISTS "+p.Kind.Quote(p.Schema)); err != nil {
		return fmt.Errorf("making the schema %s: %w", p.Schema, err)
	}
	return nil
}
