package stock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// holds is what a Stock knows about reservations.
type holds struct {
	sql holdStatements

	none  bool // this stock has no reservations, whether the tables are there or not
	mu    sync.Mutex
	there bool      // the tables have been seen
	asked time.Time // when they were asked for last, and were not there
}

// askAgain is how long tables that were not there are not asked for again.
const askAgain = 10 * time.Second

// seen remembers that the tables are there.
func (x *holds) seen() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.there = true
}

// look reports whether the tables are there, as far as that is known.
func (x *holds) look() (there, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.there, x.none || x.there || !x.asked.IsZero() && time.Since(x.asked) < askAgain
}

// holdTables is how many tables reservations need.
const holdTables = 2

// remember keeps how many of the tables are there.
func (x *holds) remember(tables int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.there, x.asked = tables == holdTables, time.Now()
}

// blankRounds is how often a take is tried again though nothing was given back for
// it: somebody else has given it back just then.
const blankRounds = 10

// reclaiming runs take, and if too little is left for it, gives back what has expired
// of the rows that are short, and runs it again, for as long as there is such. A take
// that is not refused costs nothing more; one that is costs one indexed read for each
// row that is short, and nothing where the tables of reservations are not.
func (s *Stock) reclaiming(ctx context.Context, h sqldb.Handle, take func() error) error {
	for blank := 0; ; {
		err := take()
		if err == nil {
			return nil
		}
		if final, ok := err.(finalRefusal); ok { //nolint:errorlint // it is never wrapped
			return final.error
		}
		var short *ShortError
		if !errors.As(err, &short) {
			return err
		}
		again, given, rerr := s.reclaim(ctx, h, short.Lines)
		switch {
		case errors.Is(rerr, ErrOverflow) || errors.Is(rerr, ErrBadRow):
			if _, inTx := h.(*sqldb.Tx); inTx { // which that may have ended
				return fmt.Errorf("%w; what has expired could not be given back, and the transaction may have ended: %w", err, rerr)
			}
			return err // Sweep says what is wrong there
		case rerr != nil:
			return fmt.Errorf("stock: %s: nothing was taken: too little is left, and what has expired could not be given back: %w", s.table.Name, rerr)
		case !again:
			return err
		case !given:
			if blank++; blank > blankRounds {
				return err
			}
		}
	}
}

// reclaim gives back what has expired of the rows that are short. again says that it is
// worth while to try again; given, that it was this call that gave something back.
//
// Of a reservation only the lines of these rows are given back: for the others, rows
// would have to be locked out of order. Such a reservation has begun to expire
// (settled_at), and Sweep, or a take that needs it, does the rest.
//
// In a transaction of its own it waits for whoever is at a reservation that has
// expired: mostly somebody who gives it back, and nobody is refused for that. In the
// caller's, which may have locked rows that the other one wants, it does not wait.
func (s *Stock) reclaim(ctx context.Context, h sqldb.Handle, short []Short) (again, given bool, err error) {
	if there, err := s.holdsThere(ctx, h); err != nil || !there {
		return false, false, err
	}
	tx, inTx := h.(*sqldb.Tx)
	read := func(f func(ctx context.Context) error) error {
		if inTx {
			return f(ctx)
		}
		return sqldb.Retry(ctx, sqldb.Policy{}, f)
	}
	expired, again, err := s.stillShort(ctx, h, short, read)
	if len(expired) == 0 || err != nil {
		if h.DB().Kind() != sqldb.Postgres && gone(err) {
			s.holds.remember(0)
			return false, false, nil
		}
		return again, false, err
	}
	var lines []holdLine
	err = read(func(ctx context.Context) (err error) {
		lines, err = s.expiredFor(ctx, h, expired)
		return err
	})
	switch {
	case err != nil:
		return false, false, err
	case len(lines) == 0: // they were given back between the two looks
		return true, false, nil
	case inTx:
		given, err = s.reclaimTx(ctx, tx, lines, false)
		return given, given, err
	}
	err = inOwn(ctx, h.DB(), "sweep "+s.table.Name, func(ctx context.Context, tx *sqldb.Tx) (err error) {
		given, err = s.reclaimTx(ctx, tx, lines, true)
		return err
	})
	if sqldb.Uncertain(err) {
		return true, false, nil // if it was not given back, the next look finds it again
	}
	return true, given, err
}

// stillShort looks once more at rows that were short: which of them have lines whose
// time has passed, and if none has, if it is worth while to try again all the same.
//
// The interleaving: a take finds too little; somebody else gives back what has expired,
// and commits; only now this one asks what has expired, and there is nothing. So count
// and lines are read by one statement, and a refusal is one if it finds a row that is
// short and has nothing to be given back.
func (s *Stock) stillShort(ctx context.Context, h sqldb.Handle, short []Short, read func(func(ctx context.Context) error) error) (expired []Short, again bool, err error) {
	_, inTx := h.(*sqldb.Tx)
	again = true
	for _, row := range short {
		var left int64
		var lines int
		err := read(func(ctx context.Context) (err error) {
			left, err = s.look(ctx, h, s.holds.sql.lookExpired, row.ID, 0, nil, &lines)
			return err
		})
		switch {
		case err != nil:
			return nil, false, err
		case lines > 0:
			expired = append(expired, row)
		case left < row.Wanted || inTx && h.DB().Kind().InnoDB():
			// In a transaction of MySQL and MariaDB the row was locked when it was found
			// short, and what a plain read shows may be older.
			again = false
		}
	}
	return expired, again, nil
}

