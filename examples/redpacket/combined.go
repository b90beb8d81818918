package main

import (
	"context"
	"errors"

	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// combined takes for all users of a process who come at the same time with one
// statement and one commit, each with his claim. It commits by itself; so the record is
// written afterwards, and the claim is what counts: whoever dies in between finds out by
// claiming again.
func combined(_ context.Context, db *sqldb.DB, c config) (*contest, error) {
	bonus, err := stock.New(db, stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"})
	if err != nil {
		return nil, err
	}
	sale, err := bonus.Combine(db)
	if err != nil {
		return nil, err
	}
	claim := func(ctx context.Context, user int) (served bool, err error) {
		for range taps {
			receipt, err := sale.TakeOnce(ctx, bonusID, 1, c.claim(user))
			switch {
			case errors.Is(err, stock.ErrSoldOut):
				continue
			case err != nil:
				return served, err
			case !receipt.Fresh:
				continue
			}
			// On SQLite many writers may meet.
			err = sqldb.Retry(ctx, sqldb.Policy{Attempts: 100}, func(ctx context.Context) error { return serve(ctx, db, user) })
			if err != nil {
				return served, err
			}
			served = true
		}
		return served, nil
	}
	return &contest{claim: claim, left: func() {}, close: sale.Close}, nil
}
