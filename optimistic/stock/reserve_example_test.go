package stock_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"time"

	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/optimistic/stock"
)

// A cart holds goods for a time; it is paid, or they go back.
func ExampleStock_Reserve() {
	ctx := context.Background()
	pool, db := shop()
	defer pool.Close()
	if err := migrations.Up(ctx, db); err != nil { // or: sqllock-migrate up
		log.Fatal(err)
	}
	goods, err := stock.New(db, stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"})
	if err != nil {
		log.Fatal(err)
	}
	hold, err := goods.Reserve(ctx, db, []stock.Line{{ID: 10001, N: 2}}, 15*time.Minute, stock.Note("cart 7"))
	fmt.Println(hold.Lefts, err)
	_, err = goods.Take(ctx, db, 10001, 1)
	fmt.Println(errors.Is(err, stock.ErrSoldOut))

	fmt.Println(goods.Confirm(ctx, db, hold.ID)) // in the transaction of the order: db.Tx(tx)
	fmt.Println(goods.Confirm(ctx, db, hold.ID)) // twice is harmless
	fmt.Println(errors.Is(goods.Cancel(ctx, db, hold.ID), stock.ErrConfirmed))
	// Output:
	// [0] <nil>
	// true
	// <nil>
	// <nil>
	// true
}
