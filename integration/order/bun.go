package order

import (
	"context"

	"github.com/uptrace/bun"

	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// PlaceBun places an order with bun. It is PlaceGORM in other words.
func PlaceBun(ctx context.Context, b *bun.DB, db *sqldb.DB, goods *stock.Stock, who string, lines []stock.Line) (lefts []int64, err error) {
	err = sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
		return b.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) (err error) {
			if lefts, err = goods.TakeAll(ctx, db.Tx(tx), lines); err != nil {
				return err
			}
			order, orderLines := rowsOf(who, lines)
			if _, err := tx.NewInsert().Model(&order).Exec(ctx); err != nil {
				return err
			}
			_, err = tx.NewInsert().Model(&orderLines).Exec(ctx)
			return err
		})
	})
	return lefts, err
}
