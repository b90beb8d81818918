package stock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// flightTime bounds a batch. Whoever still waits for it then tries it alone.
const flightTime = 30 * time.Second

// flight is a batch under way.
type flight struct {
	c     *Combined
	l     *line
	id    any
	kind  int
	batch []*member // in the order in which they came

	ctx    context.Context // detached from everybody's
	cancel context.CancelFunc
	gone   atomic.Int64 // how many do not wait for it any more

	err     error         // the first of its errors
	ended   error         // that of a goroutine that has ended before it was done
	failed  int           // how many of its parts have failed, see maxParts
	singly  int           // for how many of its members a statement was their own
	blocked bool          // with Strict: somebody of it was refused
	turns   chan struct{} // for those who try it alone
}

// leave says that one of its members does not wait any more. When none does, the
// batch is ended, and then it is known what became of it.
func (f *flight) leave() {
	if f.gone.Add(1) == int64(len(f.batch)) {
		f.cancel()
	}
}

// fly sends the batch, and answers everybody but the leader, who is one of them and
// runs it.
func (c *Combined) fly(f *flight, leader *member) {
	defer f.cancel()
	stop := context.AfterFunc(leader.ctx, f.leave)
	defer stop()
	var begun time.Time
	if c.o.trace != nil {
		begun = time.Now()
	}
	// What is not decided when something panics is not known.
	f.ended = &sqldb.UncertainError{Op: f.op(f.batch), Err: errors.New("stock: the goroutine that sent the batch has ended")}
	defer func() { f.answer(leader, begun) }()
	ms := f.batch
	if f.kind == claiming {
		ms = f.distinct()
	}
	f.serve(f.ctx, ms)
	f.ended = nil
}

func (f *flight) op(ms []*member) string {
	what := [...]string{take: "takes of", put: "puts into", claiming: "claims of"}[f.kind]
	return fmt.Sprintf("%d %s %s %v", len(ms), what, f.c.s.table.Name, f.id)
}

// answer tells everybody what became of it.
func (f *flight) answer(leader *member, begun time.Time) {
	served, alones := 0, 0
	left := int64(0) // after the one before
	for _, m := range f.batch {
		if !m.decided {
			f.decide(m, left)
		}
		switch short, refused := m.err.(*ShortError); { //nolint:errorlint // our own, never wrapped
		case m.alone:
			alones++
		case refused:
			left = short.Lines[0].Left
		case m.err == nil && (m.kind != claiming || m.receipt.Fresh):
			left = m.left
			served++
		}
	}
	c := f.c
	told := Batch{ID: f.id, Size: len(f.batch), Served: served, Alone: f.singly + alones, Waited: begun.Sub(f.batch[0].came), Err: f.err}
	if f.ended != nil {
		told.Err = f.ended
	}
	if alones > 0 {
		f.turns = make(chan struct{}, aloneAtOnce)
		c.mu.Lock()
		c.alone += alones
		c.mu.Unlock()
	}
	for _, m := range f.batch {
		switch {
		case m == leader:
		case m.alone:
			m.told <- alone
		default:
			m.told <- answered // from here on, m is somebody else's
		}
	}
	if t := c.o.trace; t != nil && t.Batch != nil {
		told.Took = time.Since(begun)
		t.Batch(told)
	}
}

// decide makes an answer for one that has none: of the same claim before it, or that
// nothing is known. left is what there was when it was its turn.
func (f *flight) decide(m *member, left int64) {
	switch m.decided = true; {
	case m.same != nil:
		m.alone, m.receipt, m.err = m.same.alone, m.same.receipt, m.same.err
		m.receipt.Fresh = false
		if _, refused := m.err.(*ShortError); refused { //nolint:errorlint // our own, never wrapped
			m.err = f.short(m, left)
		}
	default:
		m.err = f.ended
	}
}

// served gives every one of ms its answer; before is how many there were before the
// first of them.
func served(ms []*member, before int64, sign int64) {
	for _, m := range ms {
		before += sign * m.n
		m.left, m.decided = before, true
	}
}

func total(ms []*member) (sum int64) {
	for _, m := range ms {
		sum += m.n
	}
	return sum
}

// change changes the row for all of ms with one statement, in autocommit. done is false
// if the guard has refused it.
func (f *flight) change(ctx context.Context, st batchStatement, ms []*member) (left int64, done bool, err error) {
	var changed *sqldb.Changed
	op := f.op(ms)
	query, args := st.inline(f.c.db.Kind(), st.args(f.id, total(ms), int64(len(ms))))
	err = sqldb.Retry(ctx, sqldb.Policy{Attempts: math.MaxInt}, func(ctx context.Context) (err error) {
		changed, err = f.c.db.Change(ctx, sqldb.Change{
			Op: op, Query: query, Args: args, Returning: st.returning, MaxRows: 1,
		})
		return err
	})
	switch {
	case err != nil:
		return 0, false, f.c.s.explain(f.id, err)
	case changed.RowsAffected > 1:
		return 0, false, &sqldb.UncertainError{Op: op, Err: f.c.s.ambiguous(f.id, changed.RowsAffected)}
	case changed.RowsAffected == 0:
		return 0, false, nil
	case st.returning:
		if err := changed.Scan(0, &left); err != nil { // it was applied
			return 0, false, &sqldb.UncertainError{Op: op, Err: err}
		}
		return left, true, nil
	}
	return changed.LastInsertID, true, nil
}

