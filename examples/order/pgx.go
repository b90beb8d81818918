package main

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// placePGX places an order with pgx. It is placeSQL in other words.
func (s *shop) placePGX(ctx context.Context, who string, lines []stock.Line) (lefts []int64, err error) {
	err = sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
		return pgx.BeginFunc(ctx, s.pgx, func(tx pgx.Tx) (err error) {
			if lefts, err = s.goods.TakeAll(ctx, s.db.Tx(tx), lines); err != nil {
				return err
			}
			id := newID()
			if _, err := tx.Exec(ctx, "INSERT INTO t_order (id, who) VALUES ($1, $2)", id, who); err != nil {
				return err
			}
			for _, line := range lines {
				if _, err := tx.Exec(ctx, "INSERT INTO t_order_line (order_id, goods_id, n) VALUES ($1, $2, $3)", id, line.ID, line.N); err != nil {
					return err
				}
			}
			return nil
		})
	})
	return lefts, err
}
