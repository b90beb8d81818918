package stock

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/sqlnative/locks/internal/rowkey"
	"github.com/sqlnative/locks/sqldb"
)

// Table names a table of counters, the caller's own.
type Table struct {
	// Name is the table's name, found as the session finds it, or SCHEMA.TABLE
	// (MySQL and MariaDB: DATABASE.TABLE). A table that is missing is told by the
	// first statement, not by New.
	Name string
	// ID is the column that names a row. It must have a unique key of its own; with
	// Slot, one over both.
	ID string
	// Slot is the column with the number of a row among those with the same id, an
	// integer, NOT NULL. It is for [NewSlotted], and [New] refuses it.
	Slot string
	// Count is the column with what is left, an integer, NOT NULL. A value that is no
	// integer is [ErrBadRow].
	Count string
	// Version is a column that goes up by one with every change, an integer, NOT
	// NULL, so that who compares versions (package optimistic) sees every take.
	// Empty: there is none.
	Version string
}

// Stock takes from, and puts back into, the rows of one table. It is safe for
// concurrent use.
type Stock struct {
	db    *sqldb.DB
	table Table
	names quoted // those of table
	sql   statements
	dry   dry
	looks looks
	holds holds

	claims claimStatements
	gates  gates
}

// New checks the names and prepares the statements; it asks the database nothing.
// A name that is no identifier is [ErrInvalid].
func New(db *sqldb.DB, t Table) (*Stock, error) {
	if t.Slot != "" {
		return nil, fmt.Errorf("%w: table %s: Slot is %q: a counter over several rows is made by NewSlotted", ErrInvalid, t.Name, t.Slot)
	}
	q, err := t.quote(db)
	if err != nil {
		return nil, err
	}
	s := &Stock{db: db, table: t, names: q, sql: statementsFor(db.Kind(), q), holds: holds{sql: holdStatementsFor(db, t.Name, q)}, claims: claimsOf(db, t.Name, q)}
	s.holds.sql.lookAsking = with(s.sql.look, q, s.holds.sql.tables)
	s.holds.sql.lookExpired = with(s.sql.look, q, s.holds.sql.hasExpired)
	return s, nil
}

