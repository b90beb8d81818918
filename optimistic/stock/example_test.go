package stock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

// shop opens a database in memory with two gifts of the red packet 10001.
func shop() (*sql.DB, *sqldb.DB) {
	pool, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		log.Fatal(err)
	}
	pool.SetMaxOpenConns(1)
	_, err = pool.Exec(`CREATE TABLE t_bonus (id INTEGER PRIMARY KEY, left_count INT NOT NULL, version BIGINT NOT NULL DEFAULT 0);
		CREATE TABLE orders (user_id INT, bonus_id INT); INSERT INTO t_bonus (id, left_count) VALUES (10001, 2)`)
	if err != nil {
		log.Fatal(err)
	}
	db, err := sqlitedb.New(context.Background(), pool)
	if err != nil {
		log.Fatal(err)
	}
	return pool, db
}

func ExampleStock_Take() {
	ctx := context.Background()
	pool, db := shop()
	defer pool.Close()
	bonus, err := stock.New(db, stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(bonus.Take(ctx, db, 10001, 1))
	fmt.Println(bonus.Take(ctx, db, 10001, 1))
	_, err = bonus.Take(ctx, db, 10001, 1)
	fmt.Println(err)

	var short *stock.ShortError
	if errors.As(err, &short) {
		fmt.Println("left:", short.Lines[0].Left)
	}
	// Output:
	// 1 <nil>
	// 0 <nil>
	// stock: t_bonus: sold out: id 10001: 1 wanted, 0 left
	// left: 0
}

// The order and the take commit together, or not at all.
func ExampleStock_Take_transaction() {
	ctx := context.Background()
	pool, db := shop()
	defer pool.Close()
	bonus, err := stock.New(db, stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"})
	if err != nil {
		log.Fatal(err)
	}
	order := func(user int, n int64) error {
		return sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
			tx, err := pool.BeginTx(ctx, nil)
			if err != nil {
				return err
			}
			defer tx.Rollback()
			if _, err := tx.ExecContext(ctx, "INSERT INTO orders VALUES (?, ?)", user, 10001); err != nil {
				return err
			}
			if _, err := bonus.Take(ctx, db.Tx(tx), 10001, n); err != nil {
				return err
			}
			return tx.Commit()
		})
	}
	fmt.Println(order(1, 2))
	fmt.Println(order(2, 1))
	var orders int
	_ = pool.QueryRow("SELECT COUNT(*) FROM orders").Scan(&orders)
	fmt.Println("orders:", orders)
	// Output:
	// <nil>
	// stock: t_bonus: sold out: id 10001: 1 wanted, 0 left
	// orders: 1
}

func ExampleStock_Put() {
	ctx := context.Background()
	pool, db := shop()
	defer pool.Close()
	bonus, err := stock.New(db, stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(bonus.Put(ctx, db, 10001, 3))
	fmt.Println(bonus.Left(ctx, db, 10001))
	// Output:
	// 5 <nil>
	// 5 <nil>
}
