package optimistic

import (
	"fmt"
	"strings"

	"github.com/sqlnative/locks/internal/rowkey"
	"github.com/sqlnative/locks/sqldb"
)

// RowKey is the key of one row, as [Key] makes it.
type RowKey struct{ values []any }

// Key names a row by the values of the columns of [Table.Key], in their order. Each is
// of its column's own type: an integer, a string, a []byte, a UUID.
func Key(values ...any) RowKey { return RowKey{values} }

// plain checks the key against the table's columns, and returns it as the database
// will see it.
func (k RowKey) plain(columns []string) ([]any, error) {
	if len(k.values) != len(columns) {
		return nil, fmt.Errorf("the key has %d values, and the table's key is (%s)", len(k.values), strings.Join(columns, ", "))
	}
	values := make([]any, len(columns))
	for i, v := range k.values {
		plain, err := rowkey.Plain(v)
		if err != nil {
			return nil, fmt.Errorf("the key's %s: %w", columns[i], err)
		}
		values[i] = plain
	}
	return values, nil
}

// Set is what an update assigns: column to value, nil for NULL. It is only read.
type Set map[string]any

// Cond is a condition of an update or a delete, as [If] makes it.
type Cond struct {
	column string
	value  any
}

// If is the condition that a column holds a value, as the database compares it (its
// collation counts); nil, or whatever becomes a NULL, is IS NULL.
func If(column string, value any) Cond { return Cond{column, value} }

// checkColumn refuses a column that is no identifier, is named twice, or is one of
// the table's own. Letters of both cases are one: they are on all databases but
// PostgreSQL, and a Set with "VERSION" would overwrite the version there.
func checkColumn(column string, seen map[string]string, what string) error {
	if err := sqldb.CheckIdent(column); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	folded := strings.ToLower(column)
	if other, ok := seen[folded]; ok {
		return fmt.Errorf("%s: the column %q is %s already", what, column, other)
	}
	seen[folded] = what
	return nil
}
