package sqldb

import (
	"context"
	"errors"
	"fmt"
)

// Tx is a transaction: one that the caller has begun, as [DB.Tx] makes it, or
// one of [DB.InTx]. It is used by one goroutine at a time, as the transaction
// itself is.
//
// On MySQL and MariaDB the server ends the whole transaction on a deadlock (1213)
// and on a changed snapshot (1020), while the driver's transaction object knows
// nothing of it: its next statement would run in autocommit, and stay. So Tx rolls
// that object back itself as soon as it sees one of the two; from then on it
// answers database/sql's ErrTxDone to everybody who holds it. SQLite may do the same
// when a statement is interrupted by its ctx, or runs out of disk or memory, and
// there Tx does it then.
type Tx struct {
	db  *DB
	drv DriverTx
	// own: InTx ends it. A connection that breaks under a statement of it has no
	// COMMIT behind it that could have been applied.
	own bool
	err error
}

// Tx makes a Tx of a transaction that the caller has begun: a pgx.Tx, an
// [*database/sql.Tx], or anything with database/sql's ExecContext, QueryContext,
// Commit and Rollback, such as GORM's tx.Statement.ConnPool. A wrapper that
// embeds an *sql.Tx (sqlx.Tx, bun.Tx) is looked through: the statements of sqllock
// go to the *sql.Tx itself, past the wrapper's rewriting of placeholders.
//
// Whatever is no transaction, a pool above all, is refused: every statement of
// the Tx answers why, before any SQL runs. The Tx does not own the transaction:
// to commit and to roll back stay with the caller.
func (db *DB) Tx(x any) *Tx {
	drv, err := db.drv.Tx(x)
	if err != nil {
		err = fmt.Errorf("sqldb: Tx(%T): %w", x, err)
	}
	return &Tx{db: db, drv: drv, err: err}
}

// Err says why the Tx cannot be used: what it was made of is no transaction, or
// the server has ended it. It is nil for one that can.
func (tx *Tx) Err() error { return tx.err }

// Own reports whether it is a transaction of [DB.InTx], and not a caller's: on SQLite,
// one that has the write lock since it began, unless it is read-only.
func (tx *Tx) Own() bool { return tx.own }

// DB is the database that the transaction belongs to.
func (tx *Tx) DB() *DB { return tx.db }

// Driver is what the adapter made. It is for the packages of sqllock.
func (tx *Tx) Driver() DriverTx { return tx.drv }

func (tx *Tx) sealed() {}

// Exec runs a statement in the transaction.
func (tx *Tx) Exec(ctx context.Context, query string, args ...any) (Result, error) {
	if tx.err != nil {
		return Result{}, tx.err
	}
	a, err := tx.db.args(args)
	if err != nil {
		return Result{}, err
	}
	res, err := tx.drv.Exec(ctx, query, a)
	if err != nil {
		return res, tx.failed(err)
	}
	return res, nil
}

// Query runs a statement that answers rows in the transaction. Close them before
// the next statement.
func (tx *Tx) Query(ctx context.Context, query string, args ...any) (*Rows, error) {
	if tx.err != nil {
		return nil, tx.err
	}
	return tx.db.query(ctx, tx.drv, tx.failed, query, args)
}

// QueryRow runs a statement of which one row matters in the transaction.
func (tx *Tx) QueryRow(ctx context.Context, query string, args ...any) *Row {
	rows, err := tx.Query(ctx, query, args...)
	return &Row{rows: rows, err: err}
}

// failed ends the caller's transaction object where the server has ended the
// transaction. It does so at once: between the error and the caller's own
// Rollback another statement could run, in autocommit, and would stay.
//
// In a transaction of InTx it also marks the loss of the connection: of an error that
// fn returns, only what came through here is known to have left nothing behind, and
// not, say, what a COMMIT to another database has answered.
func (tx *Tx) failed(err error) error {
	if tx.own && ClassOf(err) == ConnLost {
		err = undone{err}
	}
	if !endsTransaction(tx.db.kind, err) {
		return err
	}
	// The connection is idle: the server has answered. Rollback is for the object,
	// so no context of the caller's may keep it from running.
	ctx, cancel := context.WithTimeout(context.Background(), Bound)
	defer cancel()
	rbErr := tx.drv.Rollback(ctx)
	tx.err = fmt.Errorf("sqldb: the server has rolled this transaction back: %w", err)
	if rbErr != nil {
		return errors.Join(err, undone{fmt.Errorf("sqldb: ending the transaction object: %w", rbErr)})
	}
	return err
}

// InTx runs fn in a transaction of its own and commits it, or rolls it back if
// fn returns an error or panics. It is the caller's ctx that fn's statements run
// under, and that is safe: until COMMIT is sent, a ctx that ends rolls everything
// back. COMMIT itself runs detached from ctx and is bounded by [Bound]. What InTx
// returns is therefore the truth: nil, and everything was applied; an error, and
// nothing was; or an [*UncertainError], where no answer to COMMIT came.
//
// InTx does not repeat anything; [Retry] does.
func (db *DB) InTx(ctx context.Context, opts TxOptions, fn func(ctx context.Context, tx *Tx) error) (err error) {
	if err := ctx.Err(); err != nil {
		return err
	}
	drv, err := db.drv.Begin(ctx, opts)
	if err != nil {
		if ctx.Err() != nil && neverSent(err) {
			err = ctx.Err() // go-sql-driver: it ended while the connection was made
		}
		return undone{fmt.Errorf("sqldb: begin: %w", err)}
	}
	tx := &Tx{db: db, drv: drv, own: true}
	detached := func(end func(context.Context) error) error {
		c, cancel := context.WithTimeout(context.WithoutCancel(ctx), Bound)
		defer cancel()
		return end(c)
	}
	commit := func(ctx context.Context) error { return db.commitBusy(ctx, drv) }
	done := false
	defer func() {
		if !done { // fn panicked, or called runtime.Goexit
			_ = detached(drv.Rollback)
		}
	}()
	err = fn(ctx, tx)
	if err == nil {
		err = tx.err // fn swallowed the error that ended the transaction
	}
	if err == nil {
		err = ctx.Err()
	}
	done = true
	if err != nil {
		_ = detached(drv.Rollback)
		return err
	}
	if err := detached(commit); err != nil {
		_ = detached(drv.Rollback) // SQLite: COMMIT can fail and leave it open
		if certain(err) {
			return fmt.Errorf("sqldb: commit: %w", err)
		}
		return &UncertainError{Op: "commit", Err: err}
	}
	return nil
}
