package stock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// prunePage is how many claims PruneClaims looks at at once, and pruneBatch how many
// it deletes in one transaction.
const (
	prunePage  = 1000
	pruneBatch = 200
)

// PruneClaims deletes the claims of this stock table that were made longer than
// olderThan ago, by the database's clock, and returns how many it has deleted, also
// with an error: it can be called again at any time, and by several processes at
// once. A claim that is deleted is forgotten: made again, it takes again. So
// olderThan is longer than anybody may repeat one.
//
// It walks the key of the table, in small transactions, and passes over claims that
// somebody is at, so that it keeps nobody waiting. ctx may end between two of them.
func (s *Stock) PruneClaims(ctx context.Context, olderThan time.Duration) (deleted int64, err error) {
	if olderThan < time.Microsecond {
		return 0, fmt.Errorf("%w: PruneClaims of %s: olderThan is %v, and has to be positive", ErrInvalid, s.table.Name, olderThan)
	}
	var last claimKey
	for {
		page, err := s.claimPage(ctx, last, olderThan)
		if err != nil {
			return deleted, err
		}
		var old []claimKey
		for i, k := range page {
			if k.old {
				old = append(old, k)
			}
			if len(old) == pruneBatch || len(old) > 0 && i == len(page)-1 {
				n, err := s.pruneBatch(ctx, old, olderThan)
				deleted += n
				if err != nil {
					return deleted, err
				}
				old = nil
			}
		}
		if len(page) < prunePage {
			return deleted, nil
		}
		last = page[len(page)-1]
	}
}

// claimKey is the key of a claim within the stock table.
type claimKey struct {
	id, claim string
	old       bool
}

// claimPage reads the keys behind one.
func (s *Stock) claimPage(ctx context.Context, last claimKey, olderThan time.Duration) (page []claimKey, err error) {
	kind := s.db.Kind()
	args := []any{olderThan.Microseconds(), asText(kind, last.id), asText(kind, last.id), asText(kind, last.claim), prunePage}
	if !kind.InnoDB() { // they compare pairs, and find them by the key
		args = append(args[:1], args[2:]...)
	}
	rows, err := s.db.Query(ctx, s.claims.page, args...)
	if err != nil {
		return nil, s.explainPrune(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var k claimKey
		if err := rows.Scan(&k.id, &k.claim, &k.old); err != nil {
			return nil, s.explainPrune(err)
		}
		page = append(page, k)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, s.explainPrune(err)
	}
	return page, nil
}

// pruneBatch deletes claims, those that are still old and that nobody is at.
func (s *Stock) pruneBatch(ctx context.Context, old []claimKey, olderThan time.Duration) (deleted int64, err error) {
	kind := s.db.Kind()
	args := make([]any, 0, 2*len(old)+1)
	if !kind.InnoDB() {
		old = []claimKey{old[0], old[len(old)-1]}
	}
	for _, k := range old {
		args = append(args, asText(kind, k.id), asText(kind, k.claim))
	}
	args = append(args, olderThan.Microseconds())
	err = inOwn(ctx, s.db, "prune claims of "+s.table.Name, func(ctx context.Context, tx *sqldb.Tx) error {
		res, err := tx.Exec(ctx, s.claims.prune(len(old)), args...)
		deleted = res.RowsAffected
		return err
	})
	if err != nil {
		return 0, s.explainPrune(err)
	}
	return deleted, nil
}

func (s *Stock) explainPrune(err error) error {
	return s.explainClaim(&claim{id: "(claims)"}, err)
}
