package stock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// errUnclaimed rolls back a transaction of settleClaim.
var errUnclaimed = errors.New("stock: there is no such claim")

// settleClaim finds out if the claim was made by a transaction whose COMMIT had no
// answer. To read is not enough, for the server may still be at it: so the claim is
// made again, which waits for the other's end, and rolled back.
func (s *Stock) settleClaim(ctx context.Context, db *sqldb.DB, c *claim) (r Receipt, made bool, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqldb.Bound)
	defer cancel()
	waits := *c
	waits.passes = false
	c = &waits
	err = inOwn(ctx, db, "settle", func(ctx context.Context, tx *sqldb.Tx) error {
		for range rounds {
			_, fresh, err := s.makeClaim(ctx, tx, c)
			if err != nil {
				return err
			}
			if fresh {
				return errUnclaimed
			}
			if r, made, err = s.findClaim(ctx, tx, s.claims.findTx, c); err != nil || made {
				return err
			}
		}
		return s.restless(c)
	})
	if errors.Is(err, errUnclaimed) {
		return Receipt{}, false, nil
	}
	return r, made, err
}

// takeClaimed makes the claim and takes, in the transaction, or finds the claim and
// its receipt. In a caller's transaction nothing of the claim is left behind by an
// error; one of its own is rolled back.
func (s *Stock) takeClaimed(ctx context.Context, tx *sqldb.Tx, c *claim, callers bool) (Receipt, error) {
	for range rounds {
		at, made, err := s.makeClaim(ctx, tx, c)
		if err != nil {
			return Receipt{}, err
		}
		if !made {
			if r, found, err := s.findClaim(ctx, tx, s.claims.findTx, c); err != nil || found {
				return r, err
			}
			continue // pruned, or taken back by its own transaction, since it was in the way
		}
		own := c.key
		take := func() (err error) {
			own, err = s.takeFor(ctx, tx, c, &at)
			return err
		}
		if callers {
			// The claim stays while what has expired is given back, so that it is never
			// made after the row was locked.
			err = s.reclaiming(ctx, tx, take)
		} else {
			err = take()
		}
		if err == nil && own == c.key {
			return Receipt{Claim: c.claim, N: c.n, Left: c.left, At: at, Fresh: true}, nil
		}
		if callers || err == nil {
			err = s.dropClaim(tx, c, err)
		}
		if err != nil {
			return Receipt{}, err
		}
		c.key = own // the row writes its id in another way: it is that one's claim
		if err := s.checkClaim(c); err != nil {
			return Receipt{}, err
		}
	}
	return Receipt{}, s.restless(c)
}

// restless is the error of a claim that is there and gone whenever it is looked for.
func (s *Stock) restless(c *claim) error {
	return fmt.Errorf("stock: %s id %v: the claim %q, or the row's id, changes whenever it is looked at; nothing was taken", s.table.Name, c.id, c.claim)
}

// takeFor takes for a claim that this transaction has made, and writes its receipt. It
// returns the row's own id; if that is not the claim's, nothing was taken.
//
// Whatever fails, either nothing was changed, or the transaction can't commit: on
// PostgreSQL and on MySQL and MariaDB, row and receipt are one statement; on SQLite
// the receipt is written first, and goes with the claim.
func (s *Stock) takeFor(ctx context.Context, tx *sqldb.Tx, c *claim, at *time.Time) (own string, err error) {
	kind := s.db.Kind()
	for range rounds {
		if kind == sqldb.Postgres {
			rows, left, err := s.returning(ctx, tx, s.claims.take.query, s.claims.take.args(kind, *c))
			if err != nil {
				return "", s.explainClaim(c, err)
			}
			if rows > 0 {
				c.left = left
				return c.key, nil
			}
		}
		row, err := s.lookClaim(ctx, tx, s.claims.lookTx, c)
		if err != nil || row.key != c.key {
			return row.key, err
		}
		if err := s.refuseTake(c.id, c.n, row.left); err != nil {
			return "", err
		}
		if kind == sqldb.Postgres {
			continue // somebody has put something back in between
		}
		if row.at != nil {
			*at = *row.at
		}
		c.left = row.left - c.n
		want := int64(2)
		if kind == sqldb.SQLite {
			want = 1
			if _, err := tx.Exec(ctx, s.claims.note.query, s.claims.note.args(kind, *c)...); err != nil {
				return "", s.explainClaim(c, err)
			}
		}
		res, err := tx.Exec(ctx, s.claims.take.query, s.claims.take.args(kind, *c)...)
		switch {
		case err != nil:
			return "", s.explainClaim(c, err)
		case res.RowsAffected == 0:
			return "", s.unmoved(c.id)
		case res.RowsAffected != want:
			return "", spoil(tx, s.ambiguous(c.id, res.RowsAffected))
		}
		return c.key, nil
	}
	return "", s.unmoved(c.id)
}
