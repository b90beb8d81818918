package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

// bed is what a figure is measured on: a database of its own.
type bed struct {
	*pools
	kind   sqldb.Kind
	name   string // of the schema, the database or the file
	rounds int

	closing []func() error // what close does, the last first
}

// pools is one more program on the bed's database: a pool, and the handle that is
// made of it. The floor goes through the same pool.
type pools struct {
	db *sqldb.DB
	// pgx is the pool on PostgreSQL, sql elsewhere.
	pgx *pgxpool.Pool
	sql *sql.DB
}

// env is the environment variable with the DSN of a server.
func env(kind sqldb.Kind) string {
	return "SQLLOCK_TEST_" + strings.ToUpper(kind.String()) + "_DSN"
}

// available says whether there is such a database.
func available(kind sqldb.Kind) bool { return kind == sqldb.SQLite || os.Getenv(env(kind)) != "" }

// conns is how large a bed's first pool is.
const conns = 16

// newBed makes a fresh database, and a pool on it.
func newBed(ctx context.Context, kind sqldb.Kind) (b *bed, err error) {
	b = &bed{kind: kind}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.close())
		}
	}()
	if kind == sqldb.SQLite {
		dir, err := os.MkdirTemp("", "sqllock_test_")
		if err != nil {
			return b, err
		}
		b.closing = append(b.closing, func() error { return os.RemoveAll(dir) })
		b.name = filepath.Join(dir, "bench.db")
	} else if err := b.create(ctx); err != nil {
		return b, err
	}
	b.pools, err = b.open(ctx, conns)
	return b, err
}

// create makes a schema (MySQL and MariaDB: a database) on the server, and has
// close drop it.
func (b *bed) create(ctx context.Context) error {
	name := fmt.Sprintf("sqllock_test_%08x", rand.Uint32())
	server, err := b.open(ctx, 1)
	if err != nil {
		return err
	}
	what, cascade := "DATABASE ", ""
	if b.kind == sqldb.Postgres {
		what, cascade = "SCHEMA ", " CASCADE"
	}
	if _, err := server.db.Exec(ctx, "CREATE "+what+name); err != nil {
		return err
	}
	b.name = name
	b.closing = append(b.closing, func() error {
		// Also after Ctrl-C: nothing is left behind on somebody's server.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, err := server.db.Exec(ctx, "DROP "+what+name+cascade)
		return err
	})
	return nil
}

// open opens a pool of at most n connections on the bed's database; before it has
// one, on the server. close closes it.
func (b *bed) open(ctx context.Context, n int) (p *pools, err error) {
	p = &pools{}
	dsn := os.Getenv(env(b.kind))
	switch b.kind {
	case sqldb.Postgres:
		cfg, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			return nil, err
		}
		cfg.MaxConns = int32(n)
		if b.name != "" {
			cfg.ConnConfig.RuntimeParams["search_path"] = b.name
		}
		if p.pgx, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
			return nil, err
		}
		b.closing = append(b.closing, func() error { p.pgx.Close(); return nil })
		p.db, err = pgdb.New(ctx, p.pgx)
		return p, err
	case sqldb.SQLite:
		// As sqlitedb recommends it; synchronous stays FULL, SQLite's own default.
		p.sql, err = sql.Open("sqlite", "file:"+b.name+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	default:
		var cfg *mysql.Config
		if cfg, err = mysql.ParseDSN(dsn); err == nil {
			cfg.DBName = b.name
			if b.name == "" {
				cfg.DBName = "information_schema" // the one that every server has
			}
			p.sql, err = sql.Open("mysql", cfg.FormatDSN())
		}
	}
	if err != nil {
		return nil, err
	}
	b.closing = append(b.closing, p.sql.Close)
	p.sql.SetMaxOpenConns(n)
	p.sql.SetMaxIdleConns(n)
	if b.kind == sqldb.SQLite {
		p.db, err = sqlitedb.New(ctx, p.sql)
	} else if p.db, err = mysqldb.New(ctx, p.sql); err == nil && p.db.Kind() != b.kind {
		err = fmt.Errorf("the server behind %s is %s", env(b.kind), p.db)
	}
	return p, err
}

// exec runs statements that prepare what is measured.
func (b *bed) exec(ctx context.Context, queries ...string) error {
	for _, q := range queries {
		if _, err := b.db.Exec(ctx, q); err != nil {
			return fmt.Errorf("%s: %w", q, err)
		}
	}
	return nil
}

func (b *bed) close() (err error) {
	for len(b.closing) > 0 {
		last := len(b.closing) - 1
		err = errors.Join(err, b.closing[last]())
		b.closing = b.closing[:last]
	}
	return err
}