// puts puts all of it back at once, or decides nobody: a sum may not fit where some of
// it does.
func (f *flight) puts(ctx context.Context, ms []*member) error {
	left, done, err := f.change(ctx, f.c.sql.put, ms)
	switch {
	case err != nil:
		return err
	case !done:
		_, _, err := f.c.s.lookDB(ctx, f.c.db, f.id, 0, nil) // is it there?
		return err
	}
	served(ms, left-total(ms), +1)
	f.l.knows(left)
	return nil
}

// takes takes for all who fit. See [flight.each].
func (f *flight) takes(ctx context.Context, pending []*member) error {
	return f.each(ctx, pending, func(ms []*member) (before int64, done bool, err error) {
		left, done, err := f.change(ctx, f.c.sql.take, ms)
		if err != nil || !done {
			return 0, false, err
		}
		before = left + total(ms)
		served(ms, before, -1)
		f.l.knows(left)
		return before, true, nil
	}, func(ms []*member) error { return nil })
}

// each serves members that take: all of them by one attempt if they fit, which is
// nearly always. If not, the row is read, together with what has expired of its
// reservations, and those who fit by that are tried: the guard, which sees what is
// left under the row's lock, has the last word again. Who does not fit then is
// refused, each with what there was when it was his turn.
//
// attempt takes for all of ms, and tells how many there were before; or done is false,
// and it has taken for none, or not for all of them, and may have decided some.
// refusing is called with those who are to be refused, after the row was read, and may
// decide some of them otherwise.
func (f *flight) each(ctx context.Context, pending []*member, attempt func([]*member) (before int64, done bool, err error), refusing func([]*member) error) error {
	s, db := f.c.s, f.c.db
	short := f.blocked || s.dry.is(f.id)
	for range rounds {
		try := pending
		if short {
			left, final, err := s.lookDB(ctx, db, f.id, 0, nil)
			if err != nil {
				return err
			}
			fits, turns := f.fitting(pending, left)
			if len(fits) < len(pending) && !final && !f.blocked {
				again, err := f.reclaim(ctx, pending, fits, turns)
				if err != nil {
					return err
				}
				if again {
					continue
				}
			}
			if len(fits) == 0 {
				if pending, err = f.refuse(pending, turns, refusing); err != nil || len(pending) == 0 {
					return err
				}
				continue
			}
			if len(fits) == len(pending) {
				s.dry.forget(f.id)
			}
			try = fits
		}
		before, done, err := attempt(try)
		if sqldb.Uncertain(err) { // of those who were tried, and not of the others
			f.doubt(try, err)
			done = false
		} else if err != nil {
			return err
		}
		if done && len(try) == len(pending) {
			return nil
		}
		short = true
		if done {
			// What is left for the others is known, if the guard has seen what the read
			// has: who does not fit into that had his turn.
			if fits, turns := f.fitting(pending, before); slices.Equal(fits, try) {
				if pending, err = f.refuse(pending, turns, refusing); err != nil {
					return err
				}
			}
		}
		pending = undecided(pending)
		if len(pending) == 0 {
			return nil
		}
	}
	return nil // the row changes whenever it is looked at: see serve
}

// fitting picks those who fit into left, in their order, and tells what there was when
// it was each one's turn.
func (f *flight) fitting(ms []*member, left int64) (fits []*member, turns []int64) {
	turns = make([]int64, len(ms))
	fits = make([]*member, 0, len(ms))
	blocked := f.blocked
	for i, m := range ms {
		turns[i] = left
		if blocked || m.n > left {
			blocked = f.c.o.strict
			continue
		}
		left -= m.n
		fits = append(fits, m)
	}
	return fits, turns
}

func undecided(ms []*member) []*member {
	return slices.DeleteFunc(slices.Clone(ms), func(m *member) bool { return m.decided })
}

// refuse refuses those of ms who are not decided yet, and returns whom it has not
// refused: with [Strict], somebody may have been blocked by one who was decided otherwise.
func (f *flight) refuse(ms []*member, turns []int64, refusing func([]*member) error) (rest []*member, err error) {
	f.c.s.dry.remember(f.id)
	asked := undecided(ms)
	if err := refusing(asked); err != nil {
		return nil, err
	}
	if rest = undecided(asked); f.c.o.strict && len(rest) < len(asked) {
		return rest, nil
	}
	for i, m := range ms {
		if !m.decided {
			m.err, m.decided = f.short(m, turns[i]), true
			f.blocked = f.c.o.strict
		}
	}
	return nil, nil
}

func (f *flight) short(m *member, left int64) error {
	return &ShortError{Table: f.c.s.table.Name, Lines: []Short{{ID: m.id, Wanted: m.n, Left: left}}}
}

// reclaim gives back what has expired of the row's reservations, for the first that
// does not fit, as [Stock.reclaiming] does for one that is alone.
func (f *flight) reclaim(ctx context.Context, ms, fits []*member, turns []int64) (again bool, err error) {
	i := 0
	for i < len(fits) && ms[i] == fits[i] {
		i++
	}
	left, wanted := turns[0], int64(math.MaxInt64)
	if before := left - turns[i]; ms[i].n <= wanted-before {
		wanted = before + ms[i].n
	}
	s := f.c.s
	again, _, err = s.reclaim(ctx, f.c.db, []Short{{ID: f.id, Wanted: wanted, Left: left}})
	switch {
	case errors.Is(err, ErrOverflow) || errors.Is(err, ErrBadRow):
		return false, nil // Sweep says what is wrong there
	case err != nil:
		return false, notApplied{fmt.Errorf("stock: %s: nothing was taken: too little is left, and what has expired could not be given back: %w", s.table.Name, err)}
	}
	return again, nil
}
