package std

import (
	"context"
	"database/sql"
	"errors"

	"github.com/sqlnative/locks/sqldb"
)

// ender is how a transaction of database/sql, or what wraps one, ends.
type ender interface {
	Commit() error
	Rollback() error
}

// transaction is a transaction of database/sql or of what wraps one.
type transaction struct {
	querier
	tx         ender
	end        func()
	rolledBack func(error) bool
}

// Commit commits; when ctx ends first, the connection is closed, and the error is
// ctx's.
func (t *transaction) Commit(ctx context.Context) error {
	err := t.failed(t.bounded(ctx, t.tx.Commit))
	if err != nil && t.rolledBack != nil && t.rolledBack(err) {
		return rolledBack{err}
	}
	return err
}

// rolledBack marks an error of COMMIT behind which nothing was applied.
type rolledBack struct{ error }

func (rolledBack) NotApplied() bool { return true }
func (r rolledBack) Unwrap() error  { return r.error }

// Rollback rolls back. A transaction that has ended already is no error.
func (t *transaction) Rollback(ctx context.Context) error {
	err := t.bounded(ctx, t.tx.Rollback)
	if errors.Is(err, sql.ErrTxDone) || notActive(err) {
		return nil
	}
	return t.failed(err)
}

// bounded runs f, which takes no ctx, and stops waiting for it when ctx ends.
// database/sql gives COMMIT the ctx that the transaction was begun with: ending
// that one ends the wait inside the driver too.
func (t *transaction) bounded(ctx context.Context, f func() error) error {
	if ctx.Done() == nil {
		err := f()
		t.finish()
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := f()
		t.finish()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		t.finish()
		return ctx.Err()
	}
}

func (t *transaction) finish() {
	if t.end != nil {
		t.end()
	}
}

// owning is a transaction that gives its connection back at its end, once.
type owning struct {
	sqldb.DriverTx
	conn  sqldb.DriverConn
	ended error // what its end has answered, if it has ended
}

func (o *owning) Commit(ctx context.Context) error {
	if o.ended != nil {
		return o.ended
	}
	err := o.DriverTx.Commit(ctx)
	if t, ok := o.DriverTx.(*byHand); ok && t.ended == nil {
		return err // to be committed again, or rolled back
	}
	return o.end(err)
}

func (o *owning) Rollback(ctx context.Context) error {
	if o.ended != nil {
		return nil
	}
	return o.end(o.DriverTx.Rollback(ctx))
}

// end gives the connection back; after any error its state is in doubt.
func (o *owning) end(err error) error {
	if o.ended = err; err == nil {
		o.ended = sql.ErrTxDone
	}
	_ = o.conn.Close(err != nil)
	return err
}
