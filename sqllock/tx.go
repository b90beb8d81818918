package sqllock

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// AcquireTx takes the lock for the caller's transaction: no TTL, no heartbeat,
// nothing to release; the commit or the rollback frees it. It waits, in the server,
// for other transactions that have the lock or guard it, as long as ctx and the
// server's own lock time-out allow. A lease that somebody holds is not waited for:
// it is a [*lock.HeldError]. Whoever held an expired lease before can no longer
// guard it once this has been committed: the token is raised.
//
// The first touch of a name makes its row, committed beforehand, outside of the
// transaction, on another connection of the pool.
//
// Errors that [sqldb.Retryable] reports ask for the transaction to be begun anew;
// under REPEATABLE READ on PostgreSQL, a transaction that has waited is one of them.
func AcquireTx(ctx context.Context, tx *sqldb.Tx, name string, opts ...lock.Option) error {
	return acquireTx(ctx, tx, name, opts, func(s statements) stmt { return s.acquireTx })
}

// TryAcquireTx is [AcquireTx] without waiting: a transaction that has the lock is a
// [*lock.HeldError] too.
func TryAcquireTx(ctx context.Context, tx *sqldb.Tx, name string, opts ...lock.Option) error {
	return acquireTx(ctx, tx, name, opts, func(s statements) stmt { return s.tryTx })
}

func acquireTx(ctx context.Context, tx *sqldb.Tx, name string, opts []lock.Option, pick func(statements) stmt) error {
	o, err := lock.Collect("sqllock.AcquireTx", 0, nil, opts)
	if err == nil {
		err = lock.CheckName(name)
	}
	switch {
	case err != nil:
		return err
	case tx == nil:
		return fmt.Errorf("%w: AcquireTx of %q: the transaction is nil", lock.ErrInvalid, name)
	case tx.Err() != nil:
		return fmt.Errorf("%w: AcquireTx of %q: %w", lock.ErrInvalid, name, tx.Err())
	}
	l := &Locker{db: tx.DB(), sql: statementsFor(tx.DB(), false)}
	v := values{"name": l.text(name), "holder": me(o.Label)}
	for touched := false; ; {
		n, err := l.takeTx(ctx, tx, pick(l.sql), v)
		if err != nil {
			return l.explain(name, err)
		}
		if n > 0 {
			return nil
		}
		held, err := l.look(ctx, name)
		switch {
		case err != nil:
			return err
		case held != nil && (held.Left > 0 || touched):
			return held
		case held == nil:
			if err := l.touch(ctx, name); err != nil {
				return err
			}
		}
		touched = true // once more: it has been made, or come free, meanwhile
	}
}

func (l *Locker) takeTx(ctx context.Context, tx *sqldb.Tx, st stmt, v values) (int64, error) {
	if !l.sql.returning {
		res, err := tx.Exec(ctx, st.query, st.args(v)...)
		return res.RowsAffected, err
	}
	rows, err := tx.Query(ctx, st.query, st.args(v)...)
	if err != nil {
		return 0, err
	}
	var n int64
	for rows.Next() {
		n++
	}
	return n, errors.Join(rows.Err(), rows.Close())
}
