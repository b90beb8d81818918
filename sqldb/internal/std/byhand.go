package std

import (
	"context"
	"database/sql"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// beginByHand begins a transaction by statements. On SQLite, what database/sql's
// BeginTx begins depends on the DSN, and a deferred transaction that turns from
// reading to writing fails at once, whatever busy_timeout says (5, or 517). On
// MySQL and MariaDB, a COMMIT that is a statement obeys its ctx, while that of a
// *sql.Tx takes none, and waits for a silent server without end.
func (c *conn) beginByHand(ctx context.Context, opts sqldb.TxOptions) (sqldb.DriverTx, error) {
	statements, err := c.o.Begin(opts)
	if err != nil {
		return nil, err
	}
	tx := &byHand{querier: c.querier, commitAgain: c.o.CommitAgain}
	tx.mark = "" // is for statements in autocommit
	for i, s := range statements {
		if _, err := c.c.ExecContext(ctx, s); err != nil {
			// A driver may report ctx's end for a BEGIN that was carried out; and what
			// SET TRANSACTION has said would hold for the next one.
			c.doubtful = tx.Rollback(context.WithoutCancel(ctx)) != nil || i > 0
			return nil, c.failed(err)
		}
	}
	return tx, nil
}

// byHand is a transaction that is begun and ended by statements.
type byHand struct {
	querier
	commitAgain bool
	ended       error // what its end has answered, if it has ended
}

// Commit commits. If readers of SQLite's rollback journal keep it from the file
// ([sqldb.LockTimeout]), the transaction stays open. In any other case it has
// ended: a second COMMIT would succeed, in no transaction, and mean nothing.
func (t *byHand) Commit(ctx context.Context) error {
	if t.ended != nil {
		return t.ended
	}
	_, err := t.r.ExecContext(ctx, "COMMIT")
	if err = t.failed(err); err != nil && t.commitAgain && sqldb.ClassOf(err) == sqldb.LockTimeout {
		return err
	}
	if t.ended = err; err == nil {
		t.ended = sql.ErrTxDone
	}
	return err
}

// Rollback rolls back. A transaction that SQLite has ended itself is no error.
func (t *byHand) Rollback(ctx context.Context) error {
	_, err := t.r.ExecContext(ctx, "ROLLBACK")
	if notActive(err) {
		err = nil
	}
	if t.ended == nil {
		t.ended = sql.ErrTxDone
	}
	return t.failed(err)
}

// notActive recognises what SQLite answers to ROLLBACK when it has rolled back by
// itself.
func notActive(err error) bool {
	return err != nil && strings.Contains(err.Error(), "no transaction is active")
}
