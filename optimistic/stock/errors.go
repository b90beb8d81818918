package stock

import (
	"errors"
	"fmt"
	"strings"
)

// What [errors.Is] tells apart. Each comes with a text that names the table and
// the row.
var (
	// ErrSoldOut: fewer are left than were wanted; nothing was changed. The error is
	// a [*ShortError].
	ErrSoldOut = errors.New("stock: sold out")
	// ErrNotFound: the table has no row with that id.
	ErrNotFound = errors.New("stock: no such row")
	// ErrOverflow: the sum does not fit into the column; nothing was changed.
	ErrOverflow = errors.New("stock: out of range")
	// ErrInvalid: the call can't be right, and no statement was run: n <= 0, no id,
	// an id of a type that is none, a handle of another kind of database, a name that
	// is no identifier.
	ErrInvalid = errors.New("stock: invalid")
	// ErrBadRow: the row cannot be counted on: its count or its version is NULL or no
	// integer, several rows have the id, or the database refuses to change it.
	ErrBadRow = errors.New("stock: bad row")
	// ErrClaimMismatch: the claim was made before, for another number. Nothing was
	// changed.
	ErrClaimMismatch = errors.New("stock: claim mismatch")
	// ErrNotMigrated: the tables of sqllock are not there, or too old: claims have one.
	ErrNotMigrated = errors.New("stock: the tables of sqllock are not there or too old: run \"sqllock-migrate up\" or migrations.Up")
)

// Short is one row of which fewer are left than were wanted.
type Short struct {
	// ID is the row's id: int64, string or []byte, whatever type it was given as.
	ID any
	// Wanted is what was asked for; Left is what there was when the database
	// refused.
	Wanted, Left int64
}

// ShortError says of which rows fewer are left than were wanted. It matches
// [ErrSoldOut]. Its figures were read from the database, never from memory.
type ShortError struct {
	// Table is the stock table.
	Table string
	// Lines are the rows that are short: one for Take.
	Lines []Short
}

// Error names the table and every row that is short.
func (e *ShortError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "stock: %s: sold out: ", e.Table)
	for i, l := range e.Lines {
		if i > 0 {
			b.WriteString("; ")
		}
		fmt.Fprintf(&b, "id %v: %d wanted, %d left", l.ID, l.Wanted, l.Left)
	}
	return b.String()
}

// Is matches [ErrSoldOut].
func (e *ShortError) Is(target error) bool { return target == ErrSoldOut }
