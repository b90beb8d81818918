package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// AcquireTx takes the lock for the caller's transaction: no TTL, no heartbeat,
// nothing to release; the commit or the rollback frees it (a rollback to a savepoint
// from before it, too). It waits, in the server, for other transactions that have the
// lock or guard it after its lease has run out, as long as ctx and the server's own
// lock time-out allow. A lease that somebody holds is not waited for: it is a
// [*lock.HeldError], after which the transaction should be rolled back. Whoever held
// an expired lease before can no longer guard it once this has been committed: the
// token is raised.
//
// Call it before the transaction reads what the lock protects. Under REPEATABLE READ
// a transaction that has read before sees what was then: if the lock was had by
// another since, that is [lock.ErrStaleSnapshot] on MySQL and MariaDB, and a
// serialization failure on PostgreSQL, where a transaction that has waited always is
// one. Errors that [sqldb.Retryable] reports, these among them, ask for the
// transaction to be begun anew.
//
// The first touch of a name makes its row, committed beforehand, on another
// connection of the pool. If none can be had soon, since all of them are in
// transactions that may wait for the same, AcquireTx makes it in the transaction, and
// TryAcquireTx, which would have to wait for others who do so, answers an error that
// names the pool. On MySQL and MariaDB another connection is asked first also later,
// if one is to be had at once: who holds a lease is then found without a lock on the
// row.
//
// Of the options only Label and WithTrace mean something here; the others are
// refused.
func AcquireTx(ctx context.Context, tx *sqldb.Tx, name string, opts ...lock.Option) error {
	return acquireTx(ctx, tx, name, opts, true)
}

// TryAcquireTx is [AcquireTx] without waiting: a transaction that has the lock is a
// [*lock.HeldError] too. (SQLite has one write lock for all transactions, for which
// the transaction itself has waited.)
func TryAcquireTx(ctx context.Context, tx *sqldb.Tx, name string, opts ...lock.Option) error {
	return acquireTx(ctx, tx, name, opts, false)
}

func acquireTx(ctx context.Context, tx *sqldb.Tx, name string, opts []lock.Option, wait bool) error {
	o, err := lock.Collect("sqllock.AcquireTx", 0, nil, opts)
	if err == nil {
		err = lock.CheckName(name)
	}
	switch {
	case err != nil:
		return err
	case o.TTL != lock.DefaultTTL || o.Wait != lock.Forever || o.Reentrant:
		return fmt.Errorf("lock: sqllock.AcquireTx cannot honour TTL, Wait, Try or Reentrant: it lasts as long as the transaction; TryAcquireTx does not wait: %w", errors.ErrUnsupported)
	case tx == nil:
		return fmt.Errorf("%w: AcquireTx of %q: the transaction is nil", lock.ErrInvalid, name)
	case tx.Err() != nil:
		return fmt.Errorf("%w: AcquireTx of %q: %w", lock.ErrInvalid, name, tx.Err())
	}
	l := &Locker{db: tx.DB(), sql: statementsFor(tx.DB(), false)}
	t := &txTaker{l: l, tx: tx, name: name, wait: wait, v: values{"name": l.text(name), "holder": me(o.Label)}}
	begun := time.Now()
	if l.db.Kind().InnoDB() {
		err = t.innodb(ctx)
	} else {
		err = t.take(ctx)
	}
	e := lock.Event{Name: name, Took: time.Since(begun), Err: err}
	if err != nil {
		o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Refused }, e)
		return err
	}
	o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Acquired }, e)
	return nil
}

// txTaker takes a lock for a transaction.
type txTaker struct {
	l    *Locker
	tx   *sqldb.Tx
	name string
	wait bool
	v    values
}

// txTries bounds how often a row is tried that comes free between a look and a try.
const txTries = 10

// take is PostgreSQL and SQLite: the statement takes, and what it leaves is looked
// at in the transaction, so that no second connection is needed but for a first
// touch; and on SQLite not even there: the transaction has the one write lock, and
// another connection would wait for it for ever.
func (t *txTaker) take(ctx context.Context) error {
	l := t.l
	st := l.sql.tryTx
	if t.wait {
		st = l.sql.acquireTx
	}
	touched := false
	for try := 1; ; try++ {
		n, err := t.run(ctx, st)
		if err != nil {
			return l.explain(t.name, err)
		}
		if n > 0 {
			return nil
		}
		held, err := l.lookOn(ctx, t.tx, l.sql.look, t.name)
		switch {
		case err != nil:
			return err
		case held != nil && (held.Left > 0 || !t.wait && try > 1 || try == txTries):
			return held
		case held != nil:
		case touched && l.db.Kind() == sqldb.Postgres && try > 2:
			return &staleError{t.name} // the snapshot is from before its row
		case l.db.Kind() == sqldb.SQLite:
			if err := t.touchHere(ctx); err != nil {
				return err
			}
		default:
			if err := t.touch(ctx); err != nil {
				return err
			}
			touched = true
		}
	}
}

