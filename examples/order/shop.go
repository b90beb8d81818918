package main

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	_ "github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	_ "modernc.org/sqlite"

	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

// shop is a database with goods in it.
type shop struct {
	sql   *sql.DB
	pgx   *pgxpool.Pool // on PostgreSQL
	db    *sqldb.DB
	goods *stock.Stock
	close func() error
}

// open opens the pools that a program has anyway, and makes a handle of one. On
// PostgreSQL it is made of pgx's pool; db.Tx takes the transactions of that only, so
// database/sql gets a handle of its own there where it stands alone: see pgdb.SQL.
func open(ctx context.Context, dsn string) (s *shop, err error) {
	s = &shop{}
	switch {
	case strings.HasPrefix(dsn, "postgres"):
		if s.pgx, err = pgxpool.New(ctx, dsn); err != nil {
			return nil, err
		}
		s.sql = stdlib.OpenDBFromPool(s.pgx)
		s.close = func() error { err := s.sql.Close(); s.pgx.Close(); return err }
		s.db, err = pgdb.New(ctx, s.pgx)
	case strings.Contains(dsn, "@"):
		if s.sql, err = sql.Open("mysql", dsn); err != nil {
			return nil, err
		}
		s.close = s.sql.Close
		s.db, err = mysqldb.New(ctx, s.sql)
	default:
		dir := ""
		if dsn == "" {
			if dir, err = os.MkdirTemp("", "order"); err != nil {
				return nil, err
			}
			dsn = "file:" + filepath.Join(dir, "order.db") + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate"
		}
		if s.sql, err = sql.Open("sqlite", dsn); err != nil {
			return nil, err
		}
		s.close = func() error {
			err := s.sql.Close()
			if dir != "" {
				err = errors.Join(err, os.RemoveAll(dir))
			}
			return err
		}
		s.db, err = sqlitedb.New(ctx, s.sql)
	}
	if err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// makeTables makes the tables of the shop, and returns what drops them.
func (s *shop) makeTables(ctx context.Context) (drop func() error, err error) {
	var made []string
	drop = func() (err error) {
		for _, table := range made {
			_, derr := s.sql.ExecContext(context.WithoutCancel(ctx), "DROP TABLE "+table)
			err = errors.Join(err, derr)
		}
		return err
	}
	for _, t := range []struct{ name, columns string }{
		{"t_goods", "id BIGINT NOT NULL PRIMARY KEY, left_count INT NOT NULL, version BIGINT NOT NULL DEFAULT 0"},
		{"t_order", "id VARCHAR(40) NOT NULL PRIMARY KEY, who VARCHAR(100) NOT NULL"},
		{"t_order_line", "order_id VARCHAR(40) NOT NULL, goods_id BIGINT NOT NULL, n BIGINT NOT NULL"},
	} {
		if _, err := s.sql.ExecContext(ctx, "CREATE TABLE "+t.name+" ("+t.columns+")"); err != nil {
			return nil, errors.Join(err, drop())
		}
		made = append(made, t.name)
	}
	if _, err := s.sql.ExecContext(ctx, "INSERT INTO t_goods (id, left_count) VALUES (1, 10), (2, 10), (3, 10)"); err != nil {
		return nil, errors.Join(err, drop())
	}
	return drop, nil
}

func (s *shop) count(ctx context.Context) (orders, lines int, err error) {
	err = s.sql.QueryRowContext(ctx, "SELECT (SELECT COUNT(*) FROM t_order), (SELECT COUNT(*) FROM t_order_line)").Scan(&orders, &lines)
	return orders, lines, err
}

// text has $1 in place of ? on PostgreSQL.
func (s *shop) text(query string) string {
	if s.pgx == nil {
		return query
	}
	for i := 1; strings.Contains(query, "?"); i++ {
		query = strings.Replace(query, "?", "$"+strconv.Itoa(i), 1)
	}
	return query
}

// newID is an id of an order, which nobody else makes.
func newID() string { return rand.Text() }
