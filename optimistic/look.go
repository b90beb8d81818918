package optimistic

import (
	"context"
	"errors"
	"fmt"
	"unicode/utf8"

	"github.com/sqlnative/locks/sqldb"
)

// reading is how a row is read after a refusal.
type reading int

const (
	plainly reading = iota // outside of any transaction: what there is
	careful                // in a transaction: what there is, or the word that it is a snapshot
	locking                // in a transaction whose plain reads show a snapshot
)

// seen is a row as the database shows it after a refusal.
type seen struct {
	there    bool
	snapshot bool // of an old snapshot, as far as there is no row
	value    int64
	failed   []Mismatch
}

// look reads why the statement was refused; nil if it would not be refused now.
func (t *Table) look(ctx context.Context, h sqldb.Handle, c *call) error {
	row, err := t.read(ctx, h, t.version, t.Version, c)
	if err != nil {
		return err
	}
	conflict := &ConflictError{Table: t.Name, Key: c.key, Expected: c.version, Current: row.value, row: c.row}
	switch {
	case !row.there:
		conflict.Kind, conflict.snapshot = Gone, row.snapshot
	case row.value != c.version:
		conflict.Kind = Stale
	case len(row.failed) > 0:
		conflict.Kind, conflict.Failed = Condition, row.failed
	default:
		return nil
	}
	return conflict
}

// read reads the row as it is: the column that protects it, and what the conditions
// say.
func (t *Table) read(ctx context.Context, h sqldb.Handle, quoted, column string, c *call) (row seen, err error) {
	how := plainly
	if _, ok := h.(*sqldb.Tx); ok {
		how = careful
	}
	row, problem, err := t.readOnce(ctx, h, quoted, c, how)
	if problem == snapshot {
		row, problem, err = t.readOnce(ctx, h, quoted, c, locking)
	} else if err == nil && !row.there && how == careful && t.sql.level != "" {
		err = h.QueryRow(ctx, "SELECT "+t.sql.level).Scan(&row.snapshot)
	}
	switch {
	case errors.Is(err, ErrBadRow):
		return row, err
	case err != nil:
		return row, t.explain(c.row, err)
	case problem == isNull:
		return row, fmt.Errorf("%w: %s: %s is NULL", ErrNull, c.row, column)
	case problem != "":
		return row, fmt.Errorf("%w: %s: %s %s", ErrBadRow, c.row, column, problem)
	}
	return row, nil
}

func (t *Table) readOnce(ctx context.Context, h sqldb.Handle, quoted string, c *call, how reading) (row seen, problem string, err error) {
	s := t.lookOf(quoted, c.key, c.conds, how)
	rows, err := h.Query(ctx, s.query.String(), s.args...)
	if err != nil {
		return row, "", err
	}
	defer func() { _ = rows.Close() }()
	var value *int64
	holds, actual := make([]int64, len(c.conds)), make([]any, len(c.conds))
	dest := []any{&value, &problem}
	for i := range c.conds {
		dest = append(dest, &holds[i], &actual[i])
	}
	for rows.Next() {
		if row.there {
			return row, "", fmt.Errorf("%w: %s: several rows have this key: it must be unique", ErrBadRow, c.row)
		}
		if err := rows.Scan(dest...); err != nil {
			return row, "", err
		}
		row.there = true
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return row, "", err
	}
	if value != nil {
		row.value = *value
	}
	for i, cond := range c.conds {
		if row.there && holds[i] == 0 {
			wanted := cond.value
			if cond.null {
				wanted = nil
			}
			row.failed = append(row.failed, Mismatch{Column: cond.column, Wanted: wanted, Actual: t.text(actual[i])})
		}
	}
	return row, problem, nil
}

// text makes a string of what MySQL and MariaDB send for every text.
func (t *Table) text(v any) any {
	if b, ok := v.([]byte); ok && t.db.Kind().InnoDB() && utf8.Valid(b) {
		return string(b)
	}
	return v
}