// expiredFor reads the lines of the rows whose time has passed.
func (s *Stock) expiredFor(ctx context.Context, h sqldb.Handle, rows []Short) (lines []holdLine, err error) {
	for _, row := range rows {
		err := each(ctx, h, s.holds.sql.expiredFor, []any{row.ID}, func(rows *sqldb.Rows) error {
			var l holdLine
			err := rows.Scan(&l.reservation, &l.key)
			lines = append(lines, l)
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return lines, nil
}

// reclaimTx gives back those of the lines whose reservation it can lock.
func (s *Stock) reclaimTx(ctx context.Context, tx *sqldb.Tx, lines []holdLine, wait bool) (given bool, err error) {
	var ids []string
	for _, l := range lines {
		if !slices.Contains(ids, l.reservation) && len(ids) < sweepBatch {
			ids = append(ids, l.reservation)
		}
	}
	locked, err := s.lockExpired(ctx, tx, ids, wait)
	if err != nil || len(locked) == 0 {
		return false, err
	}
	var ours []holdLine
	for _, l := range lines {
		if slices.Contains(locked, l.reservation) {
			ours = append(ours, l)
		}
	}
	if given, err = s.giveBack(ctx, tx, ours); err != nil || !given {
		return given, err
	}
	if err := s.mark(ctx, tx, locked); err != nil {
		return false, spoil(tx, err)
	}
	return true, nil
}

// mark says of reservations that lines of them were given back: those without any
// that is open have ended. A snapshot may show lines open that are not; then Sweep ends
// them.
func (s *Stock) mark(ctx context.Context, tx *sqldb.Tx, reservations []string) error {
	q := s.holds.sql
	open, err := texts(ctx, tx, q.stillOpen(len(reservations)), asArgs(reservations))
	if err != nil {
		return err
	}
	ended := slices.DeleteFunc(slices.Clone(reservations), func(id string) bool { return slices.Contains(open, id) })
	if len(ended) > 0 {
		if _, err := tx.Exec(ctx, q.expire(len(ended)), asArgs(ended)...); err != nil {
			return err
		}
	}
	if len(open) > 0 {
		if _, err := tx.Exec(ctx, q.begin(len(open)), asArgs(open)...); err != nil {
			return err
		}
	}
	return nil
}

// holdsThere reports whether there are tables of reservations. A Stock is used where
// there are none as well, and there a take must not even ask for them: on PostgreSQL
// the question would abort the caller's transaction. So the catalog is asked, once if
// they are there, and else every 10 s at most.
func (s *Stock) holdsThere(ctx context.Context, h sqldb.Handle) (bool, error) {
	if there, known := s.holds.look(); known {
		return there, nil
	}
	var n int
	if err := h.QueryRow(ctx, s.holds.sql.tables).Scan(&n); err != nil {
		return false, err
	}
	s.holds.remember(n)
	return n == holdTables, nil
}

// lookDB looks at the row outside of a transaction. Where there are reservations, or
// where that is not known, it asks that along, and a refusal is no round trip dearer:
// final says that nothing of the row has expired either.
func (s *Stock) lookDB(ctx context.Context, db *sqldb.DB, id any, n int64, refuse refusal) (left int64, final bool, err error) {
	there, known := s.holds.look()
	switch {
	case !known:
		tables := -1
		left, err = s.look(ctx, db, s.holds.sql.lookAsking, id, n, refuse, &tables)
		if tables >= 0 {
			s.holds.remember(tables)
		}
		return left, tables >= 0 && tables != holdTables, err
	case there:
		lines := -1
		left, err = s.look(ctx, db, s.holds.sql.lookExpired, id, n, refuse, &lines)
		if !gone(err) {
			return left, lines == 0, err
		}
		s.holds.remember(0)
	}
	left, err = s.look(ctx, db, s.sql.look, id, n, refuse)
	return left, true, err
}

// gone reports whether the tables of reservations are not there any more, or not this
// user's to read. (Or the stock's own is: then the next look will say so.)
func gone(err error) bool {
	switch sqldb.ClassOf(err) {
	case sqldb.Denied, sqldb.NoTable, sqldb.NoColumn:
		return true
	}
	return false
}

// finalRefusal is a refusal of which it is known that nothing has expired that could
// be given back.
type finalRefusal struct{ error }

// refused marks a refusal that is final.
func refused(err error, final bool) error {
	if final && errors.Is(err, ErrSoldOut) {
		return finalRefusal{err}
	}
	return err
}
