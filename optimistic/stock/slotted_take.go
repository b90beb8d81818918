package stock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// patience is how often a take waits for a slot, and finds that it does not let it
// through any more. Then it locks all of them.
const patience = 3

// polls is how often a take in a transaction of MySQL or MariaDB asks again for a slot
// that nobody is at, with pauses of 7 ms in all on average.
const polls = 4

// pause sleeps before the next of polls.
func pause(ctx context.Context, try int) error {
	timer := time.NewTimer(rand.N(time.Millisecond << try))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// takeDB takes in autocommit.
func (s *Slotted) takeDB(ctx context.Context, db *sqldb.DB, id any, n int64) error {
	op := fmt.Sprintf("take %d of %s %v", n, s.stock.table.Name, id)
	if s.stock.dry.is(id) {
		left, _, err := s.stock.lookDry(ctx, db, id)
		if err != nil {
			return nothingDone(op, err)
		}
		if err := s.stock.refuseTake(id, n, left); err != nil {
			return err
		}
		s.stock.dry.forget(id)
	}
	slot, err := s.start(ctx, db, id)
	if err != nil {
		return err
	}
	taken, err := s.free(ctx, db, op, s.sql.take, id, n, slot)
	for waited := 0; err == nil && !taken; waited++ {
		rows, rerr := s.read(ctx, db, s.sql.rows, id)
		if rerr != nil {
			return nothingDone(op, rerr)
		}
		if sum, _ := allOf(rows); sum < n {
			s.stock.dry.remember(id)
			return s.stock.refuseTake(id, n, sum)
		}
		slots := enough(rows, n)
		if len(slots) == 0 || waited == patience {
			return s.takeMoving(ctx, db, op, id, n)
		}
		if lopsided(rows, n) {
			if done, ok := s.spreads.tryMove(id); ok {
				defer done()
				return s.takeMoving(ctx, db, op, id, n)
			}
		}
		taken, err = s.change(ctx, db, op, s.sql.take.one, id, n, slots[rand.IntN(len(slots))])
		if err == nil && !taken {
			taken, err = s.free(ctx, db, op, s.sql.take, id, n, slots[0])
		}
	}
	return err
}

// takeMoving takes in a transaction of its own that locks all slots, and moves what is
// left between them.
func (s *Slotted) takeMoving(ctx context.Context, db *sqldb.DB, op string, id any, n int64) error {
	return inOwn(ctx, db, op, func(ctx context.Context, tx *sqldb.Tx) error { return s.takeFromAll(ctx, tx, id, n) })
}

// takeTx takes in the caller's transaction.
func (s *Slotted) takeTx(ctx context.Context, tx *sqldb.Tx, id any, n int64) error {
	kind := tx.DB().Kind()
	// (On SQLite it is the UPDATE that takes the write lock: what was read before may be
	// old.)
	dry := kind != sqldb.SQLite && s.stock.dry.is(id)
	slot, old := s.spreads.start(id)
	if !dry {
		if taken, err := s.changeTx(ctx, tx, s.sql.take.free, id, n, slot); err != nil || taken {
			return s.learnTx(ctx, tx, id, old, err)
		}
	}
	if kind.InnoDB() {
		// What a plain read shows here may be old, and on MariaDB it would make of every
		// slot that changes from now on an error (1020). And a slot that was waited for
		// stays locked, also if it is not enough, or was deleted. So a free one is asked for
		// again, and then slot 0 is waited for, which whoever locks all slots locks first.
		for try := 0; try < polls && !dry; try++ {
			if err := pause(ctx, try); err != nil {
				return s.explain(id, err)
			}
			if taken, err := s.changeTx(ctx, tx, s.sql.take.free, id, n, slot); err != nil || taken {
				return s.learnTx(ctx, tx, id, old, err)
			}
		}
		if !dry {
			if taken, err := s.changeTx(ctx, tx, s.sql.take.one, id, n, 0); err != nil || taken {
				return s.learnTx(ctx, tx, id, old, err)
			}
		}
		return s.takeFromAll(ctx, tx, id, n)
	}
	for range patience {
		rows, err := s.readTx(ctx, tx, id)
		if err != nil {
			return err
		}
		if sum, _ := allOf(rows); sum < n {
			s.stock.dry.remember(id)
			return s.stock.refuseTake(id, n, sum)
		}
		s.stock.dry.forget(id)
		slots := enough(rows, n)
		if len(slots) == 0 {
			break
		}
		if taken, err := s.waitTx(ctx, tx, id, n, slots[rand.IntN(len(slots))]); err != nil || taken {
			return err
		}
	}
	return s.takeFromAll(ctx, tx, id, n)
}

// waitTx takes of a slot that is free, or waits for one (PostgreSQL, SQLite), and locks
// none if it takes nothing.
//
// PostgreSQL locks a row that it has waited for before it looks at it again, and keeps
// the lock if the row does not let the statement through any more. The interleaving: it
// waits for slot 5, which is emptied meanwhile, and holds it; somebody who moves stock
// has slot 0 and waits for slot 5; now it waits for slot 0. So it gives back what it has
// locked for nothing, by a savepoint, which only those pay for who have to wait.
func (s *Slotted) waitTx(ctx context.Context, tx *sqldb.Tx, id any, n, slot int64) (taken bool, err error) {
	save := func(statements ...string) error {
		if tx.DB().Kind() != sqldb.Postgres { // on SQLite nobody waits for a row
			return nil
		}
		for _, st := range statements {
			if _, err := tx.Exec(ctx, st+" sqllock_slot"); err != nil {
				return s.explain(id, err)
			}
		}
		return nil
	}
	if err := save("SAVEPOINT"); err != nil {
		return false, err
	}
	for _, st := range []slotStatement{s.sql.take.free, s.sql.take.one} {
		if taken, err = s.changeTx(ctx, tx, st, id, n, slot); err != nil {
			return false, err
		}
		if taken {
			if err := save("RELEASE SAVEPOINT"); err != nil {
				return false, spoil(tx, err) // an error says that nothing was changed
			}
			return true, nil
		}
	}
	return false, save("ROLLBACK TO SAVEPOINT", "RELEASE SAVEPOINT")
}

// putDB puts back in autocommit.
func (s *Slotted) putDB(ctx context.Context, db *sqldb.DB, id any, n int64) error {
	op := fmt.Sprintf("put %d into %s %v", n, s.stock.table.Name, id)
	slot, err := s.start(ctx, db, id)
	if err != nil {
		return err
	}
	put, err := s.free(ctx, db, op, s.sql.put, id, n, slot)
	for range rounds {
		if err != nil || put {
			return err
		}
		rows, err := s.read(ctx, db, s.sql.rows, id)
		if err != nil {
			return nothingDone(op, err)
		}
		// All are locked. Slot 0 stays where it is, whatever somebody merges.
		if err := s.stock.refusePut(id, n, rows[0].count); err != nil {
			return err
		}
		if put, err = s.change(ctx, db, op, s.sql.put.one, id, n, 0); err != nil || put {
			return err
		}
	}
	return s.stock.unmoved(id)
}

// putTx puts back in the caller's transaction.
func (s *Slotted) putTx(ctx context.Context, tx *sqldb.Tx, id any, n int64) error {
	slot, old := s.spreads.start(id)
	for _, st := range []slotStatement{s.sql.put.free, s.sql.put.one} {
		if put, err := s.changeTx(ctx, tx, st, id, n, slot); err != nil || put {
			return s.learnTx(ctx, tx, id, old, err)
		}
		slot = 0
	}
	rows, err := s.lockAll(ctx, tx, id)
	if err != nil {
		return err
	}
	if err := s.stock.refusePut(id, n, rows[0].count); err != nil {
		return err
	}
	return s.stock.unmoved(id)
}

// start says with which slot to begin, and looks how many there are if that is not
// known.
func (s *Slotted) start(ctx context.Context, db *sqldb.DB, id any) (int64, error) {
	slot, old := s.spreads.start(id)
	if !old {
		return slot, nil
	}
	err := sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error { return s.count(ctx, db, id) })
	if err != nil {
		return 0, notApplied{err}
	}
	slot, _ = s.spreads.start(id)
	return slot, nil
}

