package optimistic

import (
	"errors"
	"fmt"
	"strings"
)

// What [errors.Is] tells apart. Each comes with a text that names the table and the
// row.
var (
	// ErrConflict: the row is not the one that was read; nothing was changed. The
	// error is a [*ConflictError].
	ErrConflict = errors.New("optimistic: conflict")
	// ErrFenced: the row has seen a newer token; nothing was changed. The error is a
	// [*FencedError].
	ErrFenced = errors.New("optimistic: fenced off")
	// ErrNotFound: [Fence] found no row with the key.
	ErrNotFound = errors.New("optimistic: no such row")
	// ErrNull: the row's version, or its token, is NULL. It equals nothing, and
	// protects nothing; make the column NOT NULL.
	ErrNull = errors.New("optimistic: NULL in the column that protects")
	// ErrOverflow: a number does not fit into its column, the next version among them;
	// nothing was changed.
	ErrOverflow = errors.New("optimistic: out of range")
	// ErrInvalid: the call can't be right, and no statement was run.
	ErrInvalid = errors.New("optimistic: invalid")
	// ErrBadRow: the row cannot be protected: its version is no integer, several rows
	// have the key, or the database refuses to change it.
	ErrBadRow = errors.New("optimistic: bad row")
)

// Conflict says what a conflict is about.
type Conflict uint8

const (
	// Unspecified: no row was changed, and [Check] cannot see why.
	Unspecified Conflict = iota
	// Stale: the row has another version than was expected.
	Stale
	// Gone: there is no row with the key.
	Gone
	// Condition: the version is the expected one, and a condition does not hold.
	Condition
)

// String is "stale", "gone" or "condition".
func (c Conflict) String() string {
	switch c {
	case Unspecified:
		return "unspecified"
	case Stale:
		return "stale"
	case Gone:
		return "gone"
	case Condition:
		return "condition"
	}
	return fmt.Sprintf("optimistic.Conflict(%d)", uint8(c))
}

// Mismatch is a condition that does not hold.
type Mismatch struct {
	// Column is the column; Wanted is what [If] said of it, nil for NULL.
	Column string
	Wanted any
	// Actual is what the column holds, as the driver gives it (text is a string), nil
	// for NULL.
	Actual any
}

// ConflictError says why nothing was changed. It matches [ErrConflict]. Its figures
// were read from the database after the refusal.
//
// To [sqldb.Retryable], and so to [sqldb.Retry], a conflict that is stale or
// unspecified is one that another try may not meet: its function reads the row again.
// One that is gone or that fails a condition stays so, and is not tried again.
type ConflictError struct {
	// Kind is what it is about. From [Check] it is Unspecified, and the rest is empty.
	Kind Conflict
	// Table and Key name the row; the values of Key are int64, string or []byte.
	Table string
	Key   []any
	// Expected is the version that the caller had read; Current is the row's own, if
	// there is a row.
	Expected, Current int64
	// Failed are all conditions that do not hold, if Kind is Condition.
	Failed []Mismatch

	row      string // "article id 7"
	snapshot bool   // gone, as far as an old snapshot shows
}

// Error names the row, and what is wrong with it.
func (e *ConflictError) Error() string {
	switch e.Kind {
	case Stale:
		return fmt.Sprintf("optimistic: %s: stale: version %d was expected, and it is %d: read it again", e.row, e.Expected, e.Current)
	case Gone:
		text := fmt.Sprintf("optimistic: %s: gone: version %d was expected, and there is no such row", e.row, e.Expected)
		if e.snapshot {
			text += " in this transaction's snapshot"
		}
		return text
	case Condition:
		var b strings.Builder
		fmt.Fprintf(&b, "optimistic: %s: condition: the version is %d, as expected, and", e.row, e.Current)
		for i, f := range e.Failed {
			if i > 0 {
				b.WriteByte(';')
			}
			fmt.Fprintf(&b, " %s is %s, not %s", f.Column, show(f.Actual), show(f.Wanted))
		}
		return b.String()
	}
	return "optimistic: no row was changed: it has another version than was expected, it is gone, or a condition does not hold: read it again"
}

// Is matches [ErrConflict].
func (e *ConflictError) Is(target error) bool { return target == ErrConflict }

// RetryTx tells [sqldb.Retryable] whether a transaction that reads the row again may
// succeed. A row that only an old snapshot does not show may have been inserted
// since.
func (e *ConflictError) RetryTx() bool {
	return e.Kind == Stale || e.Kind == Unspecified || e.snapshot
}

// FencedError says that the row has seen a newer token. It matches [ErrFenced].
type FencedError struct {
	// Table and Key name the row.
	Table string
	Key   []any
	// Token is the caller's; Seen is the largest that the row has seen.
	Token, Seen int64

	row string
}

// Error names the row and both tokens.
func (e *FencedError) Error() string {
	return fmt.Sprintf("optimistic: %s: fenced off: token %d is older than %d, which the row has seen: the lock was lost to a later holder",
		e.row, e.Token, e.Seen)
}

// Is matches [ErrFenced].
func (e *FencedError) Is(target error) bool { return target == ErrFenced }

// show prints a value of a condition.
func show(v any) string {
	switch v := v.(type) {
	case nil:
		return "NULL"
	case string:
		return fmt.Sprintf("%.80q", v)
	case []byte:
		return fmt.Sprintf("0x%.40x", v)
	}
	return fmt.Sprint(v)
}
