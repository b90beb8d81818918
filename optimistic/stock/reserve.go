package stock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sqlnative/locks/sqldb"
)

// MinTTL is the shortest time for which [Stock.Reserve] reserves.
const MinTTL = 200 * time.Millisecond

const (
	// maxKey is how many bytes the text of a row's id has at most, and maxNote how
	// many characters a note.
	maxKey, maxNote = MaxClaim, 1000
	// atOnce is how many lines one statement names.
	atOnce = 100
)

// Hold is a reservation: stock that was taken for a time.
type Hold struct {
	// ID is random. Whoever has it can confirm and cancel: it is for the table of
	// carts, and not for logs. What stands in front of its dot is the reservation's id
	// in the table sqllock_reservations, and entitles to nothing.
	ID string
	// ExpiresAt is when it can be confirmed no longer, by the database's clock.
	ExpiresAt time.Time
	// Lefts are how many were left, line by line, as of TakeAll.
	Lefts []int64
}

// ReserveOption is an option of [Stock.Reserve].
type ReserveOption func(*reserving) error

// Note says what the reservation is for, in at most 1000 characters, for people who
// read the table. Default: nothing.
func Note(text string) ReserveOption {
	return func(r *reserving) error {
		switch {
		case !utf8.ValidString(text) || strings.ContainsRune(text, 0):
			return errors.New("the note is no text")
		case utf8.RuneCountInString(text) > maxNote:
			return fmt.Errorf("the note has %d characters, more than %d", utf8.RuneCountInString(text), maxNote)
		}
		r.note = text
		return nil
	}
}

// reserving is what Reserve was asked for.
type reserving struct {
	id, owner string
	lines     []Line
	ttl       time.Duration
	note      any
}

// Reserve takes the lines, all or none, for the time ttl: until then they can be
// confirmed or cancelled ([Stock.Confirm], [Stock.Cancel]); after it they go back
// ([Stock.Sweep]). The rows, the order in which they are locked, and the errors are
// those of [Stock.TakeAll]. The time begins when the rows are locked, by the
// database's clock; one below [MinTTL] is [ErrInvalid].
//
// A refusal ([*ShortError], [ErrNotFound], ...) leaves nothing behind, also if the
// caller goes on and commits. Before it refuses, Reserve gives back what has expired
// of the rows that are short, as Take does.
//
// On a DB it is a transaction of its own, repeated as [Stock.Take] is. If the
// connection breaks under its COMMIT, Reserve finds out by the reservation's id if it
// was applied; it is [sqldb.Uncertain] only if the database does not answer that
// either, and such a reservation, whose ID nobody has, expires. In a transaction the
// reservation comes with the caller's commit; an error after which a part of it would
// stand ends the transaction.
//
// It needs the tables of reservations ([ErrNotMigrated]), which know a stock by the
// schema and the name of its table: reserve only one counter of a table.
func (s *Stock) Reserve(ctx context.Context, h sqldb.Handle, lines []Line, ttl time.Duration, opts ...ReserveOption) (Hold, error) {
	lines, err := s.checkLines("Reserve", h, lines)
	if err != nil {
		return Hold{}, err
	}
	r := reserving{id: rand.Text(), owner: rand.Text(), lines: lines, ttl: ttl}
	fail := func(format string, args ...any) (Hold, error) {
		return Hold{}, fmt.Errorf("%w: Reserve of %s: %w", ErrInvalid, s.table.Name, fmt.Errorf(format, args...))
	}
	if ttl < MinTTL {
		return fail("the time is %v, and has to be at least %v", ttl, MinTTL)
	}
	for _, opt := range opts {
		if opt == nil {
			return fail("an option is nil")
		}
		if err := opt(&r); err != nil {
			return fail("%w", err)
		}
	}
	var hold Hold
	if tx, ok := h.(*sqldb.Tx); ok {
		hold, err = s.reserveTx(ctx, tx, r, true)
	} else {
		err = s.reclaiming(ctx, h, func() error {
			err := inOwn(ctx, h.DB(), fmt.Sprintf("reserve %d lines of %s", len(lines), s.table.Name), func(ctx context.Context, tx *sqldb.Tx) (err error) {
				hold, err = s.reserveTx(ctx, tx, r, false)
				return err
			})
			if sqldb.Uncertain(err) {
				err = s.arbitrate(ctx, h.DB(), r, err)
			}
			return err
		})
	}
	if err != nil {
		return Hold{}, err
	}
	s.holds.seen()
	return hold, nil
}

// reserveTx makes the reservation, takes the lines, and then begins its time, when
// nothing has to be waited for any more.
//
// The reservation comes first because of the lock order. Nobody can be waiting for
// its row, which is new, but under REPEATABLE READ the insert itself may have to wait on
// MySQL and MariaDB: a search for a reservation that passes over one that is locked
// leaves a lock on the gap behind it. Who had rows by then would deadlock.
func (s *Stock) reserveTx(ctx context.Context, tx *sqldb.Tx, r reserving, callers bool) (Hold, error) {
	hold := Hold{ID: r.id + "." + r.owner}
	if _, err := tx.Exec(ctx, s.holds.sql.insert, r.id, r.owner, r.note); err != nil {
		return Hold{}, s.explainHold("reserve", err)
	}
	take := func() (err error) {
		hold.Lefts, err = s.takeLines(ctx, tx, r.lines)
		return err
	}
	var err error
	if callers {
		err = s.reclaiming(ctx, tx, take)
	} else {
		err = take()
	}
	if err != nil {
		if callers {
			err = s.unreserve(tx, r, err)
		}
		return Hold{}, err
	}
	if hold.ExpiresAt, err = s.record(ctx, tx, r); err != nil {
		return Hold{}, spoil(tx, s.explainHold("reserve", err))
	}
	return hold, nil
}

