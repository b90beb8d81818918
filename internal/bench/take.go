package main

import (
	"context"
	"fmt"

	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// What people write by hand for the red packet, in autocommit.
const (
	takePostgres = `UPDATE t_bonus SET left_count = left_count - $2, version = version + 1
WHERE id = $1 AND left_count >= $2
RETURNING left_count`
	takeSQLite = `UPDATE t_bonus SET left_count = left_count - ?2, version = version + 1
WHERE id = ?1 AND left_count >= ?2
RETURNING left_count`
	// With arguments beside it, go-sql-driver makes two round trips of a statement:
	// the floor has them in the text, as interpolateParams writes them.
	takeMySQL = `UPDATE t_bonus SET left_count = LAST_INSERT_ID(left_count - 1), version = version + 1
WHERE id = 10001 AND left_count >= 1`
)

// takeRatio is what a guarded take costs over the statement by hand.
func takeRatio() figure {
	return figure{
		name: "take-ratio",
		unit: "ratio",
		about: "stock.Take of 1 on a DB (autocommit) over the same UPDATE by hand, through the same pool (on MySQL and MariaDB with its arguments in the text: one round trip); " +
			"both take from the same row, with the same ctx, which can be cancelled; 1 goroutine.",
		on: []target{
			{sqldb.Postgres, atMost(1.15), takePostgres},
			{sqldb.MySQL, atMost(1.25), takeMySQL},
			{sqldb.MariaDB, atMost(1.25), takeMySQL},
			{sqldb.SQLite, atMost(1.15), takeSQLite},
		},
		measure: func(ctx context.Context, b *bed) (measurement, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			err := b.exec(ctx, "CREATE TABLE t_bonus (id BIGINT PRIMARY KEY, left_count BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 0)",
				"INSERT INTO t_bonus (id, left_count) VALUES (10001, 1000000000)")
			if err != nil {
				return measurement{}, err
			}
			bonus, err := stock.New(b.db, stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"})
			if err != nil {
				return measurement{}, err
			}
			ours := func(ctx context.Context) error {
				_, err := bonus.Take(ctx, b.db, 10001, 1)
				return err
			}
			return b.timeRatio(ctx, ours, b.takeByHand)
		},
	}
}

// takeByHand takes 1, and looks at what is left, as [stock.Stock.Take] tells it.
func (b *bed) takeByHand(ctx context.Context) (err error) {
	const id, n = 10001, 1
	left := int64(0)
	switch b.kind {
	case sqldb.Postgres:
		err = b.pgx.QueryRow(ctx, takePostgres, id, n).Scan(&left)
	case sqldb.SQLite:
		err = b.sql.QueryRowContext(ctx, takeSQLite, id, n).Scan(&left)
	default:
		res, err := b.sql.ExecContext(ctx, takeMySQL)
		if err != nil {
			return err
		}
		if rows, err := res.RowsAffected(); err != nil || rows != 1 {
			return fmt.Errorf("%d rows were changed: %w", rows, err)
		}
		_, err = res.LastInsertId()
		return err
	}
	return err
}
