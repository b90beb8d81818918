package std

import (
	"context"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// beginImmediate begins a transaction on SQLite. A deferred one that turns from
// reading to writing fails at once, whatever busy_timeout says (5, or 517), and
// what database/sql's BeginTx begins depends on the DSN: so it is begun by hand.
func (c *conn) beginImmediate(ctx context.Context, opts sqldb.TxOptions) (sqldb.DriverTx, error) {
	begin := "BEGIN IMMEDIATE"
	if opts.ReadOnly {
		begin = "BEGIN"
	}
	tx := &immediate{querier: c.querier}
	if _, err := c.c.ExecContext(ctx, begin); err != nil {
		// A driver may report ctx's end for a BEGIN that was carried out.
		_ = tx.Rollback(context.WithoutCancel(ctx))
		return nil, err
	}
	return tx, nil
}

// immediate is a transaction on SQLite, begun and ended by statements.
type immediate struct{ querier }

// Commit commits. If readers of a rollback journal keep it from the file
// ([sqldb.LockTimeout]), the transaction stays open.
func (t *immediate) Commit(ctx context.Context) error {
	_, err := t.r.ExecContext(ctx, "COMMIT")
	return err
}

// Rollback rolls back. A transaction that SQLite has ended itself is no error.
func (t *immediate) Rollback(ctx context.Context) error {
	_, err := t.r.ExecContext(ctx, "ROLLBACK")
	if err != nil && strings.Contains(err.Error(), "no transaction is active") {
		return nil
	}
	return err
}
