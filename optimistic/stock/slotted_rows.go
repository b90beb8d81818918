package stock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"

	"github.com/sqlnative/locks/sqldb"
)

// read reads all slots of an id, in one snapshot.
func (s *Slotted) read(ctx context.Context, h sqldb.Handle, st slotStatement, id any) (rows []slotRow, err error) {
	if _, inTx := h.(*sqldb.Tx); inTx {
		rows, err = s.readSome(ctx, h, st, id, 0)
	} else {
		err = sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) (err error) {
			rows, err = s.readSome(ctx, h, st, id, 0)
			return err
		})
	}
	switch {
	case err != nil:
		return nil, err
	case len(rows) == 0:
		return nil, s.stock.notFound(id)
	}
	if err := s.contiguous(id, rows, 0); err != nil {
		return nil, err
	}
	s.spreads.learn(id, len(rows))
	return rows, nil
}

// errSnapshot: what was read is a snapshot, and may be old.
var errSnapshot = errors.New("stock: a snapshot")

// readSome runs a statement that reads slots.
func (s *Slotted) readSome(ctx context.Context, h sqldb.Handle, st slotStatement, id any, from int64) (found []slotRow, err error) {
	rows, err := h.Query(ctx, st.query, st.args(id, 0, from, "")...)
	if err != nil {
		return nil, s.explain(id, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var r slotRow
		var count *int64
		var problem string
		if err := rows.Scan(&r.slot, &count, &r.version, &problem); err != nil {
			return nil, s.explain(id, err)
		}
		switch {
		case problem == snapshot:
			return nil, errSnapshot
		case problem != "":
			return nil, fmt.Errorf("%w: %s id %v slot %d: %s", ErrBadRow, s.stock.table.Name, id, r.slot, problem)
		case count == nil:
			return nil, fmt.Errorf("%w: %s id %v slot %d: the count is NULL", ErrBadRow, s.stock.table.Name, id, r.slot)
		}
		r.count = *count
		found = append(found, r)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, s.explain(id, err)
	}
	return found, nil
}

// contiguous refuses slots whose numbers are not those from `from` on. Rows that a
// Slotted does not find where it looks would be counted, and never locked.
func (s *Slotted) contiguous(id any, rows []slotRow, from int64) error {
	if from+int64(len(rows)) > MaxSlots {
		return fmt.Errorf("%w: %s id %v: it has more than %d slots", ErrBadRow, s.stock.table.Name, id, MaxSlots)
	}
	for i, r := range rows {
		if r.slot != from+int64(i) {
			return fmt.Errorf("%w: %s id %v: %s: in the place of slot %d is %d", ErrBadRow, s.stock.table.Name, id, notContiguous, from+int64(i), r.slot)
		}
	}
	return nil
}

// allOf adds up the slots. If no int64 holds the sum, it is the one nearest to it.
func allOf(rows []slotRow) (sum int64, fits bool) {
	var hi int64
	var lo, carry uint64
	for _, r := range rows {
		lo, carry = bits.Add64(lo, uint64(r.count), 0)
		hi += r.count>>63 + int64(carry)
	}
	switch {
	case hi == int64(lo)>>63:
		return int64(lo), true
	case hi < 0:
		return math.MinInt64, false
	}
	return math.MaxInt64, false
}

// enough are the slots with at least n.
func enough(rows []slotRow, n int64) (slots []int64) {
	for _, r := range rows {
		if r.count >= n {
			slots = append(slots, r.slot)
		}
	}
	return slots
}

// lopsided reports whether fewer than half of the slots have enough for a take of n, and
// all would have, were it spread.
func lopsided(rows []slotRow, n int64) bool {
	sum, _ := allOf(rows)
	return len(enough(rows, n))*2 < len(rows) && sum/int64(len(rows)) >= n
}

func (s *Slotted) tooMuch(id any) error {
	return fmt.Errorf("%w: %s id %v: all slots together have more than a 64-bit integer holds", ErrOverflow, s.stock.table.Name, id)
}

// explain says what to do about an error of the database.
func (s *Slotted) explain(id any, err error) error {
	if t := s.stock.table; sqldb.ClassOf(err) == sqldb.NoColumn {
		columns := t.ID + ", " + t.Slot + ", " + t.Count
		if t.Version != "" {
			columns += ", " + t.Version
		}
		return fmt.Errorf("stock: table %s lacks one of the columns %s: %w", t.Name, columns, err)
	}
	return s.stock.explain(id, err)
}
