package optimistic

import (
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// dialect is how one database says it. Each stands in a file of its own.
type dialect struct {
	// quote quotes a column.
	quote func(column string) string
	// update and remove stand in front of the table's name.
	update, remove string
	// numbered is what stands in front of a placeholder's number; empty: there are no
	// numbers, and arguments come in the order of their placeholders.
	numbered string
	// number is what stands behind the placeholder of a version or a token.
	number string
	// sole is a further condition: no other row has the key.
	sole func(table, key string) string
	// sound is a further condition: the column's value can be counted on.
	sound func(column string) string
	// read makes an integer of the column, and problem says what is wrong with its
	// value: "" if nothing is, or one of the words below.
	read, problem func(column string) string
	// current is what a read after a refusal ends with, in a caller's transaction: with
	// it, it shows the row as it is, whatever the transaction's snapshot shows.
	current string
	// level is an expression that is true where a read without current shows a snapshot;
	// empty: it is always read with current.
	level string
	// fresh is how a token that was sent compares with the row's where it is written.
	fresh string
}

// What a problem can be besides a text.
const (
	isNull   = "null"
	snapshot = "snapshot"
)

func dialectOf(kind sqldb.Kind) dialect {
	switch kind {
	case sqldb.Postgres:
		return postgres()
	case sqldb.SQLite:
		return sqlite()
	default:
		return mysql(kind)
	}
}

// statement is a text that grows with its arguments.
type statement struct {
	d     *dialect
	query strings.Builder
	args  []any
}

func (t *Table) statement() *statement { return &statement{d: &t.sql} }

func (s *statement) add(parts ...string) *statement {
	for _, p := range parts {
		s.query.WriteString(p)
	}
	return s
}

// arg takes an argument, and returns its placeholder.
func (s *statement) arg(v any) string {
	s.args = append(s.args, v)
	if s.d.numbered == "" {
		return "?"
	}
	return s.d.numbered + strconv.Itoa(len(s.args))
}

// number is arg for a version or a token.
func (s *statement) number(v int64) string { return s.arg(v) + s.d.number }

// key is the condition that names the row.
func (t *Table) keyIs(s *statement, key []any) string {
	parts := make([]string, len(key))
	for i, v := range key {
		parts[i] = t.key[i] + " = " + s.arg(v)
	}
	return strings.Join(parts, " AND ")
}

// condIs is one condition.
func (t *Table) condIs(s *statement, c cond) string {
	if c.null {
		return c.quoted + " IS NULL"
	}
	return c.quoted + " = " + s.arg(c.value)
}

// where is what Update and Delete have in common.
func (t *Table) where(s *statement, c *call) {
	key := t.keyIs(s, c.key)
	s.add("\nWHERE ", key, " AND ", t.version, " = ", s.number(c.version))
	for _, cond := range c.conds {
		s.add(" AND ", t.condIs(s, cond))
	}
	s.add(t.sql.sound(t.version), t.sql.sole(t.name, key))
}

func (t *Table) updateOf(c *call) *statement {
	s := t.statement().add(t.sql.update, t.name, " SET ")
	for _, a := range c.set {
		s.add(a.quoted, " = ", s.arg(a.value), ", ")
	}
	s.add(t.version, " = ", t.version, " + 1")
	t.where(s, c)
	return s
}

func (t *Table) deleteOf(c *call) *statement {
	s := t.statement().add(t.sql.remove, t.name)
	t.where(s, c)
	return s
}

// fenceOf writes the token where the row's is older, or, where it costs nothing to see
// it, equal.
func (t *Table) fenceOf(key []any, token int64) *statement {
	s := t.statement()
	s.add(t.sql.update, t.name, " SET ", t.token, " = ", s.number(token))
	is := t.keyIs(s, key)
	return s.add("\nWHERE ", is, " AND ", t.token, " ", t.sql.fresh, " ", s.number(token), t.sql.sound(t.token), t.sql.sole(t.name, is))
}

// lookOf reads what there is after a refusal: the column that protects, what is wrong
// with it, and for each condition whether it holds, and the value.
func (t *Table) lookOf(column string, key []any, conds []cond, how reading) *statement {
	problem := t.sql.problem(column)
	if how == careful && t.sql.level != "" {
		problem = "CASE WHEN " + t.sql.level + " THEN '" + snapshot + "' ELSE " + problem + " END"
	}
	s := t.statement().add("SELECT ", t.sql.read(column), ", ", problem)
	for _, c := range conds {
		s.add(", CASE WHEN ", t.condIs(s, c), " THEN 1 ELSE 0 END, ", c.quoted)
	}
	s.add(" FROM ", t.name, "\nWHERE ", t.keyIs(s, key))
	if how == locking || how == careful && t.sql.level == "" {
		s.add(t.sql.current)
	}
	return s
}
