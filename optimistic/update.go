package optimistic

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"

	"github.com/sqlnative/locks/internal/rowkey"
	"github.com/sqlnative/locks/sqldb"
)

// call is one update or delete, checked.
type call struct {
	row     string // "article id 7"
	key     []any
	version int64
	set     []assignment
	conds   []cond
}

type assignment struct {
	quoted string
	value  any
}

type cond struct {
	Cond
	quoted string
	null   bool
}

// Update changes the row if its version is still the given one and every condition
// holds, and raises the version by one: in autocommit if h is the [*sqldb.DB], in the
// caller's transaction if h is a [*sqldb.Tx]. It returns the new version, with which
// the row can be updated again; with an error it returns the version that it was given,
// and changes nothing that the caller has.
//
// If it is not so, nothing is changed and the error is a [*ConflictError] (errors.Is
// ErrConflict) that says which of it: the row is stale, gone, or fails a condition. That
// was read from the row as it is, also where the transaction's snapshot is older; a
// refusal leaves the transaction usable. Not guaranteed: that "gone" is current in
// REPEATABLE READ on PostgreSQL, which shows no row that was inserted since; the error
// says so, and is retryable.
//
// A NULL version is [ErrNull]. A version that cannot go up, and a number that does not
// fit into its column, are [ErrOverflow], whatever sql_mode says; a text that is too
// long is an error too. An empty Set raises the version alone: the row was looked at,
// and who has read it before is to read it again. The key, the version and the token
// cannot be set. For an expression, write the statement and use [Check].
//
// On a DB, ctx may end at any moment: nil then says that it was applied all the same,
// [sqldb.Uncertain] that nobody knows (the connection broke, or the server did not
// answer), and any other error that nothing was changed. A deadlock or serialization
// failure is repeated ([sqldb.Retry], default policy, for up to its Elapsed). Where no
// answer came and ctx has not ended, the statement is sent once more: of the two at most
// one can be applied, since both compare the same version, and if the second is, that is
// the answer. If it is not, nobody knows whether the first was, or somebody else's
// update: a version says that a row was changed, and not by whom.
//
// In a transaction the statement waits for whoever has changed the row and not yet
// committed, and errors that [sqldb.Retryable] reports, stale among them, are for the
// caller's Retry: see [Do].
//
// It is one round trip, and after a refusal a second one.
func (t *Table) Update(ctx context.Context, h sqldb.Handle, key RowKey, version int64, set Set, conds ...Cond) (int64, error) {
	const op = "Update"
	c, err := t.call(op, h, key, version, conds)
	if err != nil {
		return version, err
	}
	if err := t.assign(c, set); err != nil {
		return version, fmt.Errorf("%w: %s of %s: %w", ErrInvalid, op, c.row, err)
	}
	if version == math.MaxInt64 { // there is no next one, if it is the row's at all
		if err := t.look(ctx, h, c); err != nil {
			return version, err
		}
		return version, fmt.Errorf("%w: %s: the version is %d, and cannot go up", ErrOverflow, c.row, version)
	}
	if err := t.run(ctx, h, "update "+c.row, t.updateOf(c), c); err != nil {
		return version, err
	}
	return version + 1, nil
}

// Delete deletes the row if its version is still the given one and every condition
// holds. For everything else see [Table.Update].
func (t *Table) Delete(ctx context.Context, h sqldb.Handle, key RowKey, version int64, conds ...Cond) error {
	c, err := t.call("Delete", h, key, version, conds)
	if err != nil {
		return err
	}
	return t.run(ctx, h, "delete "+c.row, t.deleteOf(c), c)
}

// call checks what Update and Delete have in common.
func (t *Table) call(op string, h sqldb.Handle, key RowKey, version int64, conds []Cond) (*call, error) {
	if err := t.check(op, h); err != nil {
		return nil, err
	}
	fail := func(err error) (*call, error) {
		return nil, fmt.Errorf("%w: %s of %s: %w", ErrInvalid, op, t.Name, err)
	}
	if t.Version == "" {
		return fail(errors.New("the table has no Version"))
	}
	c := &call{version: version}
	var err error
	if c.key, err = key.plain(t.Key); err != nil {
		return fail(err)
	}
	c.row = t.row(c.key)
	seen := map[string]string{}
	for _, given := range conds {
		if err := checkColumn(given.column, seen, "If"); err != nil {
			return fail(err)
		}
		c.conds = append(c.conds, cond{given, t.sql.quote(given.column), rowkey.Null(given.value)})
	}
	return c, nil
}

