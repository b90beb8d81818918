package locktable_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// excludes has goroutines increment a counter in two steps, under one lock of several Lockers: an increment is lost as
// soon as two of them hold it at once.
func excludes(t *testing.T, goroutines, rounds int, lockers ...*sqllock.Locker) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var counter, inside atomic.Int64 // of atomic steps, but not incremented atomically
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for range rounds {
				err := lock.Do(ctx, lockers[g%len(lockers)], "counter of "+t.Name(), func(context.Context, *lock.Lock) error {
					if n := inside.Add(1); n != 1 {
						t.Errorf("%d hold the lock", n)
					}
					n := counter.Load()
					time.Sleep(200 * time.Microsecond)
					counter.Store(n + 1)
					inside.Add(-1)
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := counter.Load(); got != int64(goroutines*rounds) {
		t.Errorf("%d increments of %d are left", got, goroutines*rounds)
	}
}

// serves is what a lock has to do through whatever handle: it is granted, renewed, guarded, released, and excludes.
func serves(t *testing.T, db, other *sqldb.DB) {
	t.Helper()
	ctx := t.Context()
	const ttl = 600 * time.Millisecond
	var stats lock.Stats
	a, b := locker(t, db, lock.TTL(ttl), lock.WithTrace(stats.Trace())), locker(t, other, lock.TTL(ttl))
	var locks []*lock.Lock
	for _, name := range []string{"one", "two", "three"} {
		locks = append(locks, acquire(t, a, name+" of "+t.Name())) // several such tests may share a database
	}
	time.Sleep(3 * ttl)
	for _, l := range locks {
		isHeld(t, b, l)
		if err := guarded(ctx, db, l); err != nil {
			t.Error(err)
		}
	}
	if n := stats.Renewed.Load(); n < 9 {
		t.Errorf("%d renewals of 3 locks in 3 TTLs", n)
	}
	if n := stats.RenewFailed.Load(); n != 0 {
		t.Errorf("%d renewals failed", n)
	}
	err := db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error { return locks[0].ReleaseIn(ctx, tx) })
	if err != nil {
		t.Error(err)
	}
	release(t, locks[1])
	release(t, locks[2])
	for _, l := range locks {
		next := acquire(t, b, l.Name(), lock.Try())
		if next.Token() <= l.Token() {
			t.Errorf("token %d after %d", next.Token(), l.Token())
		}
		release(t, next)
	}
	excludes(t, 16, 5, a, b)
}

// Every flavour serves.
func TestFlavours(t *testing.T) {
	servers(t, func(t *testing.T, fl flavour, fresh *dbtest.DB) {
		serves(t, fl.open(t, fresh.DSN, 8), fl.open(t, fresh.DSN, 8))
	})
}
