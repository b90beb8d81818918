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

// drivers are those of database/sql that the tests use.
var drivers = map[sqldb.Kind]string{sqldb.Postgres: "pgx", sqldb.MySQL: "mysql", sqldb.MariaDB: "mysql", sqldb.SQLite: "sqlite"}

func openSQL(t testing.TB, kind sqldb.Kind, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open(drivers[kind], dsn)
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

// Open opens a database as a program does, through database/sql, for a process of a test:
// kind is the name of its kind. The caller closes the pool.
func Open(ctx context.Context, kind, dsn string, opts ...sqldb.Option) (*sqldb.DB, *sql.DB, error) {
	for k, driver := range drivers {
		if k.String() != kind {
			continue
		}
		pool, err := sql.Open(driver, dsn)
		if err != nil {
			return nil, nil, err
		}
		db, err := handle(ctx, k, pool, opts)
		if err != nil {
			_ = pool.Close()
			return nil, nil, err
		}
		return db, pool, nil
	}
	return nil, nil, fmt.Errorf("there is no kind of database %q", kind)
}

// handle makes a handle of a pool of database/sql.
func handle(ctx context.Context, kind sqldb.Kind, pool *sql.DB, opts []sqldb.Option) (*sqldb.DB, error) {
	switch kind {
	case sqldb.Postgres:
		return pgdb.SQL(ctx, pool, opts...)
	case sqldb.SQLite:
		return sqlitedb.New(ctx, pool, opts...)
	default:
		return mysqldb.New(ctx, pool, opts...)
	}
}

// Limited is another handle on the database, of the same flavour, with n connections.
func (db *DB) Limited(t testing.TB, n int, opts ...sqldb.Option) *sqldb.DB {
	t.Helper()
	ctx := context.Background()
	var limited *sqldb.DB
	var err error
	if db.Pool != nil {
		limited, err = pgdb.New(ctx, openPool(t, db.DSN, n), opts...)
	} else {
		pool := track(t, openSQL(t, db.Kind(), db.DSN))
		pool.SetMaxOpenConns(n)
		pool.SetMaxIdleConns(n)
		limited, err = handle(ctx, db.Kind(), pool, opts)
	}
	if err != nil {
		t.Fatal(scrub(db.DSN, err))
	}
	return limited
}

// open makes the pools and the handle; on PostgreSQL it is one of database/sql if std.
func open(t testing.TB, kind sqldb.Kind, dsn string, std bool, opts []sqldb.Option) *DB {
	t.Helper()
	ctx := t.Context()
	db := &DB{DSN: dsn}
	if kind == sqldb.Postgres && !std {
		db.Pool = openPool(t, dsn, 32) // 16 for each of the two
		db.SQL = stdlib.OpenDBFromPool(db.Pool)
		t.Cleanup(func() { _ = db.SQL.Close() })
	} else {
		db.SQL = track(t, openSQL(t, kind, dsn))
	}
	var err error
	if db.Pool != nil {
		db.DB, err = pgdb.New(ctx, db.Pool, opts...)
	} else {
		db.DB, err = handle(ctx, kind, db.SQL, opts)
	}
	if err != nil {
		t.Fatal(scrub(dsn, err))
	}
	if db.Kind() != kind {
		t.Fatalf("the server behind %s is %s", Env(kind), db.Version())
	}
	return db
}

func openPool(t testing.TB, dsn string, n int) *pgxpool.Pool {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(scrub(dsn, err))
	}
	cfg.MaxConns = int32(n)
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		t.Fatal(scrub(dsn, err))
	}
	t.Cleanup(func() {
		if allBack(t, func() int { return int(pool.Stat().AcquiredConns()) }) {
			pool.Close() // it would wait for those that are out for ever
		}
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
// on its way back: what a caller has abandoned ends within [sqldb.Bound]. If some stay
// out, the test fails.
func allBack(t testing.TB, out func() int) bool {
	t.Helper()
	deadline := time.Now().Add(2 * sqldb.Bound)
	for out() != 0 {
		if time.Now().After(deadline) {
			t.Errorf("%d connections were left out of the pool", out())
			return false
		}
		time.Sleep(time.Millisecond)
	}
	return true
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

// Ago is an SQL expression: d before a time of the kind that sqllock's tables have.
func (db *DB) Ago(at string, d time.Duration) string {
	us := d.Microseconds()
	switch db.Kind() {
	case sqldb.Postgres:
		return fmt.Sprintf("%s - (%d) * interval '1 microsecond'", at, us)
	case sqldb.SQLite:
		return fmt.Sprintf("%s - (%d)", at, us)
	}
	return fmt.Sprintf("%s - INTERVAL (%d) MICROSECOND", at, us)
}
