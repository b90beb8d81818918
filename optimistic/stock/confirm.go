package stock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// The states of a reservation, as the table has them.
const (
	held      = "held"
	confirmed = "confirmed"
	cancelled = "cancelled"
	expired   = "expired"
)

// settlement is one of the two ways in which a reservation is settled by its owner.
type settlement struct{ op, state string }

// Confirm makes a reservation final: what it holds is sold. id is [Hold.ID]. It is
// harmless to confirm twice: the second answers nil as well.
//
// After its time has passed, by the database's clock, it can't be confirmed any more,
// whether anything was given back yet or not, and the error is a [*HoldError]
// (errors.Is [ErrExpired]); so is it after [Stock.Cancel] ([ErrCancelled]), and for
// an ID that this stock has not ([ErrNoReservation]). Nothing is changed then.
//
// On a DB it is a transaction of its own, repeated as [Stock.Take] is; if the
// connection breaks under its COMMIT, it is done once more, which is harmless, and
// [sqldb.Uncertain] only if that fails as well. In a transaction it is confirmed by the
// caller's commit: until then the reservation is locked, and what has been confirmed in
// time stays so, however late the commit comes. Not guaranteed: that ErrNoReservation is
// current in REPEATABLE READ on PostgreSQL, which shows no reservation that was made
// since; the error says so, and [sqldb.Retryable] reports it.
func (s *Stock) Confirm(ctx context.Context, h sqldb.Handle, id string) error {
	return s.settle(ctx, h, id, settlement{"confirm", confirmed})
}

// Cancel gives back what a reservation holds. It is harmless to cancel twice. One that
// has expired is [ErrExpired]: it goes back without it; one that was confirmed is
// [ErrConfirmed]. For the rest, see [Stock.Confirm].
//
// To a row that was deleted meanwhile nothing goes back. A sum that does not fit into
// its column is [ErrOverflow], and nothing is changed.
//
// It locks the reservation, and then the rows, in the order of [Stock.TakeAll]. In a
// transaction that has locked rows before, it may deadlock with another; the database
// then ends one of the two, with an error that [sqldb.Retryable] reports. An error
// after which a part of it would stand ends the transaction.
func (s *Stock) Cancel(ctx context.Context, h sqldb.Handle, id string) error {
	return s.settle(ctx, h, id, settlement{"cancel", cancelled})
}

// settleTries is how often a settlement whose COMMIT was not answered is done again.
const settleTries = 3

func (s *Stock) settle(ctx context.Context, h sqldb.Handle, id string, to settlement) error {
	if err := s.checkHandle(to.op, h); err != nil {
		return err
	}
	reservation, owner, err := s.parseHold(to.op, id)
	if err != nil {
		return err
	}
	once := func(ctx context.Context, tx *sqldb.Tx) error {
		return s.settleTx(ctx, tx, reservation, owner, to)
	}
	if tx, ok := h.(*sqldb.Tx); ok {
		return once(ctx, tx)
	}
	op := fmt.Sprintf("%s reservation %s of %s", to.op, reservation, s.table.Name)
	err = inOwn(ctx, h.DB(), op, once)
	if !sqldb.Uncertain(err) {
		return err
	}
	// The first may still be under way. The second waits for it, at the
	// reservation's row, and finds it done, or undone for good, and does it.
	detached, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqldb.Bound)
	defer cancel()
	for range settleTries {
		var why *HoldError
		switch again := inOwn(detached, h.DB(), op, once); {
		case again == nil:
			return nil
		case errors.As(again, &why):
			return again
		}
	}
	return err
}

// checkHandle refuses a handle that can't be right, before any statement.
func (s *Stock) checkHandle(op string, h sqldb.Handle) error {
	_, err := s.check(op, h, int64(0), 1)
	return err
}

// settleTx locks the reservation, decides by a second statement, whose clock has not
// stopped before the wait, and only then changes lines and rows.
func (s *Stock) settleTx(ctx context.Context, tx *sqldb.Tx, reservation, owner string, to settlement) error {
	q := s.holds.sql
	var state string
	var expires time.Time
	var settled *time.Time
	fail := func(why error, at *time.Time) error {
		e := &HoldError{Op: to.op, Table: s.table.Name, Reservation: reservation, why: why}
		if at != nil {
			e.At = *at
		}
		return e
	}
	err := tx.QueryRow(ctx, q.lock, reservation, owner).Scan(&state, &expires, &settled)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		e := &HoldError{Op: to.op, Table: s.table.Name, Reservation: reservation, why: ErrNoReservation}
		if q.level != "" {
			if err := tx.QueryRow(ctx, q.level).Scan(&e.snapshot); err != nil {
				return s.explainHold(to.op, err)
			}
		}
		return e
	case err != nil:
		return s.explainHold(to.op, err)
	}
	lines, err := s.linesOf(ctx, tx, []string{reservation})
	switch {
	case errors.Is(err, errOtherStock):
		return fail(ErrNoReservation, nil)
	case err != nil:
		return s.explainHold(to.op, err)
	case state == to.state:
		return nil
	case state == confirmed:
		return fail(ErrConfirmed, settled)
	case state == cancelled:
		return fail(ErrCancelled, settled)
	case state != held || settled != nil:
		return fail(ErrExpired, &expires)
	}
	res, err := tx.Exec(ctx, q.settle, to.state, reservation, owner)
	switch {
	case err != nil:
		return s.explainHold(to.op, err)
	case res.RowsAffected == 0:
		return fail(ErrExpired, &expires)
	}
	if to.state == cancelled {
		_, err = s.giveBack(ctx, tx, lines)
	} else {
		err = s.closeLines(ctx, tx, lines)
	}
	if err != nil {
		return spoil(tx, s.explainHold(to.op, err))
	}
	return nil
}
