package stock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// Line is one line of an order: N of the row with that id.
type Line struct {
	ID any
	N  int64
}

// MaxLines is how many lines [Stock.TakeAll] takes at once.
const MaxLines = 1000

// checkLines refuses what can't be right, before any statement, and returns the
// lines with their ids as the database will see them.
func (s *Stock) checkLines(op string, h sqldb.Handle, lines []Line) ([]Line, error) {
	switch {
	case len(lines) == 0:
		return nil, fmt.Errorf("%w: %s of %s: there are no lines", ErrInvalid, op, s.table.Name)
	case len(lines) > MaxLines:
		return nil, fmt.Errorf("%w: %s of %s: %d lines, more than %d", ErrInvalid, op, s.table.Name, len(lines), MaxLines)
	}
	plain := make([]Line, len(lines))
	for i, l := range lines {
		id, err := s.check(op, h, l.ID, l.N)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
		plain[i] = Line{id, l.N}
	}
	return plain, nil
}

// takeLines takes all lines in the transaction, or none, and returns how many are
// left of each: for every line the count of its row after all of them. The lines
// are as [Stock.checkLines] returns them.
//
// Whatever error comes back, either nothing of the lines stands, and the
// transaction may go on if it can, or it can't commit any more.
func (s *Stock) takeLines(ctx context.Context, tx *sqldb.Tx, lines []Line) ([]int64, error) {
	return s.changeLines(ctx, tx, lines, s.sql.takeLines, func(r *wanted) error {
		return s.refuseTake(r.id, r.n, r.left)
	}, -1)
}

// putLines puts all lines back in the transaction, or none. For the rest, see
// takeLines.
func (s *Stock) putLines(ctx context.Context, tx *sqldb.Tx, lines []Line) ([]int64, error) {
	return s.changeLines(ctx, tx, lines, s.sql.putLines, func(r *wanted) error {
		return s.refusePut(r.id, r.n, r.left)
	}, +1)
}

// wanted is one row, and what all lines that name it want of it.
type wanted struct {
	id    any   // as the first of its lines gives it
	key   any   // as the row itself gives it
	n     int64 // the sum of its lines
	left  int64 // what the row has, read under its lock
	lines []int // the lines, counted from 0
}

// changeLines locks the rows of the lines in the one order that all callers use,
// judges what they hold, and changes all of them with one statement. Between the
// two the rows are locked: what was judged is what is changed. One statement,
// because whatever makes it fail, a lock timeout on MySQL and MariaDB too, undoes
// all of it.
func (s *Stock) changeLines(ctx context.Context, tx *sqldb.Tx, lines []Line, change func(rows int) manyStatement, refuse func(*wanted) error, sign int64) ([]int64, error) {
	distinct, err := s.merge(lines)
	if err != nil {
		return nil, err
	}
	rows, err := s.lockRows(ctx, tx, distinct)
	if err != nil {
		return nil, err
	}
	if err := s.judge(rows, refuse); err != nil {
		return nil, err
	}
	st := change(len(rows))
	res, err := tx.Exec(ctx, st.query, st.args(rows)...)
	if err != nil {
		return nil, s.explain(idsOf(rows), err)
	}
	if res.RowsAffected != int64(len(rows)) {
		// A trigger has kept one of them as it was, and others have been changed.
		return nil, end(tx, s.unmoved(idsOf(rows)))
	}
	lefts := make([]int64, len(lines))
	for _, r := range rows {
		for _, i := range r.lines {
			lefts[i] = r.left + sign*r.n
		}
	}
	return lefts, nil
}

// merge adds up the lines whose ids are equal byte by byte. What else the database
// takes for one id, it will say itself.
func (s *Stock) merge(lines []Line) ([]*wanted, error) {
	var rows []*wanted
	seen := map[any]*wanted{}
	for i, l := range lines {
		k, _ := key(l.ID)
		r := seen[k]
		if r == nil {
			r = &wanted{id: l.ID}
			seen[k] = r
			rows = append(rows, r)
		}
		if err := s.add(r, l.N, i); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// add has lines want n more of the row.
func (s *Stock) add(r *wanted, n int64, lines ...int) error {
	if n > math.MaxInt64-r.n {
		return fmt.Errorf("%w: %s id %v: the lines want more than %d together", ErrOverflow, s.table.Name, r.id, int64(math.MaxInt64))
	}
	r.n += n
	r.lines = append(r.lines, lines...)
	slices.Sort(r.lines)
	return nil
}

// judge says why rows, as they are under their locks, do not let the lines through:
// of all that are short, one error.
func (s *Stock) judge(rows []*wanted, refuse func(*wanted) error) error {
	var short *ShortError
	for _, r := range slices.SortedFunc(slices.Values(rows), func(a, b *wanted) int { return cmp.Compare(a.lines[0], b.lines[0]) }) {
		err := refuse(r)
		var this *ShortError
		switch {
		case err == nil:
		case !errors.As(err, &this):
			return err
		case short == nil:
			short = this
		default:
			short.Lines = append(short.Lines, this.Lines...)
		}
	}
	if short != nil {
		return short
	}
	return nil
}

// idsOf are the ids as an error prints them.
func idsOf(rows []*wanted) string {
	var b strings.Builder
	for i, r := range rows {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%v", r.id)
	}
	return b.String()
}

// end ends the transaction for everybody who holds it, because part of a change
// that has to be whole stands in it. In a savepoint (pgx's nested Begin) it goes
// back to that.
func end(tx *sqldb.Tx, why error) error {
	ctx, cancel := context.WithTimeout(context.Background(), sqldb.Bound)
	defer cancel()
	if err := tx.Driver().Rollback(ctx); err != nil {
		return errors.Join(why, fmt.Errorf("stock: rolling the transaction back, which must not be committed: %w", err))
	}
	return fmt.Errorf("%w; the transaction was rolled back", why)
}
