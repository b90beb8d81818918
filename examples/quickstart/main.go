// Command quickstart is the program of the README: a stock of one gift, and two
// who want it.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"

	_ "modernc.org/sqlite"

	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

func main() {
	ctx := context.Background()
	pool, err := sql.Open("sqlite", ":memory:") // or your PostgreSQL, MySQL, MariaDB
	check(err)
	pool.SetMaxOpenConns(1) // in memory, each connection has a database of its own
	_, err = pool.Exec(`CREATE TABLE t_bonus (id INTEGER PRIMARY KEY, left_count INT NOT NULL, version BIGINT NOT NULL DEFAULT 0);
		INSERT INTO t_bonus (id, left_count) VALUES (10001, 1)`)
	check(err)

	db, err := sqlitedb.New(ctx, pool) // pgdb.New(ctx, pgxPool), pgdb.SQL, mysqldb.New
	check(err)
	bonus, err := stock.New(db, stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"})
	check(err)

	left, err := bonus.Take(ctx, db, 10001, 1) // or in your own transaction: db.Tx(tx)
	fmt.Println(left, err)
	_, err = bonus.Take(ctx, db, 10001, 1)
	fmt.Println(errors.Is(err, stock.ErrSoldOut), err)
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
