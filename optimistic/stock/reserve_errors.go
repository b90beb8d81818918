package stock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// What [errors.Is] tells apart of reservations. Each comes as a [*HoldError].
var (
	// ErrExpired: the reservation's time has passed, by the database's clock. What it
	// held goes back to the stock, or has gone already.
	ErrExpired = errors.New("stock: reservation expired")
	// ErrConfirmed: it can't be cancelled, since it was confirmed.
	ErrConfirmed = errors.New("stock: reservation confirmed")
	// ErrCancelled: it can't be confirmed, since it was cancelled.
	ErrCancelled = errors.New("stock: reservation cancelled")
	// ErrNoReservation: the stock has no reservation with that ID.
	ErrNoReservation = errors.New("stock: no such reservation")
)

// HoldError says why a reservation was neither confirmed nor cancelled. Nothing was
// changed. It matches one of [ErrExpired], [ErrConfirmed], [ErrCancelled],
// [ErrNoReservation].
type HoldError struct {
	// Op is "confirm" or "cancel"; Table is the stock table.
	Op, Table string
	// Reservation is the first half of the ID, under which the table has it: the
	// second half, which entitles to settle it, stands in no error.
	Reservation string
	// At is when it expired, was confirmed, or was cancelled; zero if there is none.
	At time.Time

	why      error
	snapshot bool // there is none as far as an old snapshot shows
}

// Error says what became of the reservation, and what to do next.
func (e *HoldError) Error() string {
	text := fmt.Sprintf("stock: %s: %s reservation %s: ", e.Table, e.Op, e.Reservation)
	at := e.At.UTC().Format("2006-01-02 15:04:05.000 MST")
	switch e.why {
	case ErrExpired:
		text += "it expired at " + at + "; what it held goes back to the stock: reserve again"
	case ErrConfirmed:
		text += "it was confirmed at " + at + "; to give back what was bought, use Put"
	case ErrCancelled:
		text += "it was cancelled at " + at + ": reserve again"
	default:
		text += "there is none of this stock with that ID"
		if e.snapshot {
			text += " in this transaction's snapshot; if it was made since, begin it anew"
		}
	}
	return text
}

// Is matches the reason.
func (e *HoldError) Is(target error) bool { return target == e.why }

// RetryTx tells [sqldb.Retryable] whether a transaction that begins anew may succeed: a
// reservation that only an old snapshot does not show may have been made since.
func (e *HoldError) RetryTx() bool { return e.snapshot }

// explainHold says what to do about an error of the tables of reservations.
func (s *Stock) explainHold(op string, err error) error {
	switch sqldb.ClassOf(err) {
	case sqldb.NoTable, sqldb.NoColumn, sqldb.NoSchema:
		return fmt.Errorf("%w: %s of %s: %w", ErrNotMigrated, op, s.table.Name, err)
	}
	if strings.HasPrefix(err.Error(), "stock: ") {
		return err // it says of which row
	}
	return fmt.Errorf("stock: %s of %s: %w", op, s.table.Name, err)
}

// notApplied marks an error behind which, as was found out, nothing was changed.
type notApplied struct{ error }

func (notApplied) NotApplied() bool { return true }
func (e notApplied) Unwrap() error  { return e.error }

// spoil ends a transaction in which a part of a change stands that has to be whole,
// unless the server has.
func spoil(tx *sqldb.Tx, why error) error {
	if tx.Err() != nil {
		return why
	}
	return end(tx, why)
}
