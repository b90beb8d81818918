package advisory_test

import (
	"context"
	"database/sql"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq" // the driver "postgres"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
)

// flavour is a server and the driver with which it is spoken to.
type flavour struct {
	name string
	kind sqldb.Kind
	// driver is that of database/sql; empty: pgx's own pool.
	driver string
}

func flavours() []flavour {
	return []flavour{
		{"pgxpool", sqldb.Postgres, ""},
		{"pgx-stdlib", sqldb.Postgres, "pgx"},
		{"lib-pq", sqldb.Postgres, "postgres"},
		{"mysql", sqldb.MySQL, "mysql"},
		{"mariadb", sqldb.MariaDB, "mysql"},
	}
}

// open makes a handle of a pool of at most 8 connections. The test fails if one of them is left out of the pool.
func (fl flavour) open(t testing.TB, dsn string, opts ...sqldb.Option) *sqldb.DB {
	t.Helper()
	out := func() int { return 0 }
	back := func() {
		if !within(3*sqldb.Bound, func() bool { return out() == 0 }) {
			t.Errorf("%d connections were left out of the pool", out())
		}
	}
	if fl.driver == "" {
		cfg, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		cfg.MaxConns = 8
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		out = func() int { return int(pool.Stat().AcquiredConns()) }
		t.Cleanup(func() { back(); pool.Close() })
		db, err := pgdb.New(t.Context(), pool, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	if fl.driver == "postgres" && !strings.Contains(dsn, "sslmode=") {
		dsn += "&sslmode=disable" // lib/pq wants to be told that there is no TLS
	}
	pool, err := sql.Open(fl.driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	pool.SetMaxOpenConns(8)
	pool.SetMaxIdleConns(8)
	out = func() int { return pool.Stats().InUse }
	t.Cleanup(func() { back(); _ = pool.Close() })
	open := mysqldb.New
	if fl.kind == sqldb.Postgres {
		open = pgdb.SQL
	}
	db, err := open(t.Context(), pool, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

// within asks until the answer is yes, or d has passed.
func within(d time.Duration, yes func() bool) bool {
	for deadline := time.Now().Add(d); !yes(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			return yes()
		}
	}
	return true
}

// locker makes a Locker, which has to be closed without an error.
func locker(t testing.TB, db *sqldb.DB, opts ...lock.Option) *advisory.Locker {
	t.Helper()
	l, err := advisory.New(t.Context(), db, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

// acquire fails the test if the lock is not had in time.
func acquire(t testing.TB, l lock.Locker, name string, opts ...lock.Option) *lock.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 40*time.Second)
	defer cancel()
	got, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func release(t testing.TB, l *lock.Lock) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
}
