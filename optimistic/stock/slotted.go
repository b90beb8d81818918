package stock

import (
	"context"
	"fmt"

	"github.com/sqlnative/locks/sqldb"
)

// MaxSlots is how many slots an id may have.
const MaxSlots = 1024

// Slotted is one counter in several rows, its slots: takes of several connections, of
// one process or of many, each go to another row, and none waits for another's commit.
// How much there is is the sum of them. It is safe for concurrent use.
//
// The table has one row for each id and slot, with a unique key over both, best its
// primary key:
//
//	CREATE TABLE t_bonus_slots (
//		id         BIGINT NOT NULL,
//		slot       INT    NOT NULL,
//		left_count BIGINT NOT NULL,
//		version    BIGINT NOT NULL DEFAULT 0,
//		PRIMARY KEY (id, slot))
//
// The slots of an id are numbered from 0 on without gaps. Slot 0 is made by the
// caller, with all there is, and is always there; [Slotted.Split] makes the others, and
// [Slotted.Merge] deletes them. Columns that a Slotted does not know need defaults.
//
// As many slots as connections are at one id at a time is a good number: 16 for a pool
// of 16. On SQLite, which has one writer, all of it works, and slots make nothing
// faster.
//
// Other programs may change a slot as well, with a guard in the statement, as
// [Stock.Take] has it; so may rows be changed by hand. Only who changes which slots there
// are has to lock slot 0 before.
type Slotted struct {
	// stock knows the table: its checks, its errors, which ids are dry, and who waits
	// to be told so.
	stock   *Stock
	names   slotNames
	sql     slotStatements
	spreads spreads
}

// NewSlotted checks the names and prepares the statements; it asks the database
// nothing. A name that is no identifier, Slot above all, is [ErrInvalid].
func NewSlotted(db *sqldb.DB, t Table) (*Slotted, error) {
	q, err := t.quote(db)
	if err == nil && t.Slot == "" {
		err = fmt.Errorf("%w: table %s: Slot is empty: it is the column with the number of the slot", ErrInvalid, t.Name)
	}
	if err != nil {
		return nil, err
	}
	names := slotNames{quoted: q, slot: db.Kind().QuoteColumn(t.Slot)}
	s := &Slotted{names: names, sql: slotStatementsFor(db.Kind(), names)}
	s.stock = &Stock{db: db, table: t, names: q, sql: statements{look: s.sql.sum}, holds: holds{none: true}}
	return s, nil
}

// Take takes n of the id: in autocommit if h is the [*sqldb.DB], in the caller's
// transaction if h is a [*sqldb.Tx].
//
// It takes from one slot, and does not wait for one that somebody else is at if there
// is another with enough. If all of those are locked, it waits for one of them. If no
// slot has enough, but all of them together, it locks them all, takes from all, and
// spreads what is left evenly. On a DB it does so too where fewer than half of the slots
// have anything to take, and all could have.
//
// If fewer than n are left in all slots together, as one snapshot, or reading them under
// their locks, shows it, nothing is changed, and the error is a [*ShortError] (errors.Is
// [ErrSoldOut]) with the sum in Left. Stock that is moved between slots at the same time
// is never missed. [ErrNotFound]: the id has no slots. [ErrBadRow]: a slot cannot be
// counted on, or their numbers have gaps; a take that finds a slot with enough does not
// look at the others.
//
// For n, the id, ctx, and what errors say on a DB, see [Stock.Take]: nil is taken,
// [sqldb.Uncertain] is unknown, any other error is not taken. Reservations and claims
// are not for slots.
//
// A take is one round trip; one more for the first of an id, and then every 10 s, looks
// how many slots there are. (On MariaDB one more if the first slot that it asks is held,
// or is not enough.) A refusal is one more; after a refusal the next takes of that id
// read first, and those that come at the same time together.
//
// In a transaction the slot is locked until it ends, and a take that was refused leaves
// it usable. A first take of an id waits only where it holds no slot, or slot 0, which
// whoever locks several locks first: so READ COMMITTED transactions of one such take do
// not deadlock with each other, and neither do they with Split, Merge and Rebalance, but
// for a slot that ran dry in the moment in which it was locked. (On PostgreSQL one that
// was waited for in vain is given back by a savepoint, sqllock_slot. MariaDB sometimes
// keeps slots locked that a take has passed over because they had too little; when it
// then waits for slot 0, it may deadlock with those three, retryable.) A second take (or Put) of
// the same id passes over locked slots as well, but where none is free it waits while
// it holds one, and may deadlock with somebody who does the same: the database then ends
// one of the two, with an error that [sqldb.Retryable] reports.
//
// READ COMMITTED is the better choice for sales. Under REPEATABLE READ, on PostgreSQL, a
// slot that has changed since the snapshot, and a refusal from an old snapshot, are
// serialization failures, retryable. On MySQL and MariaDB a take that does not find
// enough keeps the slots locked that it has looked at, and those that come when the
// stock runs out may deadlock, retryable; a Split may wait for transactions of the
// next id, whose gap they have locked. A refusal in a transaction locks all slots there
// until it ends, at either level: only so it is current. So does the first take in a
// transaction after a refusal, also if it is served.
//
// Not guaranteed: that a refusal is true in a session that reads what is not committed
// (READ UNCOMMITTED).
func (s *Slotted) Take(ctx context.Context, h sqldb.Handle, id any, n int64) error {
	id, err := s.stock.check("Take", h, id, n)
	if err != nil {
		return err
	}
	if tx, ok := h.(*sqldb.Tx); ok {
		return s.takeTx(ctx, tx, id, n)
	}
	return s.takeDB(ctx, h.DB(), id, n)
}

// Put puts n back into one slot, one that nobody is at if there is such. n <= 0 is refused
// before any statement; a sum that does not fit into that slot's column is
// [ErrOverflow], and nothing is changed, though another slot might have room for it:
// Rebalance makes that equal. For h, ctx, transactions and the rest, see [Slotted.Take].
func (s *Slotted) Put(ctx context.Context, h sqldb.Handle, id any, n int64) error {
	id, err := s.stock.check("Put", h, id, n)
	if err != nil {
		return err
	}
	if tx, ok := h.(*sqldb.Tx); ok {
		return s.putTx(ctx, tx, id, n)
	}
	return s.putDB(ctx, h.DB(), id, n)
}

// Total reads how many are left in all slots together, in one snapshot and without a
// lock: the next moment it may be fewer. In a transaction it is what the transaction's
// snapshot shows. A sum that no 64-bit integer holds is [ErrOverflow].
func (s *Slotted) Total(ctx context.Context, h sqldb.Handle, id any) (int64, error) {
	id, err := s.stock.check("Total", h, id, 1)
	if err != nil {
		return 0, err
	}
	rows, err := s.read(ctx, h, s.sql.rows, id)
	if err != nil {
		return 0, err
	}
	sum, fits := allOf(rows)
	if !fits {
		return 0, s.tooMuch(id)
	}
	return sum, nil
}
