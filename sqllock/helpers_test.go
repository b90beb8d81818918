package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"net"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
)

var innodb = []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}

// patience is for how long a test waits for what has to come.
const patience = time.Minute

// must acquires, or ends the test.
func must(t testing.TB, l lock.Locker, name string, opts ...lock.Option) *lock.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	got, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

// release releases, or fails the test.
func release(t testing.TB, l *lock.Lock) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
}

// refused tries the lock, and returns who holds it.
func refused(t testing.TB, l lock.Locker, name string) *lock.HeldError {
	t.Helper()
	got, err := l.Acquire(t.Context(), name, lock.Try())
	var held *lock.HeldError
	if got != nil || !errors.As(err, &held) {
		t.Fatalf("a try of %q that is held: %v, %v", name, got, err)
	}
	return held
}

// eventually waits until f says so, and ends the test if that takes too long.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long until %s", what)
		}
	}
}

// expired waits until the lease of the row has passed by the database's clock.
func expired(t testing.TB, db *dbtest.DB, name string) {
	t.Helper()
	now := map[sqldb.Kind]string{sqldb.Postgres: "clock_timestamp()", sqldb.SQLite: "unixepoch('subsec') * 1000000"}[db.Kind()]
	if now == "" {
		now = "UTC_TIMESTAMP(6)"
	}
	eventually(t, "the lease has passed", func() bool {
		var n int
		if err := db.QueryRow(t.Context(), "SELECT count(*) FROM "+db.Table("locks")+" WHERE expires_at < "+now+" AND name = '"+name+"'").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 1
	})
}

// openTx begins a transaction, which is rolled back at the end of the test.
func openTx(t testing.TB, db *dbtest.DB, level sql.IsolationLevel) (*sql.Tx, *sqldb.Tx) {
	t.Helper()
	tx, err := db.SQL.BeginTx(context.Background(), &sql.TxOptions{Isolation: level})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback() })
	return tx, db.Tx(tx)
}

// soon fails the test if f has not come back while the test could wait: for what
// must not wait for a transaction that stays open.
func soon(t testing.TB, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(4 * time.Second):
		t.Fatalf("%s waits", what)
		return nil
	}
}

// within waits until ch is closed, and fails the test if that is later than d after
// begun. A timer of the test's own for the same moment says by how much this machine is
// late.
func within(t testing.TB, what string, begun time.Time, d time.Duration, ch <-chan struct{}) {
	t.Helper()
	late := make(chan time.Duration, 1)
	own := time.AfterFunc(time.Until(begun.Add(d)), func() { late <- time.Since(begun.Add(d)) })
	defer own.Stop()
	<-ch
	if took := time.Since(begun); took > d {
		if by := <-late; took > d+2*by {
			t.Errorf("%s after %v, of at most %v, on a machine that is %v late", what, took, d, by)
		}
	}
}

// exhaust takes all connections that are left in the pool. They go back by the function
// that it returns, or at the end of the test.
func exhaust(t testing.TB, db *dbtest.DB) (putBack func()) {
	t.Helper()
	var conns []*sqldb.Conn
	putBack = func() {
		for _, c := range conns {
			_ = c.Close()
		}
		conns = nil
	}
	t.Cleanup(putBack)
	full := func() bool {
		if db.Pool != nil {
			s := db.Pool.Stat()
			return s.AcquiredConns() == s.MaxConns()
		}
		s := db.SQL.Stats()
		return s.InUse == s.MaxOpenConnections
	}
	eventually(t, "the pool is exhausted", func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer cancel()
		c, err := db.Conn(ctx)
		if err == nil {
			conns = append(conns, c)
		}
		return err != nil && full()
	})
	return putBack
}

// gate is a driver that holds statements back while it is shut: a database that
// does not answer. They come back when their ctx ends, as a driver's do.
type gate struct {
	sqldb.Driver
	g *gateState
}

type gateState struct {
	mu   sync.Mutex
	shut chan struct{} // closed when the gate opens; nil: it is open
	hits int           // how many statements have met it shut
}

func (g *gateState) set(shut bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if shut {
		g.shut = make(chan struct{})
	} else if g.shut != nil {
		close(g.shut)
		g.shut = nil
	}
}

func (g *gateState) hit() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hits
}

// pass answers an error for a statement that has met the gate shut: it was not run.
func (g *gateState) pass(ctx context.Context) error {
	g.mu.Lock()
	shut := g.shut
	if shut != nil {
		g.hits++
	}
	g.mu.Unlock()
	if shut == nil {
		return nil
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-shut:
		return net.ErrClosed
	}
}

// gated returns the database behind a gate.
func gated(db *sqldb.DB) (*sqldb.DB, *gateState) {
	g := &gateState{}
	return db.Wrap(func(d sqldb.Driver) sqldb.Driver { return gate{d, g} }), g
}

func (d gate) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	if err := d.g.pass(ctx); err != nil {
		return sqldb.Result{}, err
	}
	return d.Driver.Exec(ctx, query, args)
}

func (d gate) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	if err := d.g.pass(ctx); err != nil {
		return nil, err
	}
	return d.Driver.Query(ctx, query, args)
}

func (d gate) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := d.Driver.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return gateConn{c, d.g}, nil
}

type gateConn struct {
	sqldb.DriverConn
	g *gateState
}

func (c gateConn) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	if err := c.g.pass(ctx); err != nil {
		return nil, err
	}
	return c.DriverConn.Begin(ctx, o)
}

func (c gateConn) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	if err := c.g.pass(ctx); err != nil {
		return sqldb.Result{}, err
	}
	return c.DriverConn.Exec(ctx, query, args)
}

func (c gateConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	if err := c.g.pass(ctx); err != nil {
		return nil, err
	}
	return c.DriverConn.Query(ctx, query, args)
}

func (c gateConn) Interrupt(ctx context.Context) error { return c.g.pass(ctx) }

// withIsolation returns the database through connections whose default it is.
func withIsolation(t testing.TB, db *dbtest.DB, level string) *sqldb.DB {
	t.Helper()
	if db.Kind() == sqldb.Postgres {
		return withSetting(t, db, "default_transaction_isolation", strings.ToLower(level)).DB
	}
	pool := db.OpenSQL(t, func(c *mysql.Config) {
		name := "transaction_isolation"
		if db.Kind() == sqldb.MariaDB {
			name = "tx_isolation"
		}
		c.Params = map[string]string{name: "'" + strings.ReplaceAll(level, " ", "-") + "'"}
	})
	strict, err := mysqldb.New(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return strict
}

// withSetting returns a PostgreSQL database through sessions with a setting.
func withSetting(t testing.TB, db *dbtest.DB, name, value string) *dbtest.DB {
	t.Helper()
	u, err := url.Parse(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // pgx reads no plus sign as a blank
	other := *db
	other.DSN = u.String()
	return other.Another(t)
}
