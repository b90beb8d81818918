package optimistic

import (
	"context"
	"database/sql"

	"github.com/sqlnative/locks/sqldb"
)

// Do runs fn in a transaction of its own ([sqldb.DB.InTx]), and again, in a new one,
// as [sqldb.Retry] repeats it under p, whose zero value is the default policy: after a
// deadlock, a serialization failure, a lock timeout, or a [*ConflictError] that is
// stale, whether a statement or COMMIT tells it; never after a COMMIT without an
// answer. fn reads the rows, and updates them with the versions that it has read; it
// may run several times.
//
// The transaction is READ COMMITTED where the server allows it: a refusal waits for
// nobody's gap locks there, and is decided by the row as it is. MySQL with
// binlog_format=STATEMENT does not allow it (1665); there the transaction has the
// server's own level. SQLite knows one level only.
//
// The default policy is enough for 64 goroutines that change one row as fast as they
// can. A [*sqldb.RetryError] says that its attempts, or its time, were not enough for
// one: larger ones are the remedy, and for a row that is so hot, a condition in the
// statement itself (package stock), which needs no second try.
func Do(ctx context.Context, db *sqldb.DB, p sqldb.Policy, fn func(ctx context.Context, tx *sqldb.Tx) error) error {
	opts := sqldb.TxOptions{Isolation: sql.LevelReadCommitted}
	return sqldb.Retry(ctx, p, func(ctx context.Context) error {
		err := db.InTx(ctx, opts, fn)
		if opts != (sqldb.TxOptions{}) && sqldb.ClassOf(err) == sqldb.Unsafe && !sqldb.Uncertain(err) {
			opts = sqldb.TxOptions{}
			err = db.InTx(ctx, opts, fn)
		}
		return err
	})
}
