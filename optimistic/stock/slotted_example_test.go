package stock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/sqlnative/locks/optimistic/stock"
)

// One counter in 16 rows: takes of several connections do not wait for each other.
func ExampleSlotted() {
	ctx := context.Background()
	pool, db := shop()
	defer pool.Close()
	// Slot 0 has all there is; Split makes the others.
	_, err := pool.Exec(`CREATE TABLE t_bonus_slots (id INT NOT NULL, slot INT NOT NULL, left_count INT NOT NULL, version BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (id, slot));
		INSERT INTO t_bonus_slots (id, slot, left_count) VALUES (10001, 0, 100)`)
	if err != nil {
		log.Fatal(err)
	}
	sale, err := stock.NewSlotted(db, stock.Table{Name: "t_bonus_slots", ID: "id", Slot: "slot", Count: "left_count", Version: "version"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(sale.Split(ctx, db, 10001, 16))
	fmt.Println(sale.Take(ctx, db, 10001, 1))
	fmt.Println(sale.Take(ctx, db, 10001, 60)) // more than any slot has
	fmt.Println(sale.Total(ctx, db, 10001))
	err = sale.Take(ctx, db, 10001, 40)
	fmt.Println(err, errors.Is(err, stock.ErrSoldOut))
	fmt.Println(sale.Merge(ctx, db, 10001)) // the sale is over: all in slot 0 again
	// Output:
	// <nil>
	// <nil>
	// <nil>
	// 39 <nil>
	// stock: t_bonus_slots: sold out: id 10001: 40 wanted, 39 left true
	// <nil>
}
