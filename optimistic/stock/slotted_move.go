package stock

import (
	"context"
	"fmt"

	"github.com/sqlnative/locks/sqldb"
)

// Split gives the id n slots, 1 to [MaxSlots], and spreads what there is evenly over
// them. If there are more already, they stay, and it is spread over those: Merge makes
// them fewer. New slots have the version of slot 0, which goes up by one.
//
// It locks slot 0, and then the others, and so waits for every transaction that has
// taken of the id; takes pass. On a DB it is a transaction of its own, as
// [Stock.TakeAll] has it, with the same truth about ctx and errors. In a caller's
// transaction all slots stay locked until it ends, and an error after which a part of
// it would stand ends the transaction. Takes by transactions that hold slots of the id
// may deadlock with it; those errors are [sqldb.Retryable].
func (s *Slotted) Split(ctx context.Context, h sqldb.Handle, id any, n int) error {
	id, err := s.stock.check("Split", h, id, int64(n))
	if err != nil {
		return err
	}
	if n > MaxSlots {
		return fmt.Errorf("%w: Split of %s: %d slots, more than %d", ErrInvalid, s.stock.table.Name, n, MaxSlots)
	}
	return s.move(ctx, h, "split", id, func(ctx context.Context, tx *sqldb.Tx, rows []slotRow) error {
		return s.split(ctx, tx, id, rows, n)
	})
}

// Rebalance spreads what there is evenly over the slots that there are. Slots that
// have what they should have already are not changed. For the rest, see [Slotted.Split].
func (s *Slotted) Rebalance(ctx context.Context, h sqldb.Handle, id any) error {
	id, err := s.stock.check("Rebalance", h, id, 1)
	if err != nil {
		return err
	}
	return s.move(ctx, h, "rebalance", id, func(ctx context.Context, tx *sqldb.Tx, rows []slotRow) error {
		return s.split(ctx, tx, id, rows, len(rows))
	})
}

// Merge puts all there is into slot 0, and deletes the other slots: how a sale ends,
// or begins anew with fewer slots. A sum that does not fit into the column is
// [ErrOverflow], and nothing is changed. The version of slot 0 is then higher than any
// that a deleted slot had, so that a version never comes again, also after a Split. For
// the rest, see [Slotted.Split].
func (s *Slotted) Merge(ctx context.Context, h sqldb.Handle, id any) error {
	id, err := s.stock.check("Merge", h, id, 1)
	if err != nil {
		return err
	}
	return s.move(ctx, h, "merge", id, func(ctx context.Context, tx *sqldb.Tx, rows []slotRow) error {
		return s.merge(ctx, tx, id, rows)
	})
}

// move locks all slots of an id, and does what do does with them.
func (s *Slotted) move(ctx context.Context, h sqldb.Handle, what string, id any, do func(context.Context, *sqldb.Tx, []slotRow) error) error {
	once := func(ctx context.Context, tx *sqldb.Tx) error {
		rows, err := s.lockAll(ctx, tx, id)
		if err != nil {
			return err
		}
		return do(ctx, tx, rows)
	}
	if tx, ok := h.(*sqldb.Tx); ok {
		return once(ctx, tx)
	}
	return inOwn(ctx, h.DB(), fmt.Sprintf("%s %s %v", what, s.stock.table.Name, id), once)
}

// lockAll locks all slots of an id, slot 0 first, and reads them by a second statement:
// the snapshot of one that locks both is older than its wait for slot 0, and would not
// show what was split meanwhile.
func (s *Slotted) lockAll(ctx context.Context, tx *sqldb.Tx, id any) ([]slotRow, error) {
	if s.sql.grab != "" && !tx.Own() {
		if _, err := tx.Exec(ctx, s.sql.grab); err != nil {
			return nil, s.explain(id, err)
		}
	}
	headers, err := s.lockHeader(ctx, tx, id)
	if err != nil {
		return nil, err
	}
	var rows []slotRow
	for headers > 0 {
		some, err := s.readSome(ctx, tx, s.sql.lock, id, int64(len(rows)))
		if err == nil {
			err = s.contiguous(id, some, int64(len(rows)))
		}
		if err != nil {
			return nil, err
		}
		if rows = append(rows, some...); len(some) < s.sql.lockAtOnce {
			break
		}
	}
	if headers == 1 && len(rows) > 0 {
		s.spreads.learn(id, len(rows))
		return rows, nil
	}
	// Something is wrong; a plain read says what.
	if _, err := s.read(ctx, tx, s.sql.rows, id); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %s id %v: slot 0 cannot be locked", ErrBadRow, s.stock.table.Name, id)
}

