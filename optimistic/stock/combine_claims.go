package stock

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// singleClaim is [Stock.TakeOnce] of one that waits at no gate (see mysqlClaims), where
// it may meet a claim of another row. If it would have to, it is a batch of one.
func (c *Combined) singleClaim(m *member) (r Receipt, err error) {
	s := c.s
	s.openGates(m.ctx, c.db)
	err = s.reclaiming(m.ctx, c.db, func() (err error) {
		r, err = s.takeOnce(m.ctx, c.db, &claim{id: m.id, key: s.ownID(m.id), claim: m.claim, owner: rand.Text(), n: m.n, passes: true})
		return err
	})
	if !errors.Is(err, errGateTaken) {
		return r, err
	}
	own := m.asks(m.ctx)
	f := &flight{c: c, l: &line{}, id: m.id, kind: claiming, batch: []*member{own}}
	err = f.takeClaims(m.ctx, f.batch)
	switch {
	case own.decided:
		return own.receipt, own.err
	case err != nil:
		return Receipt{}, err
	}
	return s.TakeOnce(m.ctx, c.db, m.id, m.n, m.claim) // the row changes whenever it is looked at
}

// takeClaims takes once for each of the claims.
func (f *flight) takeClaims(ctx context.Context, pending []*member) error {
	if !f.l.ownSet {
		f.l.own, f.l.ownSet = f.c.s.ownID(f.id), true
	}
	f.c.s.openGates(ctx, f.c.db) // for those who try it alone, and for settle
	return f.each(ctx, pending, func(ms []*member) (int64, bool, error) { return f.claim(ctx, ms) }, func(ms []*member) error {
		// They are refused by a row that was read before: whoever has taken the last of
		// it for one of these very claims is seen now.
		return f.findClaims(ctx, ms)
	})
}

// distinct returns the first of each claim. One that makes the same claim after it gets
// what that gets; for another number, it tries alone, and is told.
func (f *flight) distinct() []*member {
	sorted := byClaim(f.batch)
	for i := 1; i < len(sorted); i++ {
		m, before := sorted[i], sorted[i-1]
		if m.claim != before.claim {
			continue
		}
		if before.same != nil {
			before = before.same
		}
		if m.same = before; m.n != before.n {
			m.decided, m.alone = true, true
		}
	}
	return slices.DeleteFunc(slices.Clone(f.batch), func(m *member) bool { return m.same != nil })
}

// byClaim sorts members by their claims, byte by byte: the order in which claims are
// locked, by every process.
func byClaim(ms []*member) []*member {
	sorted := slices.Clone(ms)
	slices.SortStableFunc(sorted, func(a, b *member) int { return cmp.Compare(a.claim, b.claim) })
	return sorted
}

// attempt is a transaction that takes for claims.
type attempt struct {
	f      *flight
	owner  string
	ms     []*member // in the order in which they came
	sorted []*member // by their claims
	of     []state   // what became of sorted

	left int64 // how many there were before
	made int   // how many of the claims were made
	sum  int64 // what these take
	own  string
}

// state is what an attempt has found out about one claim.
type state struct {
	made    bool
	at      time.Time
	found   bool // it was there before, and this is its receipt, or why it has none
	receipt Receipt
	err     error
}

// The ends of an attempt that has taken nothing and is rolled back.
var (
	errShort    = errors.New("stock: too little is left for all claims")
	errOtherKey = errors.New("stock: the row writes its id in another way")
)

// errIgnored: some claims are not there, and were not made: INSERT IGNORE has made a
// warning of whatever is wrong with them. (They were not pruned in between: a claim that
// is in the way of an INSERT is locked by it.)
var errIgnored = errors.New("stock: the database does not take some of the claims")

