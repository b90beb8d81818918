package locktable_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	_ "github.com/lib/pq" // the driver "postgres"

	"github.com/sqlnative/locks/integration/chaos/proxy"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
	"github.com/sqlnative/locks/sqllock"
)

// slack is what a busy machine may take for what takes no time.
const slack = 400 * time.Millisecond

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

// servers runs f with every flavour, each on a fresh database with the tables in it.
func servers(t *testing.T, f func(t *testing.T, fl flavour, fresh *dbtest.DB)) {
	for _, fl := range flavours() {
		t.Run(fl.name, func(t *testing.T) {
			t.Parallel() // they wait, most of the time
			f(t, fl, migrated(t, fl.kind))
		})
	}
}

// each runs f on some kinds of database, each time on a fresh one with the tables in it.
func each(t *testing.T, kinds []sqldb.Kind, f func(t *testing.T, fresh *dbtest.DB)) {
	for _, kind := range kinds {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel() // they wait, most of the time
			f(t, migrated(t, kind))
		})
	}
}

// migrated is a fresh database with the tables in it.
func migrated(t testing.TB, kind sqldb.Kind) *dbtest.DB {
	t.Helper()
	fresh := dbtest.New(t, kind)
	if err := migrations.Up(t.Context(), fresh.DB); err != nil {
		t.Fatal(err)
	}
	return fresh
}

// open makes a handle of a pool of at most conns connections. The test fails if one of them is left out of the pool.
func (fl flavour) open(t testing.TB, dsn string, conns int, opts ...sqldb.Option) *sqldb.DB {
	t.Helper()
	if fl.driver == "" {
		cfg, err := pgxpool.ParseConfig(dsn)
		if err != nil {
			t.Fatal(err)
		}
		cfg.MaxConns = int32(conns)
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			allBack(t, func() int { return int(pool.Stat().AcquiredConns()) })
			pool.Close()
		})
		db, err := pgdb.New(t.Context(), pool, opts...)
		if err != nil {
			t.Fatal(err)
		}
		return db
	}
	if fl.driver == "postgres" && !strings.Contains(dsn, "sslmode=") {
		dsn += "&sslmode=disable" // lib/pq wants to be told that there is no TLS
	}
	return fl.handle(t, openSQL(t, fl.driver, dsn, conns), opts...)
}

func openSQL(t testing.TB, driver, dsn string, conns int) *sql.DB {
	t.Helper()
	pool, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	t.Cleanup(func() {
		allBack(t, func() int { return pool.Stats().InUse })
		_ = pool.Close()
	})
	return pool
}

// handle makes a handle of a *sql.DB.
func (fl flavour) handle(t testing.TB, pool *sql.DB, opts ...sqldb.Option) *sqldb.DB {
	t.Helper()
	db, err := adapt(t.Context(), fl.kind, pool, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func adapt(ctx context.Context, kind sqldb.Kind, pool *sql.DB, opts ...sqldb.Option) (*sqldb.DB, error) {
	switch kind {
	case sqldb.Postgres:
		return pgdb.SQL(ctx, pool, opts...)
	case sqldb.SQLite:
		return sqlitedb.New(ctx, pool, opts...)
	default:
		return mysqldb.New(ctx, pool, opts...)
	}
}

// allBack waits until no connection is out of the pool, for as long as one may be on its way back.
func allBack(t testing.TB, out func() int) {
	t.Helper()
	if !within(3*sqldb.Bound, func() bool { return out() == 0 }) {
		t.Errorf("%d connections were left out of the pool", out())
	}
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

// behind starts a proxy in front of the database's server.
func behind(t testing.TB, fresh *dbtest.DB) (p *proxy.Proxy, dsn string) {
	t.Helper()
	p, dsn, err := proxy.Before(fresh.Kind(), fresh.DSN)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p, dsn
}

// locker makes a Locker, which has to be closed without an error.
func locker(t testing.TB, db *sqldb.DB, opts ...lock.Option) *sqllock.Locker {
	t.Helper()
	l, err := sqllock.New(t.Context(), db, opts...)
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
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
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

// guarded runs one guarded transaction.
func guarded(ctx context.Context, db *sqldb.DB, l *lock.Lock) error {
	return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error { return l.Guard(ctx, tx) })
}

// lease knows until when the newest lease of a lock can be trusted at most.
type lease struct {
	ttl    time.Duration
	mu     sync.Mutex
	until  time.Time
	failed []error
}

// trace follows one lock.
func (s *lease) trace() *lock.Trace {
	note := func(e lock.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.until = lock.TrustedUntil(time.Now().Add(-e.Took), s.ttl)
	}
	acquired := func(e lock.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.until.IsZero() { // Took is of the whole Acquire: the statement was sent after its beginning
			s.until = lock.TrustedUntil(time.Now(), s.ttl)
		}
	}
	failed := func(e lock.Event) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.failed = append(s.failed, fmt.Errorf("after %v: %w", e.Took, e.Err))
	}
	return &lock.Trace{Acquired: acquired, Renewed: note, RenewFailed: failed}
}

func (s *lease) get() (until time.Time, failed []error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.until, s.failed
}

// isHeld fails the test unless the lock is held in the eyes of another.
func isHeld(t testing.TB, other lock.Locker, l *lock.Lock) {
	t.Helper()
	_, err := other.Acquire(t.Context(), l.Name(), lock.Try())
	var held *lock.HeldError
	if !errors.As(err, &held) || held.Token != l.Token() {
		t.Errorf("another's try answers %v; the lock has token %d", err, l.Token())
	}
	if err := l.Err(); err != nil {
		t.Error(err)
	}
}
