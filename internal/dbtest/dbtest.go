// Package dbtest gives tests real databases: a fresh schema (MySQL and MariaDB: a
// fresh database) on every server whose DSN stands in the environment, and a fresh
// SQLite file always. What it makes is named sqllock_test_*, and is gone when the
// test has ended.
package dbtest

import (
	"context"
	"database/sql"
	"fmt"
	"math/rand/v2"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib" // and the driver "pgx"
	_ "modernc.org/sqlite"           // the SQLite driver of the tests

	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

// Env returns the name of the environment variable with the DSN of a server.
func Env(kind sqldb.Kind) string {
	return "SQLLOCK_TEST_" + strings.ToUpper(kind.String()) + "_DSN"
}

// DB is a fresh database of a test.
type DB struct {
	// DB is the handle that the test is about; on PostgreSQL it is made of Pool.
	*sqldb.DB
	// SQL is a pool of database/sql on the same database; where there is a Pool, it has
	// that one's connections: each of PostgreSQL's costs a process.
	SQL *sql.DB
	// Pool is pgx's pool, on PostgreSQL only, and not where the handle is made of SQL.
	Pool *pgxpool.Pool
	// DSN opens the same database: a URL on PostgreSQL, go-sql-driver's form on
	// MySQL and MariaDB, a file: URI on SQLite.
	DSN string
}

// Each runs f as a subtest on every database that is there, with a fresh one each
// time. A server without a DSN is skipped, unless SQLLOCK_TEST_REQUIRE names it.
// opts go into the handle.
func Each(t *testing.T, f func(t *testing.T, db *DB), opts ...sqldb.Option) {
	t.Helper()
	On(t, sqldb.Kinds(), f, opts...)
}

// Servers is Each without SQLite.
func Servers(t *testing.T, f func(t *testing.T, db *DB), opts ...sqldb.Option) {
	t.Helper()
	On(t, []sqldb.Kind{sqldb.Postgres, sqldb.MySQL, sqldb.MariaDB}, f, opts...)
}

// On is Each on some kinds of database.
func On(t *testing.T, kinds []sqldb.Kind, f func(t *testing.T, db *DB), opts ...sqldb.Option) {
	t.Helper()
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) { f(t, New(t, kind, opts...)) })
	}
}

// Flavours is Each, and once more on PostgreSQL with the handle made of a *sql.DB
// of pgx's stdlib.
func Flavours(t *testing.T, f func(t *testing.T, db *DB), opts ...sqldb.Option) {
	t.Helper()
	Each(t, f, opts...)
	Stdlib(t, f, opts...)
}

// Stdlib runs f as a subtest on PostgreSQL, with the handle made of a *sql.DB of pgx's
// stdlib.
func Stdlib(t *testing.T, f func(t *testing.T, db *DB), opts ...sqldb.Option) {
	t.Helper()
	t.Run("postgres-stdlib", func(t *testing.T) {
		f(t, open(t, sqldb.Postgres, Fresh(t, sqldb.Postgres), true, opts))
	})
}

// New makes a fresh database of one kind.
func New(t testing.TB, kind sqldb.Kind, opts ...sqldb.Option) *DB {
	t.Helper()
	return open(t, kind, Fresh(t, kind), false, opts)
}

// Fresh makes a fresh database of one kind and returns its DSN.
func Fresh(t testing.TB, kind sqldb.Kind) string {
	t.Helper()
	if kind == sqldb.SQLite {
		return FileDSN(filepath.Join(t.TempDir(), "test.db"))
	}
	server := serverDSN(t, kind)
	name := fmt.Sprintf("sqllock_test_%08x", rand.Uint32())
	if kind == sqldb.Postgres {
		onServer(t, kind, server, "CREATE SCHEMA "+name)
		t.Cleanup(func() { onServer(t, kind, server, "DROP SCHEMA "+name+" CASCADE") })
		u, err := url.Parse(server)
		if err != nil {
			t.Fatal(scrub(server, err))
		}
		q := u.Query()
		q.Set("search_path", name)
		u.RawQuery = q.Encode()
		return u.String()
	}
	onServer(t, kind, server, "CREATE DATABASE "+name)
	t.Cleanup(func() { onServer(t, kind, server, "DROP DATABASE "+name) })
	cfg, err := mysql.ParseDSN(server)
	if err != nil {
		t.Fatal(scrub(server, err))
	}
	cfg.DBName = name
	return cfg.FormatDSN()
}

// FileDSN is the DSN of an SQLite file, as sqllock recommends it.
func FileDSN(path string) string {
	return "file:" + path + "?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate"
}

// onServer runs one statement on the server itself.
func onServer(t testing.TB, kind sqldb.Kind, dsn, query string) {
	t.Helper()
	var err error
	if kind == sqldb.Postgres {
		err = onPostgres(context.Background(), dsn, query)
	} else {
		db := openSQL(t, kind, dsn)
		defer func() { _ = db.Close() }()
		_, err = db.ExecContext(context.Background(), query)
	}
	if err != nil {
		t.Errorf("%s: %v", query, scrub(dsn, err))
	}
}