func (s *Slotted) lockHeader(ctx context.Context, tx *sqldb.Tx, id any) (found int, err error) {
	rows, err := tx.Query(ctx, s.sql.header.query, s.sql.header.args(id, 0, 0, "")...)
	if err != nil {
		return 0, s.explain(id, err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		found++
	}
	if err := rows.Err(); err != nil {
		return 0, s.explain(id, err)
	}
	return found, nil
}

// takeFromAll takes n, of all slots if it has to, or says that there is less.
func (s *Slotted) takeFromAll(ctx context.Context, tx *sqldb.Tx, id any, n int64) error {
	rows, err := s.lockAll(ctx, tx, id)
	if err != nil {
		return err
	}
	sum, fits := allOf(rows)
	if sum < n {
		s.stock.dry.remember(id)
		return s.stock.refuseTake(id, n, sum)
	}
	s.stock.dry.forget(id)
	most := rows[0]
	for _, r := range rows {
		if r.count > most.count {
			most = r
		}
	}
	if most.count >= n && (!lopsided(rows, n) || !fits) {
		return s.set(ctx, tx, id, []slotRow{{slot: most.slot, count: most.count - n, version: 1}})
	}
	if !fits {
		return s.tooMuch(id)
	}
	return s.set(ctx, tx, id, spreadOver(rows, sum-n, len(rows)))
}

// split spreads what the slots have over n of them, or over all if they are more.
func (s *Slotted) split(ctx context.Context, tx *sqldb.Tx, id any, rows []slotRow, n int) error {
	sum, fits := allOf(rows)
	if !fits {
		return s.tooMuch(id)
	}
	n = max(n, len(rows))
	spread := spreadOver(rows, sum, n)
	changed, made := spread, []slotRow(nil)
	if n > len(rows) {
		at := len(spread) - (n - len(rows))
		changed, made = spread[:at], spread[at:]
		if len(changed) == 0 || changed[0].slot != 0 {
			// Slot 0 changes with the set of slots: who reads the slots from an old snapshot
			// and locks them (PostgreSQL, REPEATABLE READ) is told by it that there are others.
			changed = append([]slotRow{{slot: 0, count: rows[0].count, version: 1}}, changed...)
		}
	}
	if err := s.set(ctx, tx, id, changed); err != nil {
		return err
	}
	if err := s.edit(ctx, tx, id, s.sql.insert, made, len(made)); err != nil {
		return s.half(tx, changed, err)
	}
	s.spreads.learn(id, n)
	return nil
}

// merge puts all into slot 0.
func (s *Slotted) merge(ctx context.Context, tx *sqldb.Tx, id any, rows []slotRow) error {
	if len(rows) == 1 {
		return nil
	}
	sum, fits := allOf(rows)
	if !fits {
		return s.tooMuch(id)
	}
	highest := rows[0].version
	for _, r := range rows {
		highest = max(highest, r.version)
	}
	header := []slotRow{{slot: 0, count: sum, version: highest - rows[0].version + 1}}
	if err := s.set(ctx, tx, id, header); err != nil {
		return err
	}
	if err := s.edit(ctx, tx, id, s.sql.remove, rows[1:], len(rows)-1); err != nil {
		return s.half(tx, header, err)
	}
	s.spreads.learn(id, 1)
	return nil
}

// spreadOver are the slots that change if sum is spread evenly over n of them, and then
// those that are new.
func spreadOver(rows []slotRow, sum int64, n int) (changed []slotRow) {
	each, more := sum/int64(n), sum%int64(n)
	if more < 0 { // somebody has made a count negative
		each, more = each-1, more+int64(n)
	}
	for i := range n {
		r := slotRow{slot: int64(i), count: each, version: 1}
		if int64(n-i) <= more { // not slot 0 first, which whoever locks several locks first
			r.count++
		}
		if i >= len(rows) || rows[i].count != r.count {
			changed = append(changed, r)
		}
	}
	return changed
}

// set writes the counts of locked slots.
func (s *Slotted) set(ctx context.Context, tx *sqldb.Tx, id any, rows []slotRow) error {
	least := len(rows)
	if s.names.version == "" && tx.DB().Kind().InnoDB() {
		least = 0 // a row that has what it had already is not always counted
	}
	return s.edit(ctx, tx, id, s.sql.set, rows, least)
}

// edit changes, makes or deletes slots, all of them. Otherwise it ends the transaction.
func (s *Slotted) edit(ctx context.Context, tx *sqldb.Tx, id any, st slotStatement, rows []slotRow, least int) error {
	if len(rows) == 0 {
		return nil
	}
	res, err := tx.Exec(ctx, st.query, st.args(id, 0, 0, slotList(rows))...)
	if err != nil {
		return s.explain(id, err)
	}
	if res.RowsAffected < int64(least) || res.RowsAffected > int64(len(rows)) {
		return spoil(tx, s.stock.unmoved(id))
	}
	return nil
}

// half ends the transaction after an error between two changes that belong together.
func (s *Slotted) half(tx *sqldb.Tx, before []slotRow, err error) error {
	if len(before) == 0 {
		return err
	}
	return spoil(tx, err)
}