// quote checks the names, and quotes all but that of the slot.
func (t Table) quote(db *sqldb.DB) (q quoted, err error) {
	if db == nil {
		return q, fmt.Errorf("%w: the database is nil", ErrInvalid)
	}
	kind := db.Kind()
	if q.table, err = kind.QuoteTable(t.Name); err != nil {
		return q, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	seen := map[string]string{}
	for _, c := range []struct{ field, column string }{{"ID", t.ID}, {"Slot", t.Slot}, {"Count", t.Count}, {"Version", t.Version}} {
		if c.column == "" && (c.field == "Version" || c.field == "Slot") {
			continue
		}
		if err := sqldb.CheckIdent(c.column); err != nil {
			return q, fmt.Errorf("%w: table %s: %s: %w", ErrInvalid, t.Name, c.field, err)
		}
		if other, ok := seen[c.column]; ok {
			return q, fmt.Errorf("%w: table %s: %s and %s are both %q", ErrInvalid, t.Name, other, c.field, c.column)
		}
		seen[c.column] = c.field
	}
	q.id, q.count = kind.QuoteColumn(t.ID), kind.QuoteColumn(t.Count)
	if t.Version != "" {
		q.version = kind.QuoteColumn(t.Version)
	}
	return q, nil
}

// Take takes n from the row: in autocommit if h is the [*sqldb.DB], in the caller's
// transaction if h is a [*sqldb.Tx]. It returns how many are left.
//
// If fewer than n are left, nothing is changed and the error is a [*ShortError]
// (errors.Is ErrSoldOut). n <= 0 is refused before any statement: -5 would raise
// the stock. [ErrNotFound]: no row has the id. The id is of the column's own type:
// an integer for an integer column, text for a text column.
//
// On a DB, ctx may end at any moment: nil then says that it was taken all the same,
// [sqldb.Uncertain] that nobody knows (the connection broke, or the server did not
// answer), and any other error that nothing was taken. A deadlock or serialization
// failure is repeated ([sqldb.Retry], default policy).
//
// In a transaction the statement waits for whoever has changed the row and not yet
// committed, and the row is then locked until the transaction ends; errors that
// [sqldb.Retryable] reports are for the caller's Retry, and a refusal leaves the
// transaction usable. Not guaranteed: that a refusal inside REPEATABLE READ on
// PostgreSQL is current; one from a snapshot that is too old is a serialization
// failure (retryable) instead.
//
// Take is one round trip; on MySQL and MariaDB, in a transaction, two: there the
// count comes back through LAST_INSERT_ID(expr), which stays in the session and
// would be seen by the caller's own statements, so inside a transaction it is read
// back. A refusal costs a second one, for the figures; after a refusal on a DB the
// next takes of that row read first, those that come at the same time together, which
// makes refusing a crowd cheap. Nothing else is remembered: each refusal was read from
// the database after it was asked for.
//
// Before it refuses, it gives back what has expired of the row's reservations
// ([Stock.Reserve]) and tries again. That is one indexed read for a refusal, nothing
// for a take, and nothing where the tables of reservations are not there, or not this
// user's to read. In a transaction what it gives back comes with the caller's commit,
// and reservations that somebody else is at are left to him.
func (s *Stock) Take(ctx context.Context, h sqldb.Handle, id any, n int64) (left int64, err error) {
	id, err = s.check("Take", h, id, n)
	if err != nil {
		return 0, err
	}
	err = s.reclaiming(ctx, h, func() (err error) {
		left, err = s.take(ctx, h, id, n)
		return err
	})
	return left, err
}

// take is Take without what has expired.
func (s *Stock) take(ctx context.Context, h sqldb.Handle, id any, n int64) (int64, error) {
	if tx, ok := h.(*sqldb.Tx); ok {
		return s.changeTx(ctx, tx, s.sql.takeTx, id, n, s.refuseTake)
	}
	db := h.DB()
	if s.dry.is(id) {
		left, final, err := s.lookDry(ctx, db, id)
		if err == nil {
			err = refused(s.refuseTake(id, n, left), final)
		}
		if err != nil {
			return 0, err
		}
		s.dry.forget(id)
	}
	return s.changeDB(ctx, db, fmt.Sprintf("take %d of %s %v", n, s.table.Name, id), s.sql.take, id, n, s.refuseTake)
}

// Put puts n back into the row, and returns how many are left. n <= 0 is refused
// before any statement; a sum that does not fit into the column is [ErrOverflow],
// and nothing is changed, whatever the session's sql_mode. For h, ctx, transactions
// and the rest, see [Stock.Take].
func (s *Stock) Put(ctx context.Context, h sqldb.Handle, id any, n int64) (left int64, err error) {
	id, err = s.check("Put", h, id, n)
	if err != nil {
		return 0, err
	}
	if tx, ok := h.(*sqldb.Tx); ok {
		return s.changeTx(ctx, tx, s.sql.putTx, id, n, s.refusePut)
	}
	return s.changeDB(ctx, h.DB(), fmt.Sprintf("put %d into %s %v", n, s.table.Name, id), s.sql.put, id, n, s.refusePut)
}

// Left reads how many are left, without a lock: the next moment it may be fewer.
// In a transaction it is what the transaction's snapshot shows.
func (s *Stock) Left(ctx context.Context, h sqldb.Handle, id any) (int64, error) {
	id, err := s.check("Left", h, id, 1)
	if err != nil {
		return 0, err
	}
	return s.look(ctx, h, s.sql.look, id, 0, nil)
}

// check refuses what can't be right, before any statement, and returns the id as
// the database will see it.
func (s *Stock) check(op string, h sqldb.Handle, id any, n int64) (any, error) {
	fail := func(format string, args ...any) (any, error) {
		return nil, fmt.Errorf("%w: %s of %s: %s", ErrInvalid, op, s.table.Name, fmt.Sprintf(format, args...))
	}
	switch x := h.(type) {
	case nil:
		return fail("the handle is nil")
	case *sqldb.DB:
		if x == nil {
			return fail("the handle is nil")
		}
	case *sqldb.Tx:
		if x == nil {
			return fail("the handle is nil")
		}
		if err := x.Err(); err != nil {
			return nil, fmt.Errorf("%w: %s of %s: %w", ErrInvalid, op, s.table.Name, err)
		}
	}
	if k := h.DB().Kind(); k != s.db.Kind() {
		return fail("the handle is of %s, the stock of %s", k, s.db.Kind())
	}
	if n <= 0 {
		return fail("n is %d, and has to be at least 1", n)
	}
	plain, err := rowkey.Plain(id)
	if err != nil {
		return fail("the id %v: %v", id, err)
	}
	return plain, nil
}

// refusal says why the row, as the database shows it, did not let the statement
// through; nil if it would now.
type refusal func(id any, n, left int64) error

func (s *Stock) refuseTake(id any, n, left int64) error {
	if left >= n {
		return nil
	}
	return &ShortError{Table: s.table.Name, Lines: []Short{{ID: id, Wanted: n, Left: left}}}
}

func (s *Stock) refusePut(id any, n, left int64) error {
	if left <= math.MaxInt64-n {
		return nil
	}
	return fmt.Errorf("%w: %s id %v: %d and %d more", ErrOverflow, s.table.Name, id, left, n)
}

// look reads the row, and says what is wrong with it. What else st reads goes into
// also.
func (s *Stock) look(ctx context.Context, h sqldb.Handle, st statement, id any, n int64, refuse refusal, also ...any) (int64, error) {
	rows, err := h.Query(ctx, st.query, st.args(id, n)...)
	if err != nil {
		return 0, s.explain(id, err)
	}
	defer func() { _ = rows.Close() }()
	var left *int64
	var problem string
	found := 0
	for rows.Next() {
		if found++; found > 1 {
			return 0, s.several(id)
		}
		if err := rows.Scan(append([]any{&left, &problem}, also...)...); err != nil {
			return 0, s.explain(id, err)
		}
	}
	err = errors.Join(rows.Err(), rows.Close())
	switch {
	case err != nil:
		return 0, s.explain(id, err)
	case found == 0:
		return 0, s.notFound(id)
	case problem == snapshot:
		return s.look(ctx, h, s.sql.lookCurrent, id, n, refuse)
	case problem != "":
		return 0, fmt.Errorf("%w: %s id %v: %s", ErrBadRow, s.table.Name, id, problem)
	case left == nil:
		return 0, fmt.Errorf("%w: %s id %v: the count is NULL", ErrBadRow, s.table.Name, id)
	case refuse == nil:
		return *left, nil
	}
	return *left, refuse(id, n, *left)
}

// rounds is how often the guard is asked again after it has refused a row that a
// look would let through. Somebody may have changed it in between, but hardly as
// often as this.
const rounds = 10

func (s *Stock) notFound(id any) error {
	return fmt.Errorf("%w: %s has no row with %s %v", ErrNotFound, s.table.Name, s.table.ID, id)
}

func (s *Stock) several(id any) error {
	return fmt.Errorf("%w: %s: several rows have %s %v; the column needs a unique key", ErrBadRow, s.table.Name, s.table.ID, id)
}

// unmoved is the error of a row that the guard refuses, and a look would let
// through, again and again.
func (s *Stock) unmoved(id any) error {
	return fmt.Errorf("%w: %s id %v: it can be read, but the database does not change it: a trigger or a row policy may prevent that", ErrBadRow, s.table.Name, id)
}

// changeDB changes the row in autocommit.
func (s *Stock) changeDB(ctx context.Context, db *sqldb.DB, op string, st statement, id any, n int64, refuse refusal) (left int64, err error) {
	for range rounds {
		var changed *sqldb.Changed
		// Elapsed bounds it: under SERIALIZABLE a crowd fails often.
		err := sqldb.Retry(ctx, sqldb.Policy{Attempts: math.MaxInt}, func(ctx context.Context) (err error) {
			changed, err = db.Change(ctx, sqldb.Change{Op: op, Query: st.query, Args: st.args(id, n), Returning: st.returning, MaxRows: 1})
			return err
		})
		switch {
		case errors.Is(err, sqldb.ErrTooManyRows):
			return 0, fmt.Errorf("%w: several rows have %s %v; the column needs a unique key: %w", ErrBadRow, s.table.ID, id, err)
		case err != nil:
			return 0, s.explain(id, err)
		case changed.RowsAffected > 1:
			return 0, &sqldb.UncertainError{Op: op, Err: s.ambiguous(id, changed.RowsAffected)}
		case changed.RowsAffected == 1 && st.returning:
			err := changed.Scan(0, &left)
			return left, err
		case changed.RowsAffected == 1:
			return changed.LastInsertID, nil
		}
		_, final, err := s.lookDB(ctx, db, id, n, refuse)
		if errors.Is(err, ErrSoldOut) {
			s.dry.remember(id)
		}
		if err != nil {
			return 0, refused(err, final)
		}
		// Between the refusal and the look somebody has changed the row so that it
		// would be let through: the look is no refusal, and the guard is asked again.
	}
	return 0, s.unmoved(id)
}

// changeTx changes the row in the caller's transaction.
func (s *Stock) changeTx(ctx context.Context, tx *sqldb.Tx, st statement, id any, n int64, refuse refusal) (left int64, err error) {
	for range rounds {
		rows := int64(0)
		if st.returning {
			rows, left, err = s.returning(ctx, tx, st.query, st.args(id, n))
		} else {
			var res sqldb.Result
			res, err = tx.Exec(ctx, st.query, st.args(id, n)...)
			rows = res.RowsAffected
		}
		switch {
		case err != nil:
			return 0, s.explain(id, err)
		case rows > 1:
			return 0, s.ambiguous(id, rows)
		case rows == 1 && st.returning:
			return left, nil
		case rows == 1:
			return s.look(ctx, tx, s.sql.look, id, n, nil) // our own write, under our own lock
		}
		if _, err := s.look(ctx, tx, s.sql.lookTx, id, n, refuse); err != nil {
			return 0, err
		}
	}
	return 0, s.unmoved(id)
}

func (s *Stock) returning(ctx context.Context, tx *sqldb.Tx, query string, args []any) (count, left int64, err error) {
	rows, err := tx.Query(ctx, query, args...)
	if err != nil {
		return 0, 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		count++
		if err := rows.Scan(&left); err != nil {
			return 0, 0, err
		}
	}
	return count, left, rows.Err()
}

func (s *Stock) ambiguous(id any, rows int64) error {
	return fmt.Errorf("%w: %s: %d rows have %s %v and were all changed: the column needs a unique key", ErrBadRow, s.table.Name, rows, s.table.ID, id)
}

// explain says what to do about an error of the database.
func (s *Stock) explain(id any, err error) error {
	t := s.table
	switch sqldb.ClassOf(err) {
	case sqldb.OutOfRange:
		return fmt.Errorf("%w: %s id %v: %w", ErrOverflow, t.Name, id, err)
	case sqldb.NoTable:
		return fmt.Errorf("stock: table %s does not exist where this session looks for it: %w", t.Name, err)
	case sqldb.NoColumn:
		if t.Version == "" {
			return fmt.Errorf("stock: table %s lacks one of the columns %s, %s: %w", t.Name, t.ID, t.Count, err)
		}
		return fmt.Errorf("stock: table %s lacks one of the columns %s, %s, %s (sqllock-migrate version-column adds a version): %w", t.Name, t.ID, t.Count, t.Version, err)
	}
	return fmt.Errorf("stock: %s id %v: %w", t.Name, id, err)
}
