package stock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"

	"github.com/sqlnative/locks/sqldb"
)

// TakeAll takes all lines, or none of them: an order. It returns how many are left
// of each, in the order of the lines: the count of the line's row, after all of
// them. Lines that name one row are added up, and each of them gets that row's
// count; whether two ids name one row is the database's to say ('abc' and 'ABC'
// under most collations of MySQL and MariaDB).
//
// If fewer are left than the lines want, nothing is changed, and the error is a
// [*ShortError] that names every row that is short. [ErrNotFound] names the rows
// that are missing, [ErrOverflow] is a sum of lines that no 64-bit integer holds;
// one to [MaxLines] lines, each as [Stock.Take] wants them, or it is [ErrInvalid].
//
// The rows are locked in one order, whatever the order of the lines: as the column
// compares their ids. So transactions of which a TakeAll is the first statement
// that locks anything never deadlock with each other, and neither do those on a DB.
// One that holds locks before (a second TakeAll, a row that was inserted with a
// foreign key to a row of the table) can: then the database ends the transaction of
// one of them with an error that [sqldb.Retryable] reports, and the caller's
// transaction can't go on ([sqldb.Tx]).
//
// In a transaction, a refusal leaves it usable, and nothing of the lines in it,
// though their rows stay locked until it ends. This holds for every error: a lock
// timeout (1205 ends the statement only) leaves nothing behind that a COMMIT would
// keep. Under REPEATABLE READ what is judged is the rows as they are and not the
// transaction's snapshot (MySQL, MariaDB), or the error is a serialization
// failure, retryable (PostgreSQL; MariaDB with innodb_snapshot_isolation).
//
// On a DB it is a transaction of its own, READ COMMITTED where the server allows
// it, repeated after a deadlock, a serialization failure or a lock timeout
// ([sqldb.Retry]). ctx may end at any moment: nil says that all was taken, also
// then, [sqldb.Uncertain] that nobody knows (no answer to COMMIT came), and any
// other error that nothing was.
//
// It is two round trips, besides BEGIN and COMMIT; on MySQL and MariaDB three if ids
// are texts, which are sorted there first.
func (s *Stock) TakeAll(ctx context.Context, h sqldb.Handle, lines []Line) (lefts []int64, err error) {
	plain, err := s.checkLines("TakeAll", h, lines)
	if err != nil {
		return nil, err
	}
	once := func(ctx context.Context, tx *sqldb.Tx) (err error) {
		lefts, err = s.takeLines(ctx, tx, plain)
		return err
	}
	err = s.reclaiming(ctx, h, func() error {
		if tx, ok := h.(*sqldb.Tx); ok {
			return once(ctx, tx)
		}
		return inOwn(ctx, h.DB(), fmt.Sprintf("take %d lines of %s", len(plain), s.table.Name), once)
	})
	if err != nil {
		return nil, err
	}
	return lefts, nil
}

// inOwn runs fn in a transaction of its own, READ COMMITTED where the server allows
// it (MySQL with binlog_format=STATEMENT does not: 1665), and again after what can
// be tried again, for as long as the default policy's time allows: a crowd on one
// row fails often under SERIALIZABLE. op says in errors what has no verdict.
func inOwn(ctx context.Context, db *sqldb.DB, op string, fn func(ctx context.Context, tx *sqldb.Tx) error) error {
	opts := sqldb.TxOptions{Isolation: sql.LevelReadCommitted}
	err := sqldb.Retry(ctx, sqldb.Policy{Attempts: math.MaxInt}, func(ctx context.Context) error {
		err := db.InTx(ctx, opts, fn)
		if opts != (sqldb.TxOptions{}) && sqldb.ClassOf(err) == sqldb.Unsafe && !sqldb.Uncertain(err) {
			opts = sqldb.TxOptions{}
			err = db.InTx(ctx, opts, fn)
		}
		return err
	})
	var u *sqldb.UncertainError
	if errors.As(err, &u) {
		return &sqldb.UncertainError{Op: op, Err: err}
	}
	return err
}
