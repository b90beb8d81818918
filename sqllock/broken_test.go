package sqllock_test

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// breaking is a driver whose connections break, for as many statements as left
// says: before they reach the database, or, with after, behind it. With refused they
// do not break: the server has undone the statement, and says so.
type breaking struct {
	sqldb.Driver
	left           *atomic.Int64
	after, refused bool
}

// refusal is what a server says that has undone a statement: a serialization
// failure, or a deadlock.
type refusal struct{}

func (refusal) Error() string { return "could not serialize access" }
func (refusal) RetryTx() bool { return true }

func (b breaking) err() error {
	if b.refused {
		return refusal{}
	}
	return io.ErrUnexpectedEOF
}

type breakingConn struct {
	sqldb.DriverConn
	b breaking
}

type breakingTx struct {
	sqldb.DriverTx
	b breaking
}

func (b breaking) breaks() bool {
	for {
		n := b.left.Load()
		if n == 0 {
			return false
		}
		if b.left.CompareAndSwap(n, n-1) {
			return true
		}
	}
}

func (b breaking) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	if b.breaks() {
		return nil, b.err()
	}
	return b.Driver.Query(ctx, query, args)
}

// Exec answers, of a connection that had died in the pool, that nothing was sent.
func (b breaking) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	if b.breaks() {
		return sqldb.Result{}, deadInPool{}
	}
	return b.Driver.Exec(ctx, query, args)
}

// deadInPool is what pgx says of a connection that it could write nothing to.
type deadInPool struct{}

func (deadInPool) Error() string     { return "conn closed" }
func (deadInPool) SafeToRetry() bool { return true }
func (deadInPool) Unwrap() error     { return io.ErrUnexpectedEOF }

func (b breaking) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := b.Driver.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return breakingConn{c, b}, nil
}

func (c breakingConn) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	tx, err := c.DriverConn.Begin(ctx, o)
	if err != nil {
		return nil, err
	}
	return breakingTx{tx, c.b}, nil
}

func (c breakingConn) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	if !c.b.breaks() {
		return c.DriverConn.Exec(ctx, query, args)
	}
	if c.b.after {
		_, _ = c.DriverConn.Exec(ctx, query, args)
	}
	return sqldb.Result{}, c.b.err()
}

func (c breakingConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	if !c.b.breaks() {
		return c.DriverConn.Query(ctx, query, args)
	}
	if c.b.after {
		if rows, err := c.DriverConn.Query(ctx, query, args); err == nil {
			for rows.Next() {
				_ = rows.Err()
			}
			_ = rows.Close()
		}
	}
	return nil, c.b.err()
}

// On SQLite a statement runs between BEGIN and COMMIT: what breaks is COMMIT.
func (t breakingTx) Commit(ctx context.Context) error {
	if !t.b.breaks() {
		return t.DriverTx.Commit(ctx)
	}
	if t.b.after {
		_ = t.DriverTx.Commit(ctx)
	}
	return t.b.err()
}

// Connections that a restart of the server has broken cost an Acquire nothing but
// another try, whether or not the statement was carried out; a database that stays
// away is told.
func TestConnectionsBreak(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		table(t, db)
		for _, after := range []bool{false, true} {
			for _, opt := range []lock.Option{lock.Try(), lock.Wait(20 * time.Second)} {
				var left atomic.Int64
				l := locker(t, db.Wrap(func(d sqldb.Driver) sqldb.Driver { return breaking{Driver: d, left: &left, after: after} }))
				release(t, must(t, l, "job"))
				left.Store(3)
				k, err := l.Acquire(t.Context(), "job", opt)
				if err != nil {
					t.Fatalf("after=%v: %v", after, err)
				}
				if n := left.Load(); n != 0 && !after { // with after, the settlement is broken as well, and then the rest of them
					t.Errorf("%d statements have not broken", n)
				}
				left.Store(0)
				release(t, k)

				left.Store(1 << 20)
				if got, err := l.Acquire(t.Context(), "job", opt); err == nil || got != nil {
					t.Errorf("after=%v: it got a lock from a database that is away", after)
				}
				left.Store(0)
			}
		}
	})
}

// A release that meets connections that have died in the pool takes another.
func TestReleaseOnDeadConnections(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		other := table(t, db)
		var left atomic.Int64
		l := locker(t, db.Wrap(func(d sqldb.Driver) sqldb.Driver { return breaking{Driver: d, left: &left} }))
		k := must(t, l, "job")
		left.Store(3)
		if err := k.Release(t.Context()); err != nil {
			t.Errorf("Release: %v", err)
		}
		left.Store(0)
		release(t, must(t, other, "job", lock.Try()))
	})
}

// An Extend without an answer may still be carried out, after a later one. The
// interleaving: a short lease is asked for, and the answer does not come; a long one
// is asked for, and granted; a server that was paused carries out the first. So the
// long one is not trusted for longer than the short one, though the row says more.
func TestExtendWithoutAnswer(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		other := table(t, db)
		var left atomic.Int64
		l := locker(t, db.Wrap(func(d sqldb.Driver) sqldb.Driver { return breaking{Driver: d, left: &left} }))
		k := must(t, l, "job", lock.NoRenew(), lock.TTL(time.Minute))
		left.Store(1)
		if err := k.Extend(t.Context(), 2*time.Second); !sqldb.Uncertain(err) {
			t.Fatalf("Extend without an answer: %v", err)
		}
		if err := k.Extend(t.Context(), time.Minute); err != nil {
			t.Fatal(err)
		}
		select {
		case <-k.Done():
		case <-time.After(20 * time.Second):
			t.Fatal("the long lease is trusted, beside a short one that may still be given")
		}
		if held := refused(t, other, "job"); held.Left < 30*time.Second {
			t.Errorf("the row's lease has %v left: the test tests nothing", held.Left)
		}
		_ = k.Release(t.Context())
	})
}

// A renewal that the server has undone (where SERIALIZABLE is the default, one that
// met another) is sent again at once: an Extend that waits for it is told what became
// of it, and not of the conflict.
func TestRenewalRefused(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		table(t, db)
		var stats lock.Stats
		var left atomic.Int64
		l := locker(t, db.Wrap(func(d sqldb.Driver) sqldb.Driver { return breaking{Driver: d, left: &left, refused: true} }), lock.WithTrace(stats.Trace()))
		k := must(t, l, "job", lock.TTL(time.Minute))
		left.Store(2)
		if err := k.Extend(t.Context(), 2*time.Minute); err != nil {
			t.Errorf("Extend, of which two tries are refused: %v", err)
		}
		if until, ok := k.Until(); !ok || time.Until(until) < 90*time.Second {
			t.Errorf("it is trusted for %v", time.Until(until))
		}
		if n := left.Load(); n != 0 {
			t.Errorf("%d statements were not refused", n)
		}
		release(t, k)
		if n := stats.RenewFailed.Load(); n != 0 {
			t.Errorf("%d renewals failed", n)
		}
	})
}
