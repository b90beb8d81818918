package sqllock_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// Pools of one connection: the Locker keeps none for itself.
func TestConformancePoolOfOne(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := subject(t, db)
		s.Only = []string{"Exclusion/Counter", "Waiting/CancelledAtRandom", "Waiting/Expiry", "Lease/Renewed", "Lease/Stolen", "Close"}
		s.Faults, s.Statements = nil, nil
		s.New = func(t testing.TB, opts ...lock.Option) lock.Locker {
			t.Helper()
			l, err := sqllock.New(context.Background(), db.Limited(t, 1), opts...)
			if err != nil {
				t.Fatal(err)
			}
			return l
		}
		locktest.Run(t, s)
	})
}

// An Acquire inside the caller's own transaction, which has the only connection,
// cannot work: it ends with its ctx, and the error says why.
func TestPoolOfOneInsideATransaction(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		if err := migrations.Up(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		one := db.Limited(t, 1)
		l := locker(t, one)
		err := one.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, _ *sqldb.Tx) error {
			ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
			defer cancel()
			got, err := l.Acquire(ctx, "inside")
			if err == nil {
				t.Errorf("it got %v", got)
			} else if !strings.Contains(err.Error(), "pool") {
				t.Errorf("the error does not name the pool: %v", err)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		got, err := l.Acquire(t.Context(), "inside", lock.Wait(10*time.Second)) // what came late was given back
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Release(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A pool without a free connection loses no lock: the Locker has one of its own.
func TestPoolIsExhausted(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		other := table(t, db)
		const conns, ttl = 4, time.Second
		pool := db.Limited(t, conns)
		l := locker(t, pool, lock.TTL(ttl))
		got, err := l.Acquire(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		for range conns - 1 {
			conn, err := pool.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := pool.Conn(ctx); err == nil {
			t.Fatal("the pool has a connection to give")
		}
		if next, err := other.Acquire(t.Context(), "job", lock.Wait(3*ttl)); err == nil {
			t.Errorf("another got it, token %d; its holder says: %v", next.Token(), got.Err())
		}
		if err := got.Err(); err != nil {
			t.Errorf("after three TTLs: %v", err)
		}
	})
}
