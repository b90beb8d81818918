package advisory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// AcquireTx takes the lock for the caller's transaction (pg_advisory_xact_lock): no
// TTL, nothing to release, no second connection; the server frees it when the
// transaction ends, however that comes about. PostgreSQL only: on MySQL and MariaDB
// the error wraps [errors.ErrUnsupported], and sqllock.AcquireTx does the same with a
// table. It is the lock that Acquire of the same name takes: each of the two waits for
// the other. So does one program for itself: who holds the name through a Locker must
// not ask for it again in a transaction.
//
// It waits in the server, as long as ctx and the server's own lock_timeout and
// statement_timeout allow. A wait that one of them has ended is a [*lock.HeldError],
// and has aborted the transaction, as every error does on PostgreSQL: roll it back. So
// has a deadlock; the error names the lock. Both [sqldb.Retryable] reports, unless it
// was ctx or statement_timeout.
//
// Call it before the transaction reads what the lock protects. Every statement after
// it then sees what the holder before has committed, under READ COMMITTED. Under
// REPEATABLE READ and SERIALIZABLE they would see what was there before the lock was
// waited for: the statement that waits makes the snapshot. That is refused, with an
// error that wraps [errors.ErrUnsupported]; sqllock.AcquireTx can tell a snapshot that
// is too old.
//
// ROLLBACK TO SAVEPOINT frees what was locked since that savepoint, so rolling back a
// nested transaction of pgx, which is one, frees what was locked in it. A transaction
// object whose transaction has ended by statement (COMMIT), so that every statement is
// one of its own, is refused: the lock would be gone at once.
//
// Of the options only [lock.Shared] and [lock.WithTrace] mean something here; the
// others are refused.
func AcquireTx(ctx context.Context, tx *sqldb.Tx, name string, opts ...lock.Option) error {
	return acquireTx(ctx, tx, txLock{name: name, wait: true}, opts)
}

// TryAcquireTx is [AcquireTx] without waiting: what another holds, or waits for in the
// other mode, is a [*lock.HeldError], after which the transaction is as it was.
func TryAcquireTx(ctx context.Context, tx *sqldb.Tx, name string, opts ...lock.Option) error {
	return acquireTx(ctx, tx, txLock{name: name}, opts)
}

// AcquireKeyTx is [AcquireTx] for a [Key]: an Int64 or a Pair that other programs lock
// too.
func AcquireKeyTx(ctx context.Context, tx *sqldb.Tx, key Key, opts ...lock.Option) error {
	return acquireTx(ctx, tx, txLock{key: key, byKey: true, wait: true}, opts)
}

// TryAcquireKeyTx is [TryAcquireTx] for a [Key].
func TryAcquireKeyTx(ctx context.Context, tx *sqldb.Tx, key Key, opts ...lock.Option) error {
	return acquireTx(ctx, tx, txLock{key: key, byKey: true}, opts)
}

// txLock is a lock that is taken for a transaction.
type txLock struct {
	tx     *sqldb.Tx
	name   string // what errors call it
	key    Key
	byKey  bool
	shared bool
	wait   bool
}

func acquireTx(ctx context.Context, tx *sqldb.Tx, l txLock, opts []lock.Option) error {
	o, err := l.check(tx, opts)
	if err != nil {
		return err
	}
	begun := time.Now()
	err = l.take(ctx)
	e := lock.Event{Name: l.name, Took: time.Since(begun), Err: err}
	if err != nil {
		o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Refused }, e)
		return err
	}
	o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Acquired }, e)
	return nil
}