// assign checks the Set, and puts it in an order: one statement for one set of columns
// is one text for the server's caches.
func (t *Table) assign(c *call, set Set) error {
	seen := map[string]string{}
	for what, columns := range map[string][]string{"the key": t.Key, "the version": {t.Version}, "the token": {t.Token}} {
		for _, column := range columns {
			if column != "" {
				_ = checkColumn(column, seen, what)
			}
		}
	}
	for _, column := range slices.Sorted(maps.Keys(set)) {
		if err := checkColumn(column, seen, "Set"); err != nil {
			return err
		}
		c.set = append(c.set, assignment{t.sql.quote(column), set[column]})
	}
	return nil
}

// rounds is how often a statement is run again that was refused by a row that a look
// would let through. Somebody may have changed it in between, but hardly as often as
// this.
const rounds = 10

// run runs the statement, and looks why it was refused.
func (t *Table) run(ctx context.Context, h sqldb.Handle, op string, s *statement, c *call) error {
	for range rounds {
		rows, err := t.exec(ctx, h, op, s, c.row)
		switch {
		case err != nil:
			return err
		case rows == 1:
			return nil
		}
		if err := t.look(ctx, h, c); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w: %s: it can be read, but the database does not change it: a trigger or a row policy may prevent that", ErrBadRow, c.row)
}

// exec runs a statement that changes at most one row, and says how many it has.
func (t *Table) exec(ctx context.Context, h sqldb.Handle, op string, s *statement, row string) (rows int64, err error) {
	tx, ok := h.(*sqldb.Tx)
	if ok {
		var res sqldb.Result
		res, err = tx.Exec(ctx, s.query.String(), s.args...)
		rows = res.RowsAffected
	} else {
		rows, err = t.change(ctx, h.DB(), op, s)
	}
	switch {
	case errors.Is(err, sqldb.ErrTooManyRows):
		return 0, fmt.Errorf("%w: %s: several rows have this key: %w", ErrBadRow, row, err)
	case err != nil:
		return 0, t.explain(row, err)
	case rows > 1 && ok:
		return 0, fmt.Errorf("%w: %s: %d rows have this key and were all changed: roll back", ErrBadRow, row, rows)
	case rows > 1:
		return 0, &sqldb.UncertainError{Op: op, Err: fmt.Errorf("%w: %s: %d rows have this key and were all changed", ErrBadRow, row, rows)}
	}
	return rows, nil
}

// change runs the statement in autocommit. A version that was compared makes it safe to
// send it twice: after one of them was applied the other is refused.
func (t *Table) change(ctx context.Context, db *sqldb.DB, op string, s *statement) (rows int64, err error) {
	c := sqldb.Change{Op: op, Query: s.query.String(), Args: s.args, MaxRows: 1}
	c.Settle = func(bound context.Context, db *sqldb.DB) (*sqldb.Changed, bool, error) {
		// Who has gone does not want it to be applied.
		if err := ctx.Err(); err != nil {
			return nil, false, err
		}
		res, err := db.Exec(bound, c.Query, c.Args...)
		switch {
		case err != nil:
			return nil, false, fmt.Errorf("sent again: %w", err)
		case res.RowsAffected != 1:
			return nil, false, errors.New("sent again, it changed nothing: the first one was applied, or somebody else has changed the row")
		}
		return sqldb.NewChanged(db.Kind(), res), true, nil
	}
	// Elapsed bounds it: under SERIALIZABLE a crowd fails often.
	err = sqldb.Retry(ctx, sqldb.Policy{Attempts: math.MaxInt}, func(ctx context.Context) error {
		changed, err := db.Change(ctx, c)
		if err == nil {
			rows = changed.RowsAffected
		}
		return err
	})
	return rows, err
}
