package order

import (
	"context"

	"gorm.io/gorm"

	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// PlaceGORM places an order with GORM: all of its lines, or nothing. db is a handle of
// the pool that g has (pgdb.SQL, mysqldb.New).
func PlaceGORM(ctx context.Context, g *gorm.DB, db *sqldb.DB, goods *stock.Stock, who string, lines []stock.Line) (lefts []int64, err error) {
	err = sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
		return g.WithContext(ctx).Transaction(func(tx *gorm.DB) (err error) {
			if lefts, err = goods.TakeAll(ctx, db.Tx(tx.Statement.ConnPool), lines); err != nil {
				return err
			}
			order, orderLines := rowsOf(who, lines)
			if err := tx.Create(&order).Error; err != nil {
				return err
			}
			return tx.Create(&orderLines).Error
		})
	})
	return lefts, err
}