// claim makes the claims and takes for them, all of them, in one transaction, or finds
// those that are there and their receipts. done: it has made and taken for all.
func (f *flight) claim(ctx context.Context, ms []*member) (before int64, done bool, err error) {
	s, db := f.c.s, f.c.db
	sorted := byClaim(ms)
	for i, m := range sorted {
		m.place = i
	}
	if f.c.sql.claims.atOnce.query != "" && f.l.sure() {
		a := &attempt{f: f, owner: rand.Text(), ms: ms, sorted: sorted}
		done, err := a.atOnce(ctx)
		if err != nil {
			return 0, false, err
		}
		if done {
			a.decideMade()
			f.l.knows(a.left - a.sum)
			return a.left, true, nil
		}
		f.l.missed()
	}
	for range takeTries {
		a := &attempt{f: f, owner: rand.Text(), ms: ms, sorted: sorted}
		err = inOwn(ctx, db, f.op(ms), a.run)
		if errors.Is(err, errOtherKey) { // what it has found are not the claims of this row
			f.l.own = a.own
			continue
		}
		a.decideFound() // these were committed by others, whatever becomes of the rest
		switch {
		case errors.Is(err, errShort):
			return 0, false, nil
		case sqldb.Uncertain(err):
			applied, serr := a.settle(ctx, err)
			if serr != nil {
				return 0, false, serr
			}
			if !applied {
				err = notApplied{fmt.Errorf("stock: %s: nothing was taken: %w", f.op(ms), cause(err))}
				continue
			}
		case err != nil:
			return 0, false, err
		}
		a.decideMade()
		if a.made > 0 {
			f.l.knows(a.left - a.sum)
		}
		return a.left, a.made == len(ms), nil
	}
	if errors.Is(err, errOtherKey) {
		err = s.restless(&claim{id: f.id, claim: sorted[0].claim})
	}
	return 0, false, err
}

// run is the transaction: the claims, sorted; then the row; then the receipts, if they
// are not what they were thought to be.
func (a *attempt) run(ctx context.Context, tx *sqldb.Tx) error {
	f := a.f
	s, q := f.c.s, f.c.sql
	kind := s.db.Kind()
	a.of = make([]state, len(a.sorted))
	a.made, a.sum, a.left = 0, 0, 0
	if err := a.insert(ctx, tx); err != nil {
		return err
	}
	if kind.InnoDB() && slices.ContainsFunc(a.of, func(st state) bool { return !st.made && !st.found }) {
		return errIgnored
	}
	if a.made == 0 {
		return nil
	}
	row, err := s.lookClaim(ctx, tx, q.claims.lock, &claim{id: f.id})
	if err != nil {
		return err
	}
	if row.key != f.l.own {
		a.own = row.key
		return errOtherKey
	}
	a.left = row.left
	if a.sum > row.left {
		return errShort
	}
	wrong := a.receipts()
	args := q.takeTx.args(f.id, a.sum, int64(a.made))
	rows := int64(0)
	if q.takeTx.returning {
		rows, _, err = s.returning(ctx, tx, q.takeTx.query, args)
	} else {
		var res sqldb.Result
		res, err = tx.Exec(ctx, q.takeTx.query, args...)
		rows = res.RowsAffected
	}
	switch {
	case err != nil:
		return s.explain(f.id, err)
	case rows == 0:
		return s.unmoved(f.id)
	case rows != 1:
		return s.ambiguous(f.id, rows)
	case len(wrong) == 0:
		return nil
	}
	res, err := tx.Exec(ctx, q.claims.receipts.query, q.claims.receipts.batchArgs(kind, claimBatch{key: f.l.own, owner: a.owner, claimList: q.claims.list(wrong)})...)
	switch {
	case err != nil:
		return a.explain(err)
	case res.RowsAffected != int64(len(wrong)):
		return fmt.Errorf("%w: %s: %d receipts were written, and not %d", ErrBadRow, s.db.Table("claims"), res.RowsAffected, len(wrong))
	}
	return nil
}

// wants are the claims, with the receipts that they will have if the row has what it had
// most likely, and all of them are made.
func (a *attempt) wants() []wantedClaim {
	left := a.f.l.left
	for _, m := range a.ms {
		left -= m.n
		m.left = left
	}
	wants := make([]wantedClaim, len(a.sorted))
	for i, m := range a.sorted {
		wants[i] = wantedClaim{m.claim, m.n, m.left}
	}
	return wants
}

