package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// taps is how often each user presses the button.
const taps = 2

// takeOnce takes with a claim, which is the user: whoever presses twice is served
// once, and a request that is repeated because its answer was lost takes nothing
// more. The record commits with the first.
func takeOnce(_ context.Context, db *sqldb.DB, c config) (*contest, error) {
	bonus, err := stock.New(db, stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"})
	if err != nil {
		return nil, err
	}
	tap := func(ctx context.Context, user int) (served bool, err error) {
		err = sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
			served = false
			return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				receipt, err := bonus.TakeOnce(ctx, tx, bonusID, 1, c.claim(user))
				if err != nil || !receipt.Fresh {
					return err
				}
				served = true
				return serve(ctx, tx, user)
			})
		})
		return served && err == nil, err
	}
	claim := func(ctx context.Context, user int) (served bool, err error) {
		for range taps {
			fresh, err := tap(ctx, user)
			if errors.Is(err, stock.ErrSoldOut) {
				continue
			}
			if err != nil {
				return served, err
			}
			served = served || fresh
		}
		return served, nil
	}
	return &contest{claim: claim, left: func() {}, close: func() error { return nil }}, nil
}

// claim is the user's claim in this race: those of an earlier one may be there still.
func (c config) claim(user int) string { return fmt.Sprintf("%s user:%d", c.Race, user) }

// removeClaims takes the claims of this race away, also after Ctrl-C, from a table
// that was there before.
func removeClaims(ctx context.Context, db *sqldb.DB, c config) error {
	_, err := db.Exec(context.WithoutCancel(ctx), fmt.Sprintf("DELETE FROM %s WHERE claim LIKE '%s user:%%'", db.Table("claims"), c.Race))
	return err
}