// check says what is wrong before any SQL runs, and completes l.
func (l *txLock) check(tx *sqldb.Tx, opts []lock.Option) (lock.Options, error) {
	o, err := lock.Collect("advisory.AcquireTx", lock.FeatureShared, nil, opts)
	if err != nil {
		return o, err
	}
	if l.byKey {
		l.name = l.key.String()
	} else if err := lock.CheckName(l.name); err != nil {
		return o, err
	}
	switch {
	case o.TTL != lock.DefaultTTL || o.Wait != lock.Forever || o.Reentrant || o.Label != "":
		return o, fmt.Errorf("lock: advisory.AcquireTx cannot honour TTL, Wait, Try, Label or Reentrant: it lasts as long as the transaction; TryAcquireTx does not wait: %w", errors.ErrUnsupported)
	case tx == nil:
		return o, fmt.Errorf("%w: AcquireTx of %q: the transaction is nil", lock.ErrInvalid, l.name)
	case tx.DB().Kind() != sqldb.Postgres:
		return o, fmt.Errorf("lock: %q: %s has no advisory locks that end with a transaction: use sqllock.AcquireTx: %w", l.name, tx.DB().Kind(), errors.ErrUnsupported)
	case tx.Err() != nil:
		return o, fmt.Errorf("%w: AcquireTx of %q: %w", lock.ErrInvalid, l.name, tx.Err())
	}
	l.tx, l.shared = tx, o.Shared
	if !l.byKey {
		l.key = namespaceOf(tx.DB()).key(l.name)
		return o, nil
	}
	l.key, err = l.key.on(sqldb.Postgres)
	return o, err
}

// take tries first: that costs nothing when the lock is free, and if the wait that
// follows is ended from outside, it is known that there was somebody to wait for.
func (l *txLock) take(ctx context.Context) error {
	ok, err := l.run(ctx, "pg_try_advisory_xact_lock")
	switch {
	case err != nil:
		return l.explain(err)
	case ok:
		return nil
	case !l.wait:
		held, err := holderOf(ctx, l.tx, l.key)
		if err != nil {
			return l.explain(err)
		}
		held.Name = l.name
		return held
	}
	begun := time.Now()
	_, err = l.run(ctx, "pg_advisory_xact_lock")
	if err == nil {
		return nil
	}
	cause := ctx.Err()
	if class := sqldb.ClassOf(err); cause == nil && (class == sqldb.LockTimeout || class == sqldb.Canceled) {
		cause = err
	}
	if cause == nil {
		return l.explain(err)
	}
	held := lookAtHolder(ctx, l.tx.DB(), l.key) // the transaction is aborted, and answers nothing any more
	held.Name, held.Waited, held.Err = l.name, time.Since(begun), cause
	return held
}

// run calls the function. It answers whether the lock is had; one of the blocking
// functions answers an empty text for that.
func (l *txLock) run(ctx context.Context, function string) (bool, error) {
	if l.shared {
		function += "_shared"
	}
	call, args := l.key.pg(function)
	var answer *string
	var level, now string
	if err := l.tx.QueryRow(ctx, fmt.Sprintf(takeTx, call), args...).Scan(&answer, &level, &now); err != nil {
		return false, err
	}
	switch {
	case answer == nil:
		return false, fmt.Errorf("the transaction is %s: it would go on reading what was there before the lock was had: begin it READ COMMITTED, or use sqllock.AcquireTx: %w", level, errors.ErrUnsupported)
	case *answer == "false":
		return false, nil
	}
	return true, l.stays(ctx, now)
}

// stays says why the lock is gone again: the statement was not in a transaction.
// (database/sql and pgx believe what they have begun to go on until they end it.)
func (l *txLock) stays(ctx context.Context, now string) error {
	in := false
	if d, ok := l.tx.Driver().(interface{ InTransaction() bool }); ok {
		in = d.InTransaction()
	} else if err := l.tx.QueryRow(ctx, sameTx, now).Scan(&in); err != nil {
		return err
	}
	if !in {
		return fmt.Errorf("%w: the transaction has ended already, by a statement, and the lock with it", lock.ErrInvalid)
	}
	return nil
}

const (
	// takeTx calls the function, or answers NULL in a transaction whose snapshot would
	// be older than the lock. CASE guards a volatile function; WHERE would as well, but
	// is harder to tell from an empty answer.
	takeTx = `SELECT CASE WHEN current_setting('transaction_isolation') LIKE 'read %%' THEN %s::text END,
	current_setting('transaction_isolation'), now()::text`
	// sameTx: now() is when the transaction began. In autocommit each statement is one
	// of its own.
	sameTx = `SELECT now()::text = $1::text`
)

func (l *txLock) explain(err error) error { return fmt.Errorf("lock: %q: %w", l.name, err) }