// count looks how many slots there are.
func (s *Slotted) count(ctx context.Context, h sqldb.Handle, id any) error {
	var last int64
	if err := h.QueryRow(ctx, s.sql.last.query, s.sql.last.args(id, 0, 0, "")...).Scan(&last); err != nil {
		return s.explain(id, err)
	}
	s.spreads.learn(id, int(min(last, MaxSlots)+1))
	return nil
}

// learnTx looks how many slots there are in a caller's transaction, once it has done
// its work: a plain read before it would make a snapshot, and that would be old by the
// time that a slot is locked.
func (s *Slotted) learnTx(ctx context.Context, tx *sqldb.Tx, id any, old bool, err error) error {
	if err != nil || !old {
		return err
	}
	if err := s.count(ctx, tx, id); err != nil {
		return spoil(tx, err) // an error says that nothing was changed
	}
	return nil
}

// readTx reads what is there now, whatever the snapshot of the caller's transaction
// shows, or fails (PostgreSQL, SQLite).
func (s *Slotted) readTx(ctx context.Context, tx *sqldb.Tx, id any) ([]slotRow, error) {
	rows, err := s.read(ctx, tx, s.sql.rowsTx, id)
	if errors.Is(err, errSnapshot) {
		rows, err = s.read(ctx, tx, s.sql.rowsCurrent, id)
	}
	return rows, err
}

