package stock

import (
	"context"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// atOnce makes all claims and takes for them in one statement, if the row has what it
// had most likely, and none of the claims is there. done is false if it has changed
// nothing: then the transaction finds out why.
func (a *attempt) atOnce(ctx context.Context) (done bool, err error) {
	f := a.f
	s, db, q := f.c.s, f.c.db, f.c.sql.claims
	a.of = make([]state, len(a.sorted))
	a.left, a.sum = f.l.left, total(a.ms)
	if a.sum > a.left {
		return false, nil
	}
	wants := a.wants()
	list := q.list(wants)
	changed, err := db.Change(ctx, sqldb.Change{Op: f.op(a.ms), Query: q.atOnce.query, Returning: true, Args: q.atOnce.batchArgs(s.db.Kind(), claimBatch{
		id: f.id, key: f.l.own, owner: a.owner, claimList: list, before: a.left, sum: a.sum, members: int64(len(a.ms)),
	})})
	if sqldb.Uncertain(err) {
		for i := range a.of {
			a.of[i].made = true
		}
		applied, serr := a.settle(ctx, err)
		if serr != nil || !applied {
			return false, serr
		}
		// The claims say when they were made.
		clear(a.of)
		a.made, a.sum = 0, 0
		read, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqldb.Bound)
		defer cancel()
		if ferr := a.find(read, db, q.find, list); ferr != nil || a.made != len(a.ms) {
			return false, err
		}
		return true, nil
	}
	if err != nil || changed.Len() != 1 {
		return false, nil
	}
	var at time.Time
	var one int64
	if err := changed.Scan(0, &at, &one); err != nil {
		return false, &sqldb.UncertainError{Op: f.op(a.ms), Err: err} // it was applied
	}
	for i := range a.of {
		a.of[i].made, a.of[i].at = true, at
	}
	a.made = len(a.ms)
	return true, nil
}
