package stock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

const (
	// sweepBatch is how many reservations one transaction of Sweep gives back, and
	// sweepLines how many lines, unless a single one has more.
	sweepBatch = 100
	sweepLines = 1000
)

// Sweep gives back what has expired of this stock, by the database's clock, and
// returns how many reservations that were. Call it now and then, from as many
// processes as you like, or not at all: a take that finds too little sweeps what has
// expired of its row by itself. What Sweep adds is that the counts are right when
// nobody takes.
//
// On a DB it works through all of them, at most 100 in a transaction: it leaves out
// those that somebody else is at, adds up what goes back to each row, and locks the
// rows in the order of [Stock.TakeAll]. If there is nothing to do it is one indexed
// read. What can't be given back ([ErrOverflow], [ErrBadRow]) stays held, and is told
// when all others are done; to a row that was deleted nothing goes back. In a
// transaction it does one batch. An error may come with a number: so many were given
// back before it.
func (s *Stock) Sweep(ctx context.Context, h sqldb.Handle) (swept int, err error) {
	if err := s.checkHandle("Sweep", h); err != nil {
		return 0, err
	}
	if tx, ok := h.(*sqldb.Tx); ok {
		batch, err := s.expiredAll(ctx, tx, nil)
		if err != nil {
			return 0, s.explainHold("sweep", err)
		}
		swept, _, err := s.sweepTx(ctx, tx, batch)
		return swept, err
	}
	var after *holdAt
	var stuck []error
	for {
		var batch []holdAt
		err := sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) (err error) {
			batch, err = s.expiredAll(ctx, h, after)
			return err
		})
		if err != nil {
			return swept, errors.Join(append(stuck, s.explainHold("sweep", err))...)
		}
		if len(batch) == 0 {
			return swept, errors.Join(stuck...)
		}
		n, last, err := s.sweepOwn(ctx, h.DB(), batch)
		if errors.Is(err, ErrOverflow) || errors.Is(err, ErrBadRow) {
			// One of them can't be given back: which one, each by itself will say.
			n, last = 0, batch[len(batch)-1]
			for _, one := range batch {
				var k int
				k, _, err = s.sweepOwn(ctx, h.DB(), []holdAt{one})
				n += k
				if !errors.Is(err, ErrOverflow) && !errors.Is(err, ErrBadRow) && err != nil {
					break
				}
				if err != nil {
					stuck = append(stuck, fmt.Errorf("reservation %s: %w", one.id, err))
					err = nil
				}
			}
		}
		swept += n
		if err != nil {
			return swept, errors.Join(append(stuck, err)...)
		}
		after = &last
	}
}

// holdAt is a reservation in the order in which they expire.
type holdAt struct {
	id      string
	expires time.Time
}

// expiredAll reads the first of those that have expired, or the first behind one.
func (s *Stock) expiredAll(ctx context.Context, h sqldb.Handle, after *holdAt) (batch []holdAt, err error) {
	query, args := s.holds.sql.expiredAll, []any(nil)
	if after != nil {
		query, args = s.holds.sql.expiredNext, []any{after.expires, after.id}
	}
	err = each(ctx, h, query, args, func(rows *sqldb.Rows) error {
		var x holdAt
		err := rows.Scan(&x.id, &x.expires)
		batch = append(batch, x)
		return err
	})
	return batch, err
}

// sweepOwn is sweepTx in a transaction of its own.
func (s *Stock) sweepOwn(ctx context.Context, db *sqldb.DB, batch []holdAt) (swept int, last holdAt, err error) {
	err = inOwn(ctx, db, "sweep "+s.table.Name, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		swept, last, err = s.sweepTx(ctx, tx, batch)
		return err
	})
	if err != nil {
		return 0, last, err
	}
	return swept, last, nil
}

// sweepTx gives back all that is open of those reservations that nobody else is at.
// last is the last one that it has looked at.
func (s *Stock) sweepTx(ctx context.Context, tx *sqldb.Tx, batch []holdAt) (swept int, last holdAt, err error) {
	if len(batch) == 0 {
		return 0, last, nil
	}
	ids := make([]string, len(batch))
	for i, x := range batch {
		ids[i] = x.id
	}
	locked, err := s.lockExpired(ctx, tx, ids, false)
	if err != nil {
		return 0, last, s.explainHold("sweep", err)
	}
	last = batch[len(batch)-1]
	if len(locked) == 0 {
		return 0, last, nil
	}
	all, err := s.linesOf(ctx, tx, locked)
	if err != nil {
		return 0, last, s.explainHold("sweep", err)
	}
	of := map[string][]holdLine{}
	for _, l := range all {
		of[l.reservation] = append(of[l.reservation], l)
	}
	var lines []holdLine
	var done []string
	for _, x := range batch {
		if !slices.Contains(locked, x.id) {
			continue
		}
		if len(done) > 0 && len(lines)+len(of[x.id]) > sweepLines {
			break
		}
		lines = append(lines, of[x.id]...)
		done = append(done, x.id)
		last = x
	}
	if len(done) == len(locked) {
		last = batch[len(batch)-1]
	}
	if _, err := s.giveBack(ctx, tx, lines); err != nil {
		return 0, last, s.explainHold("sweep", err)
	}
	if _, err := tx.Exec(ctx, s.holds.sql.expire(len(done)), asArgs(done)...); err != nil {
		return 0, last, spoil(tx, s.explainHold("sweep", err))
	}
	return len(done), last, nil
}

// lockExpired locks those of the reservations that are held and have expired.
func (s *Stock) lockExpired(ctx context.Context, tx *sqldb.Tx, ids []string, wait bool) (locked []string, err error) {
	return texts(ctx, tx, s.holds.sql.lockExpired(len(ids), wait), asArgs(ids))
}
