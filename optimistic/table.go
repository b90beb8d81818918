package optimistic

import (
	"fmt"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// Table is a table whose rows are protected, the caller's own. [New] makes it usable;
// it is then safe for concurrent use.
type Table struct {
	// Name is the table's name, found as the session finds it, or SCHEMA.TABLE (MySQL
	// and MariaDB: DATABASE.TABLE). A table that is missing is told by the first
	// statement, not by New.
	Name string
	// Key are the columns that name a row; together they must have a unique key.
	Key []string
	// Version is the column that goes up by one with every change: BIGINT NOT NULL, or
	// another integer that has room enough; the usual first value is 0. No trigger may
	// raise it as well: what Update returns would be wrong. For Update and Delete;
	// sqllock-migrate version-column adds one.
	Version string
	// Token is the column with the newest fencing token that the row has seen: BIGINT
	// NOT NULL DEFAULT 0. For [Fence]; empty if there is none.
	Token string

	db   *sqldb.DB
	sql  dialect
	name string   // quoted, as all that follows
	key  []string // one for each column
	// version and token are empty if there is none.
	version, token string
}

// New checks the names and returns t for use with db; it asks the database nothing. A
// name that is no identifier, a missing key, and a table that has neither a version
// nor a token are [ErrInvalid].
func New(db *sqldb.DB, t Table) (*Table, error) {
	fail := func(err error) (*Table, error) { return nil, fmt.Errorf("%w: table %s: %w", ErrInvalid, t.Name, err) }
	if db == nil {
		return nil, fmt.Errorf("%w: the database is nil", ErrInvalid)
	}
	kind := db.Kind()
	name, err := kind.QuoteTable(t.Name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	made := &Table{Name: t.Name, Key: append([]string(nil), t.Key...), Version: t.Version, Token: t.Token, db: db, sql: dialectOf(kind), name: name}
	if len(t.Key) == 0 {
		return fail(fmt.Errorf("Key is empty"))
	}
	if t.Version == "" && t.Token == "" {
		return fail(fmt.Errorf("it has neither a Version nor a Token: there is nothing to compare"))
	}
	seen := map[string]string{}
	for _, c := range t.Key {
		if err := checkColumn(c, seen, "Key"); err != nil {
			return fail(err)
		}
		made.key = append(made.key, made.sql.quote(c))
	}
	for _, c := range []struct {
		what, column string
		quoted       *string
	}{{"Version", t.Version, &made.version}, {"Token", t.Token, &made.token}} {
		if c.column == "" {
			continue
		}
		if err := checkColumn(c.column, seen, c.what); err != nil {
			return fail(err)
		}
		*c.quoted = made.sql.quote(c.column)
	}
	return made, nil
}

// row describes a row in errors: "article id 7", "line order_id 7, pos 2".
func (t *Table) row(key []any) string {
	var b strings.Builder
	b.WriteString(t.Name)
	for i, c := range t.Key {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, " %s ", c)
		switch v := key[i].(type) {
		case []byte:
			fmt.Fprintf(&b, "0x%x", v)
		default:
			fmt.Fprint(&b, v)
		}
	}
	return b.String()
}

// check refuses a handle that can't be right, before any statement.
func (t *Table) check(op string, h sqldb.Handle) error {
	if t == nil || t.db == nil {
		return fmt.Errorf("%w: %s: the table was not made by New", ErrInvalid, op)
	}
	fail := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s of %s: %w", ErrInvalid, op, t.Name, fmt.Errorf(format, args...))
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
			return fail("%w", err)
		}
	}
	if k := h.DB().Kind(); k != t.db.Kind() {
		return fail("the handle is of %s, the table of %s", k, t.db.Kind())
	}
	return nil
}

// explain says what to do about an error of the database.
func (t *Table) explain(row string, err error) error {
	switch sqldb.ClassOf(err) {
	case sqldb.OutOfRange:
		if sqldb.Uncertain(err) {
			break
		}
		return fmt.Errorf("%w: %s: a number does not fit into its column: %w", ErrOverflow, row, err)
	case sqldb.NoTable:
		return fmt.Errorf("optimistic: table %s does not exist where this session looks for it: %w", t.Name, err)
	case sqldb.NoColumn:
		text := "it needs " + strings.Join(t.Key, ", ")
		if t.Version != "" {
			text += ", " + t.Version + " (sqllock-migrate version-column adds a version)"
		}
		if t.Token != "" {
			text += ", " + t.Token
		}
		return fmt.Errorf("optimistic: table %s lacks a column: %s, and those of Set and If: %w", t.Name, text, err)
	}
	return fmt.Errorf("optimistic: %s: %w", row, err)
}
