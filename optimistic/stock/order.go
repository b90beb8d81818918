package stock

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// lockRows locks the rows, and reads them. It returns one wanted for each row of the
// table: ids that the table takes for one ('abc' and 'ABC') have become one.
func (s *Stock) lockRows(ctx context.Context, tx *sqldb.Tx, ids []*wanted) ([]*wanted, error) {
	ordered, err := s.order(ctx, tx, ids)
	if err != nil {
		return nil, err
	}
	if s.sql.grab != "" && !tx.Own() {
		if _, err := tx.Exec(ctx, s.sql.grab); err != nil {
			return nil, s.explain(idsOf(ids), err)
		}
	}
	l := locking{s: s, byKey: map[any]*wanted{}}
	for len(ordered) > 0 {
		part := ordered[:min(len(ordered), s.sql.lockAtOnce)]
		ordered = ordered[len(part):]
		missing, err := l.some(ctx, tx, part, s.sql.lockLines)
		if err == nil && len(missing) > 0 && s.sql.lockEach != nil {
			missing, err = l.some(ctx, tx, missing, s.sql.lockEach)
		}
		if err != nil {
			return nil, err
		}
		l.missing = append(l.missing, missing...)
	}
	if l.missing != nil {
		return nil, fmt.Errorf("%w: %s has no row with %s %s", ErrNotFound, s.table.Name, s.table.ID, idsOf(l.missing))
	}
	return l.rows, nil
}

// locking is a lockRows under way.
type locking struct {
	s       *Stock
	rows    []*wanted
	byKey   map[any]*wanted
	missing []*wanted
}

// some locks the rows of ids, in the order of ids, or in the server's own, and
// returns the ids that it has not found.
func (l *locking) some(ctx context.Context, tx *sqldb.Tx, ids []*wanted, statement func(rows int) manyStatement) (missing []*wanted, err error) {
	s := l.s
	st := statement(len(ids))
	answer, err := tx.Query(ctx, st.query, st.args(ids)...)
	if err != nil {
		return nil, s.explain(idsOf(ids), err)
	}
	defer func() { _ = answer.Close() }()
	found := make([]bool, len(ids))
	for answer.Next() {
		var which, problem string
		var k any
		var left *int64
		if err := answer.Scan(&which, &k, &left, &problem); err != nil {
			return nil, s.explain(idsOf(ids), err)
		}
		for _, i := range strings.Split(which, ",") {
			i, err := strconv.Atoi(i)
			if err != nil {
				return nil, fmt.Errorf("stock: %s: which line a row belongs to: %w", s.table.Name, err)
			}
			r := ids[i]
			switch {
			case found[i]:
				return nil, s.several(r.id)
			case problem != "":
				return nil, fmt.Errorf("%w: %s id %v: %s", ErrBadRow, s.table.Name, r.id, problem)
			case left == nil:
				return nil, fmt.Errorf("%w: %s id %v: the count is NULL", ErrBadRow, s.table.Name, r.id)
			}
			found[i] = true
			r.key, r.left = k, *left
			mk, ok := key(k)
			if !ok {
				return nil, fmt.Errorf("%w: %s id %v: the row's own id is a %T", ErrBadRow, s.table.Name, r.id, k)
			}
			if same := l.byKey[mk]; same != nil {
				if r.lines[0] < same.lines[0] {
					same.id = r.id
				}
				if err := s.add(same, r.n, r.lines...); err != nil {
					return nil, err
				}
				continue
			}
			l.byKey[mk] = r
			l.rows = append(l.rows, r)
		}
	}
	if err := errors.Join(answer.Err(), answer.Close()); err != nil {
		return nil, s.explain(idsOf(ids), err)
	}
	for i, ok := range found {
		if !ok {
			missing = append(missing, ids[i])
		}
	}
	return missing, nil
}

// order sorts ids as the database compares them, where the lock statement does not
// do so itself. Integers are in one order everywhere, and so are bytes. How texts
// are ordered is the column's to say: sorted by their bytes, 'B' is before 'a',
// where the column says after, and two orders that name both rows deadlock with one
// that names 'b' and 'A'.
func (s *Stock) order(ctx context.Context, tx *sqldb.Tx, ids []*wanted) ([]*wanted, error) {
	if s.sql.orderLines == nil || len(ids) < 2 {
		return ids, nil
	}
	sorted := slices.Clone(ids)
	switch {
	case all(ids, func(id any) bool { _, ok := id.(int64); return ok }):
		slices.SortFunc(sorted, func(a, b *wanted) int { return cmp.Compare(a.id.(int64), b.id.(int64)) })
		return sorted, nil
	case all(ids, func(id any) bool { _, ok := id.([]byte); return ok }):
		slices.SortFunc(sorted, func(a, b *wanted) int { return bytes.Compare(a.id.([]byte), b.id.([]byte)) })
		return sorted, nil
	}
	st := s.sql.orderLines(len(ids))
	answer, err := tx.Query(ctx, st.query, st.args(ids)...)
	if err != nil {
		return nil, s.explain(idsOf(ids), err)
	}
	defer func() { _ = answer.Close() }()
	sorted = sorted[:0]
	for answer.Next() {
		var i int
		if err := answer.Scan(&i); err != nil {
			return nil, s.explain(idsOf(ids), err)
		}
		sorted = append(sorted, ids[i])
	}
	if err := errors.Join(answer.Err(), answer.Close()); err != nil {
		return nil, s.explain(idsOf(ids), err)
	}
	return sorted, nil
}

func all(rows []*wanted, is func(id any) bool) bool {
	return !slices.ContainsFunc(rows, func(r *wanted) bool { return !is(r.id) })
}