// unreserve takes back a reservation that has no lines yet, so that a refusal leaves
// nothing behind, also if ctx has ended. An error of the server has ended the
// transaction, or will have it rolled back.
func (s *Stock) unreserve(tx *sqldb.Tx, r reserving, why error) error {
	if tx.Err() != nil {
		return why
	}
	ctx, cancel := context.WithTimeout(context.Background(), sqldb.Bound)
	defer cancel()
	_, err := tx.Exec(ctx, s.holds.sql.remove, r.id, r.owner)
	switch {
	case err == nil, errors.Is(err, sql.ErrTxDone), sqldb.ClassOf(err) == sqldb.Aborted, sqldb.ClassOf(err) == sqldb.ConnLost:
		return why // it is gone, or the transaction is
	}
	return spoil(tx, errors.Join(why, s.explainHold("reserve", err)))
}

// record writes the lines, and begins the time.
func (s *Stock) record(ctx context.Context, tx *sqldb.Tx, r reserving) (expires time.Time, err error) {
	keys, err := s.keysOf(ctx, tx, r.lines)
	if err != nil {
		return expires, err
	}
	// The keys are the rows' own: 'abc' and 'ABC' may be one row, and then one line.
	var order []string
	sums := map[string]int64{}
	for i, k := range keys {
		if _, ok := sums[k]; !ok {
			order = append(order, k)
		}
		sums[k] += r.lines[i].N // takeLines has seen that the sum is no overflow
	}
	q := s.holds.sql
	if _, err := tx.Exec(ctx, q.start, r.ttl.Microseconds(), r.id); err != nil {
		return expires, err
	}
	for len(order) > 0 {
		part := order[:min(len(order), atOnce)]
		order = order[len(part):]
		var args []any
		for _, k := range part {
			args = append(args, r.id, s.keyArg(k), sums[k], r.id)
		}
		if _, err := tx.Exec(ctx, q.insertLines(len(part)), args...); err != nil {
			return expires, err
		}
	}
	err = tx.QueryRow(ctx, q.expires, r.id).Scan(&expires)
	return expires, err
}

// keysOf reads the keys of the lines' rows as texts, line by line. The rows have been
// changed by this transaction, so it sees them.
func (s *Stock) keysOf(ctx context.Context, tx *sqldb.Tx, lines []Line) ([]string, error) {
	keys := make([]string, len(lines))
	for from := 0; from < len(lines); from += atOnce {
		part := lines[from:min(len(lines), from+atOnce)]
		parts := make([]string, len(part))
		args := make([]any, len(part))
		dest := make([]any, len(part))
		for i, l := range part {
			parts[i] = s.holds.sql.key(hole(s.db.Kind(), i+1))
			args[i] = l.ID
			dest[i] = &keys[from+i]
		}
		if err := tx.QueryRow(ctx, "SELECT "+strings.Join(parts, ", "), args...).Scan(dest...); err != nil {
			return nil, err
		}
	}
	for i, k := range keys {
		if len(k) > maxKey {
			return nil, fmt.Errorf("%w: %s id %v: as text it has %d bytes, and can't be reserved with more than %d", ErrInvalid, s.table.Name, lines[i].ID, len(k), maxKey)
		}
	}
	return keys, nil
}

// errAbsent rolls back what arbitrate has inserted.
var errAbsent = errors.New("stock: it was not there")

// arbitrate finds out whether a reservation was committed whose COMMIT was not
// answered, by inserting the same id. To read is not enough: the COMMIT may still be
// under way, and be carried out after the reading. The insert waits for it, on every
// database: it is a duplicate, or, if it is none, the other transaction is gone for
// good.
func (s *Stock) arbitrate(ctx context.Context, db *sqldb.DB, r reserving, uncertain error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqldb.Bound)
	defer cancel()
	err := inOwn(ctx, db, "find the reservation", func(ctx context.Context, tx *sqldb.Tx) error {
		if _, err := tx.Exec(ctx, s.holds.sql.arbitrate, r.id, r.owner); err != nil {
			return err
		}
		return errAbsent
	})
	switch {
	case sqldb.ClassOf(err) == sqldb.Duplicate:
		return nil
	case errors.Is(err, errAbsent):
		return notApplied{fmt.Errorf("stock: reserve of %s: nothing was reserved: %w", s.table.Name, cause(uncertain))}
	}
	return uncertain
}

// cause is what an [sqldb.UncertainError] was made of.
func cause(err error) error {
	for {
		var u *sqldb.UncertainError
		if !errors.As(err, &u) {
			return err
		}
		err = u.Err
	}
}

// parseHold splits a Hold's ID into what the table has of it.
func (s *Stock) parseHold(op, id string) (reservation, owner string, err error) {
	reservation, owner, ok := strings.Cut(id, ".")
	if ok && reservation != "" && owner != "" && len(id) <= 2*len(rand.Text())+1 && !strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) {
		return reservation, owner, nil
	}
	return "", "", fmt.Errorf("%w: %s of %s: that is no ID of a reservation", ErrInvalid, op, s.table.Name)
}
