package stock_test

import (
	"context"
	"errors"
	"fmt"
	"log"

	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// An order of several lines, in one transaction with the order itself.
func ExampleStock_TakeAll() {
	ctx := context.Background()
	pool, db := shop()
	defer pool.Close()
	if _, err := pool.Exec("INSERT INTO t_bonus (id, left_count) VALUES (10002, 5), (10003, 0)"); err != nil {
		log.Fatal(err)
	}
	goods, err := stock.New(db, stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"})
	if err != nil {
		log.Fatal(err)
	}
	order := func(user int, lines ...stock.Line) error {
		return sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
			tx, err := pool.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			lefts, err := goods.TakeAll(ctx, db.Tx(tx), lines)
			if err != nil {
				return err
			}
			fmt.Println("left:", lefts)
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders (user_id) VALUES (?)", user); err != nil {
				return err
			}
			return tx.Commit()
		})
	}
	fmt.Println(order(1, stock.Line{ID: 10002, N: 2}, stock.Line{ID: 10001, N: 1}))
	err = order(2, stock.Line{ID: 10002, N: 4}, stock.Line{ID: 10001, N: 1}, stock.Line{ID: 10003, N: 1})
	var short *stock.ShortError
	if errors.As(err, &short) {
		for _, l := range short.Lines {
			fmt.Printf("%v: %d wanted, %d left\n", l.ID, l.Wanted, l.Left)
		}
	}
	// Output:
	// left: [3 1]
	// <nil>
	// 10002: 4 wanted, 3 left
	// 10003: 1 wanted, 0 left
}

// The user is the claim: who presses twice is served once.
func ExampleStock_TakeOnce() {
	ctx := context.Background()
	pool, db := shop()
	defer pool.Close()
	if err := migrations.Up(ctx, db); err != nil { // or: sqllock-migrate up
		log.Fatal(err)
	}
	bonus, err := stock.New(db, stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"})
	if err != nil {
		log.Fatal(err)
	}
	for range 2 {
		receipt, err := bonus.TakeOnce(ctx, db, 10001, 1, "user:7")
		fmt.Println(receipt.Fresh, receipt.Left, err)
	}
	_, err = bonus.TakeOnce(ctx, db, 10001, 2, "user:7")
	fmt.Println(errors.Is(err, stock.ErrClaimMismatch))
	fmt.Println(bonus.Left(ctx, db, 10001))
	// Output:
	// true 1 <nil>
	// false 1 <nil>
	// true
	// 1 <nil>
}
