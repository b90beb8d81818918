// Command order places orders of several lines: each takes all of its goods or none
// of them, in one transaction with the rows of the order itself.
//
//	go run ./examples/order
//	go run ./examples/order -dsn 'postgres://user@localhost/test'
//	go run ./examples/order -dsn 'user:password@tcp(localhost:3306)/test'
//
// On PostgreSQL it does so once with database/sql and once with pgx; elsewhere with
// database/sql. With GORM and bun it looks as in integration/order. In the end a cart
// holds goods for a time, and is paid.
//
// Without -dsn it uses a temporary SQLite file. It makes the tables t_goods, t_order
// and t_order_line and drops them in the end; those of sqllock, which reservations
// need, stay.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"time"

	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/optimistic/stock"
)

func main() {
	dsn := flag.String("dsn", "", "postgres://..., user:password@tcp(host:port)/database or file:... (default: a temporary SQLite file)")
	flag.Parse()
	if err := run(context.Background(), *dsn, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, dsn string, out io.Writer) (err error) {
	s, err := open(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	if err := migrations.Up(ctx, s.db); err != nil { // or: sqllock-migrate up
		return err
	}
	drop, err := s.makeTables(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, drop()) }()
	s.goods, err = stock.New(s.db, stock.Table{Name: "t_goods", ID: "id", Count: "left_count", Version: "version"})
	if err != nil {
		return err
	}

	// The lines may come in any order: TakeAll locks the rows in its own.
	small := []stock.Line{{ID: 3, N: 1}, {ID: 1, N: 2}}
	lefts, err := s.placeSQL(ctx, "Ann", small)
	_, _ = fmt.Fprintln(out, "database/sql: left", lefts, err)
	if s.pgx != nil {
		lefts, err := s.placePGX(ctx, "Bob", small)
		_, _ = fmt.Fprintln(out, "pgx: left", lefts, err)
	}

	// Two lines are short: both are named, and nothing stands, neither goods nor order.
	_, err = s.placeSQL(ctx, "Cid", []stock.Line{{ID: 1, N: 1}, {ID: 2, N: 50}, {ID: 3, N: 50}})
	var short *stock.ShortError
	if !errors.As(err, &short) {
		return fmt.Errorf("an order of too much: %w", err)
	}
	for _, line := range short.Lines {
		_, _ = fmt.Fprintf(out, "short: %d of %v wanted, %d left\n", line.Wanted, line.ID, line.Left)
	}

	// A cart holds its goods for a time. Paying and confirming are one transaction.
	cart := []stock.Line{{ID: 2, N: 10}}
	hold, err := s.goods.Reserve(ctx, s.db, cart, 15*time.Minute, stock.Note("Dot's cart"))
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(out, "reserved: left", hold.Lefts)
	if err := s.pay(ctx, "Dot", cart, hold.ID); err != nil {
		return err
	}
	orders, lines, err := s.count(ctx)
	_, _ = fmt.Fprintf(out, "%d orders with %d lines\n", orders, lines)
	return err
}