// touch makes the row: beside the transaction, or in it if no other connection can
// be had. Twenty transactions in a pool of sixteen that all waited for one more
// connection would wait for ever.
func (t *txTaker) touch(ctx context.Context) error {
	bounded, cancel := context.WithTimeout(ctx, touchBound)
	defer cancel()
	err := t.l.touch(bounded, t.name)
	switch {
	case err == nil || bounded.Err() == nil || ctx.Err() != nil:
		return err
	case !t.wait:
		return &againError{fmt.Errorf("lock: %q: its row is not there, and could not be made beside this transaction: %w", t.name, err)}
	}
	return t.touchHere(ctx)
}

// touchHere makes it in the transaction: it waits for others who do the same.
func (t *txTaker) touchHere(ctx context.Context) error {
	st := t.l.sql.touchTx
	if _, err := t.tx.Exec(ctx, st.query, st.args(t.v)...); err != nil {
		return t.l.explain(t.name, err)
	}
	return nil
}

func (t *txTaker) run(ctx context.Context, st stmt) (int64, error) {
	rows, err := t.tx.Query(ctx, st.query, st.args(t.v)...)
	if err != nil {
		return 0, err
	}
	var n int64
	for rows.Next() {
		n++
	}
	return n, errors.Join(rows.Err(), rows.Close())
}

// How long another connection is asked, and asked to make a row.
const (
	lookBound  = 30 * time.Millisecond
	touchBound = 500 * time.Millisecond
)

// innodb is MySQL and MariaDB. There a statement that finds no row locks, under
// REPEATABLE READ, the gap where it would be, and the first touch on another
// connection would wait for the transaction that waits for it. A statement that finds
// a row locks it, also if its WHERE is false, and then its holder could not renew. And
// a plain read in the transaction would make its snapshot, before the lock was had. So
// another connection looks first; but only if one is to be had at once, since
// transactions that each wait for a second connection can wait for each other. If it
// is not, AcquireTx makes the row if it is missing, by a statement that locks it if it
// is there.
func (t *txTaker) innodb(ctx context.Context) error {
	l := t.l
	for try := 1; ; try++ {
		seen, known := t.lookBeside(ctx)
		var err error
		switch {
		case known && seen != nil && seen.Left > 0:
			return seen
		case known && seen == nil:
			err = t.touch(ctx)
		case !known && t.wait:
			err = t.touchHere(ctx)
		}
		if err != nil {
			return err
		}
		st := l.sql.tryTx
		if t.wait {
			st = l.sql.acquireTx
		}
		held, err := l.lookOn(ctx, t.tx, st, t.name)
		switch {
		case err != nil:
			return err
		case held != nil && held.Left > 0:
			return held
		case held != nil:
			return t.locked(ctx, held)
		case !t.wait && seen != nil:
			return seen // it was skipped
		case try == 2:
			return &againError{fmt.Errorf("lock: %q: its row is not there, or another transaction has it; begin this one anew, with a connection of the pool left", t.name)}
		}
	}
}

// lookBeside looks at the row on another connection, if one is to be had at once.
func (t *txTaker) lookBeside(ctx context.Context) (held *lock.HeldError, known bool) {
	if t.l.db.Driver().MaxConns() == 1 {
		return nil, false
	}
	bounded, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	held, err := t.l.look(bounded, t.name)
	return held, err == nil
}

// locked takes the row that the transaction has locked. What the transaction sees
// of it is read before it is written: if that is another state, its snapshot is
// from before another had the lock.
func (t *txTaker) locked(ctx context.Context, held *lock.HeldError) error {
	l := t.l
	version := func(lock string) (token int64, expires string, err error) {
		st := l.sql.versionTx
		err = t.tx.QueryRow(ctx, st.query+lock, st.args(t.v)...).Scan(&token, &expires)
		return token, expires, err
	}
	now, expires, err := version(" FOR UPDATE")
	if err != nil {
		return l.explain(t.name, err)
	}
	then, expired, err := version("")
	switch {
	case noRows(err) || err == nil && (then != now || expired != expires):
		return &staleError{t.name}
	case err != nil:
		return l.explain(t.name, err)
	}
	res, err := t.tx.Exec(ctx, l.sql.takeTx.query, l.sql.takeTx.args(t.v)...)
	switch {
	case err != nil:
		return l.explain(t.name, err)
	case res.RowsAffected == 0:
		return held // the clock has gone back
	}
	return nil
}

// againError asks for the transaction to be begun anew: it is in the class of a
// serialization failure.
type againError struct{ err error }

func (e *againError) Error() string { return e.err.Error() }
func (e *againError) Unwrap() error { return e.err }

// SQLState is that of a serialization failure.
func (e *againError) SQLState() string { return "40001" }