// free changes one slot that nobody is at.
func (s *Slotted) free(ctx context.Context, db *sqldb.DB, op string, c slotChange, id any, n, slot int64) (done bool, err error) {
	if c.first != nil {
		done, err = s.changeOnce(ctx, db, op, *c.first, id, n, slot)
		if done || err != nil && !sqldb.Retryable(err) {
			return done, err
		}
	}
	return s.change(ctx, db, op, c.free, id, n, slot)
}

// change runs a statement that changes one slot in autocommit, and says if it has. What
// can be tried again is.
func (s *Slotted) change(ctx context.Context, db *sqldb.DB, op string, st slotStatement, id any, n, slot int64) (done bool, err error) {
	err = sqldb.Retry(ctx, sqldb.Policy{Attempts: math.MaxInt}, func(ctx context.Context) error {
		done, err = s.changeOnce(ctx, db, op, st, id, n, slot)
		return err
	})
	return done, err
}

func (s *Slotted) changeOnce(ctx context.Context, db *sqldb.DB, op string, st slotStatement, id any, n, slot int64) (bool, error) {
	changed, err := db.Change(ctx, sqldb.Change{Op: op, Query: st.query, Args: st.args(id, n, slot, ""), MaxRows: 1})
	switch {
	case errors.Is(err, sqldb.ErrTooManyRows):
		return false, fmt.Errorf("%w: %w", s.several(id), err)
	case err != nil:
		return false, s.explain(id, err)
	case changed.RowsAffected > 1:
		return false, &sqldb.UncertainError{Op: op, Err: s.several(id)}
	}
	return changed.RowsAffected == 1, nil
}

// changeTx runs a statement that changes one slot in the caller's transaction.
func (s *Slotted) changeTx(ctx context.Context, tx *sqldb.Tx, st slotStatement, id any, n, slot int64) (bool, error) {
	res, err := tx.Exec(ctx, st.query, st.args(id, n, slot, "")...)
	switch {
	case err != nil:
		return false, s.explain(id, err)
	case res.RowsAffected > 1:
		return false, spoil(tx, s.several(id))
	}
	return res.RowsAffected == 1, nil
}

func (s *Slotted) several(id any) error {
	t := s.stock.table
	return fmt.Errorf("%w: %s: several rows have %s %v and one %s; both together need a unique key", ErrBadRow, t.Name, t.ID, id, t.Slot)
}

// nothingDone marks the error of a read as one behind which nothing was changed.
func nothingDone(op string, err error) error {
	return notApplied{fmt.Errorf("%w (%s: nothing was changed)", err, op)}
}