// spare are connections to PostgreSQL for what is asked of the server itself. They are
// kept: starting a process for each is the greater part of what a small test costs.
// Nobody closes them; they have no goroutine that a test could find left behind.
var spare = make(chan *pgx.Conn, 4)

func onPostgres(ctx context.Context, dsn, query string) error {
	var c *pgx.Conn
	select {
	case c = <-spare:
	default:
	}
	// The server may have been restarted since, or be another one by now.
	if c != nil && (c.Config().ConnString() != dsn || c.Ping(ctx) != nil) {
		_ = c.Close(ctx)
		c = nil
	}
	if c == nil {
		var err error
		if c, err = pgx.Connect(ctx, dsn); err != nil {
			return err
		}
	}
	_, err := c.PgConn().Exec(ctx, query).ReadAll()
	select {
	case spare <- c:
	default:
		_ = c.Close(ctx)
	}
	return err
}

func openSQL(t testing.TB, kind sqldb.Kind, dsn string) *sql.DB {
	t.Helper()
	driver := map[sqldb.Kind]string{sqldb.Postgres: "pgx", sqldb.MySQL: "mysql", sqldb.MariaDB: "mysql", sqldb.SQLite: "sqlite"}[kind]
	db, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(scrub(dsn, err))
	}
	return db
}

// Another opens further pools on the same database, as another process would.
func (db *DB) Another(t testing.TB, opts ...sqldb.Option) *DB {
	t.Helper()
	return open(t, db.Kind(), db.DSN, db.Kind() == sqldb.Postgres && db.Pool == nil, opts)
}

// OpenSQL opens a further *sql.DB with other settings in the DSN of MySQL or
// MariaDB.
func (db *DB) OpenSQL(t testing.TB, edit func(*mysql.Config)) *sql.DB {
	t.Helper()
	cfg, err := mysql.ParseDSN(db.DSN)
	if err != nil {
		t.Fatal(scrub(db.DSN, err))
	}
	edit(cfg)
	return track(t, openSQL(t, db.Kind(), cfg.FormatDSN()))
}

// open makes the pools and the handle; on PostgreSQL it is one of database/sql if std.
func open(t testing.TB, kind sqldb.Kind, dsn string, std bool, opts []sqldb.Option) *DB {
	t.Helper()
	ctx := t.Context()
	db := &DB{DSN: dsn}
	if kind == sqldb.Postgres && !std {
		db.Pool = openPool(t, dsn)
		db.SQL = stdlib.OpenDBFromPool(db.Pool)
		t.Cleanup(func() { _ = db.SQL.Close() })
	} else {
		db.SQL = track(t, openSQL(t, kind, dsn))
	}
	var err error
	switch kind {
	case sqldb.Postgres:
		if std {
			db.DB, err = pgdb.SQL(ctx, db.SQL, opts...)
		} else {
			db.DB, err = pgdb.New(ctx, db.Pool, opts...)
		}
	case sqldb.SQLite:
		db.DB, err = sqlitedb.New(ctx, db.SQL, opts...)
	default:
		db.DB, err = mysqldb.New(ctx, db.SQL, opts...)
	}
	if err != nil {
		t.Fatal(scrub(dsn, err))
	}
	if db.Kind() != kind {
		t.Fatalf("the server behind %s is %s", Env(kind), db.Version())
	}
	return db
}

func openPool(t testing.TB, dsn string) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(scrub(dsn, err))
	}
	cfg.MaxConns = 32 // 16 for each of the two handles
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(scrub(dsn, err))
	}
	t.Cleanup(func() {
		allBack(t, func() int { return int(pool.Stat().AcquiredConns()) })
		pool.Close()
	})
	return pool
}

// track closes db at the end of the test, which fails if a connection is still
// out of the pool.
func track(t testing.TB, db *sql.DB) *sql.DB {
	db.SetMaxOpenConns(16)
	db.SetMaxIdleConns(16)
	t.Cleanup(func() {
		allBack(t, func() int { return db.Stats().InUse })
		_ = db.Close()
	})
	return db
}

// allBack waits until no connection is out of the pool, for as long as one may be
// on its way back: what a caller has abandoned ends within [sqldb.Bound].
func allBack(t testing.TB, out func() int) {
	t.Helper()
	deadline := time.Now().Add(2 * sqldb.Bound)
	for out() != 0 {
		if time.Now().After(deadline) {
			t.Errorf("%d connections were left out of the pool", out())
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// MustExec runs statements by hand, and fails the test if one fails.
func (db *DB) MustExec(t testing.TB, queries ...string) {
	t.Helper()
	for _, q := range queries {
		if _, err := db.SQL.ExecContext(context.Background(), q); err != nil {
			t.Fatalf("%s: %v", q, err)
		}
	}
}