// insert makes the claims that are not there, and finds the others.
func (a *attempt) insert(ctx context.Context, tx *sqldb.Tx) error {
	f := a.f
	s, q := f.c.s, f.c.sql.claims
	kind := s.db.Kind()
	wants := a.wants()
	list := q.list(wants)
	args := q.insert.batchArgs(kind, claimBatch{key: f.l.own, owner: a.owner, claimList: list})
	if kind.InnoDB() {
		if _, err := tx.Exec(ctx, q.insert.query, args...); err != nil {
			return a.explain(err)
		}
		return a.find(ctx, tx, q.findTx, list)
	}
	rows, err := tx.Query(ctx, q.insert.query, args...)
	if err != nil {
		return a.explain(err)
	}
	defer func() { _ = rows.Close() }()
	for i := 0; rows.Next(); i++ {
		var claim string
		var at time.Time
		if err := rows.Scan(&claim, &at); err != nil {
			return a.explain(err)
		}
		if st, m := a.at(claim, i); st != nil {
			st.made, st.at = true, at
			a.made++
			a.sum += m.n
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return a.explain(err)
	}
	if a.made == len(a.sorted) {
		return nil
	}
	var others []wantedClaim
	for i, w := range wants {
		if !a.of[i].made {
			others = append(others, w)
		}
	}
	return a.find(ctx, tx, q.findTx, q.list(others))
}

// at finds a claim; it is most likely the one at i.
func (a *attempt) at(claim string, i int) (*state, *member) {
	if i >= len(a.sorted) || a.sorted[i].claim != claim {
		var ok bool
		if i, ok = slices.BinarySearchFunc(a.sorted, claim, func(m *member, c string) int { return strings.Compare(m.claim, c) }); !ok {
			return nil, nil
		}
	}
	return &a.of[i], a.sorted[i]
}

// find reads claims; those that have this attempt's owner were made by it.
func (a *attempt) find(ctx context.Context, h sqldb.Handle, st claimStatement, list claimList) error {
	f := a.f
	s := f.c.s
	rows, err := h.Query(ctx, st.query, st.batchArgs(s.db.Kind(), claimBatch{key: f.l.own, owner: a.owner, claimList: list})...)
	if err != nil {
		return a.explain(err)
	}
	defer func() { _ = rows.Close() }()
	for i := 0; rows.Next(); i++ {
		var r Receipt
		var owner string
		var left *int64
		if err := rows.Scan(&r.Claim, &owner, &r.N, &left, &r.At); err != nil {
			return a.explain(err)
		}
		x, m := a.at(r.Claim, i)
		switch {
		case x == nil || x.made:
		case owner == a.owner:
			x.made, x.at = true, r.At
			a.made++
			a.sum += m.n
		default:
			x.found = true
			x.receipt, x.err = s.receiptOf(&claim{id: m.id, claim: m.claim, n: m.n}, r, owner, left)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return a.explain(err)
	}
	return nil
}

// receipts says what will be left after each claim that was made, in the order in
// which the members came, and of which that is not what was written.
func (a *attempt) receipts() (wrong []wantedClaim) {
	left := a.left
	for _, m := range a.ms {
		if !a.of[m.place].made {
			continue
		}
		left -= m.n
		if m.left != left {
			m.left = left
			wrong = append(wrong, wantedClaim{m.claim, m.n, left})
		}
	}
	return wrong
}

func (a *attempt) explain(err error) error {
	return a.f.c.s.explainClaim(&claim{id: a.f.id, claim: a.sorted[0].claim}, err)
}

// settle finds out if the attempt, which failed with why, was applied, by the first
// claim that it has made: it is all or nothing.
func (a *attempt) settle(ctx context.Context, why error) (applied bool, err error) {
	f := a.f
	for i, m := range a.sorted {
		if !a.of[i].made {
			continue
		}
		r, made, err := f.c.s.settleClaim(ctx, f.c.db, &claim{id: f.id, key: f.l.own, claim: m.claim, owner: a.owner, n: m.n})
		switch {
		case errors.Is(err, ErrClaimMismatch):
			return false, nil // somebody else's
		case err != nil:
			return false, fmt.Errorf("%w; call TakeOnce again with the same claim, which tells (%w)", why, notApplied{err})
		}
		return made && r.Fresh, nil
	}
	return true, nil // there was nothing to be applied
}

// decideMade answers those whose claims were made.
func (a *attempt) decideMade() {
	for i, m := range a.sorted {
		if st := a.of[i]; st.made {
			m.receipt, m.decided = Receipt{Claim: m.claim, N: m.n, Left: m.left, At: st.at, Fresh: true}, true
		}
	}
}

// decideFound answers those whose claims were there. One that is neither there nor was
// made has gone in between, and is undecided.
func (a *attempt) decideFound() {
	for i, st := range a.of { // none, if it could not begin
		if m := a.sorted[i]; st.found {
			m.receipt, m.err, m.decided = st.receipt, st.err, true
		}
	}
}

// findClaims answers those of ms whose claims are there.
func (f *flight) findClaims(ctx context.Context, ms []*member) error {
	s := f.c.s
	row, err := s.lookClaim(ctx, f.c.db, s.claims.look, &claim{id: f.id})
	if err != nil {
		return err
	}
	f.l.own = row.key
	a := &attempt{f: f, sorted: byClaim(ms), of: make([]state, len(ms))}
	wants := make([]wantedClaim, len(ms))
	for i, m := range a.sorted {
		wants[i] = wantedClaim{claim: m.claim}
	}
	if err := a.find(ctx, f.c.db, f.c.sql.claims.find, f.c.sql.claims.list(wants)); err != nil {
		return err
	}
	a.decideFound()
	return nil
}
