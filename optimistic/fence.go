package optimistic

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlnative/locks/sqldb"
)

// Fence refuses, with a [*FencedError] (errors.Is ErrFenced), a token that is older
// than the newest one the row has seen; another one is written into [Table.Token], and
// the row is locked until the transaction ends. An equal token is the same holder's,
// and passes as often as it comes.
//
//	err := db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
//		if err := optimistic.Fence(ctx, tx, accounts, optimistic.Key(7), l.Token()); err != nil {
//			return err // nothing of this transaction may be committed
//		}
//		...
//	})
//
// With the token of a lock ([github.com/sqlnative/locks/lock.Lock.Token]) it protects
// a table in any database, not only in the lock's own, where Guard is stronger: a
// holder that lost the lock without knowing it is refused as soon as a later holder has
// fenced the row. Until then it is not, so each holder fences before it writes, and the
// work that is to be protected is in the same transaction: whoever comes later waits
// for its end, whoever came earlier is refused after it.
//
// The transaction is the outermost one: on PostgreSQL a ROLLBACK TO SAVEPOINT takes the
// row's lock and the token away. A row that is missing is [ErrNotFound], a token that
// is NULL [ErrNull]; a token of 0 or less is [ErrInvalid]: a strategy that has none says
// 0. In REPEATABLE READ on PostgreSQL a row that was fenced since the snapshot is a
// serialization failure, which is retryable, and so it is on MariaDB where
// innodb_snapshot_isolation is on. On Galera and group replication with several
// writers an equal token writes nothing that certification could see: write through one
// node there.
func Fence(ctx context.Context, tx *sqldb.Tx, t *Table, key RowKey, token int64) error {
	const op = "Fence"
	if err := t.check(op, tx); err != nil {
		return err
	}
	fail := func(err error) error { return fmt.Errorf("%w: %s of %s: %w", ErrInvalid, op, t.Name, err) }
	switch {
	case t.Token == "":
		return fail(errors.New("the table has no Token"))
	case token <= 0:
		return fail(fmt.Errorf("the token is %d: a lock without tokens cannot fence", token))
	}
	plain, err := key.plain(t.Key)
	if err != nil {
		return fail(err)
	}
	c := &call{row: t.row(plain), key: plain}
	s := t.fenceOf(plain, token)
	for range rounds {
		n, err := t.exec(ctx, tx, "fence "+c.row, s, c.row)
		if err != nil || n == 1 {
			return err
		}
		row, err := t.read(ctx, tx, t.token, t.Token, c)
		switch {
		case err != nil:
			return err
		case !row.there:
			return fmt.Errorf("%w: %s: nothing was fenced", ErrNotFound, c.row)
		case row.value > token:
			return &FencedError{Table: t.Name, Key: plain, Token: token, Seen: row.value, row: c.row}
		case row.value == token && t.sql.fresh == "<": // it was read, and locked by that
			return nil
		}
		// Somebody has put back an older token in between.
	}
	return fmt.Errorf("%w: %s: it can be read, but the database does not change it: a trigger or a row policy may prevent that", ErrBadRow, c.row)
}
