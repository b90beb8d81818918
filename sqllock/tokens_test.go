package sqllock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// Tokens of one name only grow, whatever happens to its row between two holders.
func TestTokensGrow(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		locks := db.Table("locks")
		var last int64
		next := func(after string) *lock.Lock {
			t.Helper()
			k := must(t, l, "job", lock.NoRenew(), lock.TTL(time.Minute))
			if k.Token() <= last {
				t.Errorf("after %s: token %d, and before %d", after, k.Token(), last)
			}
			last = k.Token()
			return k
		}
		release(t, next("nothing"))
		for range 20 {
			release(t, next("a release"))
		}
		next("a release")
		db.MustExec(t, "UPDATE "+locks+" SET expires_at = acquired_at")
		k := next("an expiry")
		if err := l.ForceRelease(t.Context(), "job", k.Token()); err != nil {
			t.Fatal(err)
		}
		k = next("a forced release")
		if err := inTx(t, db, func(tx *sqldb.Tx) error { return k.ReleaseIn(t.Context(), tx) }); err != nil {
			t.Fatal(err)
		}
		release(t, next("ReleaseIn"))
		if err := inTx(t, db, func(tx *sqldb.Tx) error { return sqllock.AcquireTx(t.Context(), tx, "job") }); err != nil {
			t.Fatal(err)
		}
		var inside int64
		if err := db.QueryRow(t.Context(), "SELECT token FROM "+locks).Scan(&inside); err != nil || inside <= last {
			t.Errorf("AcquireTx: token %d, and before %d; %v", inside, last, err)
		}
		last = inside
		release(t, next("AcquireTx"))
		time.Sleep(2 * time.Millisecond)
		if n, err := l.GCOlderThan(t.Context(), 0); err != nil || n != 1 {
			t.Errorf("gc removed %d rows, %v", n, err)
		}
		release(t, next("gc"))
		db.MustExec(t, "DELETE FROM "+locks)
		k = next("the row was deleted by hand")
		db.MustExec(t, "DELETE FROM "+locks)
		next("the row was deleted by hand while the lock was held")
		_ = k.Release(t.Context())

		// A restore of an old copy of the table.
		db.MustExec(t, "UPDATE "+locks+" SET expires_at = acquired_at", "CREATE TABLE copy AS SELECT * FROM "+locks)
		for range 20 {
			release(t, next("a copy was made"))
		}
		db.MustExec(t, "DELETE FROM "+locks, "INSERT INTO "+locks+" SELECT * FROM copy")
		release(t, next("the copy was restored"))
		db.MustExec(t, "UPDATE "+locks+" SET token = token + 60000000") // the clock was a minute ahead
		last += 60000000
		release(t, next("the clock went back"))
		release(t, next("the clock went back"))
	})
}

// gc beside first touches: whoever gets the lock finds a larger token than whoever
// had it before, and nobody fails.
func TestTokensBesideGC(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		a, b := table(t, db), locker(t, db.Another(t).DB)
		ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
		defer cancel()
		var wg sync.WaitGroup
		var removed, had, last int64 // last is protected by the lock itself
		for i := range 6 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for ctx.Err() == nil {
					k, err := []*sqllock.Locker{a, b}[i%2].Acquire(context.Background(), "job")
					if err != nil {
						t.Error(err)
						return
					}
					if k.Token() <= last {
						t.Errorf("token %d after %d", k.Token(), last)
					}
					last = k.Token()
					had++
					if err := k.Release(context.Background()); err != nil {
						t.Error(err)
					}
				}
			}()
		}
		for ctx.Err() == nil {
			n, err := a.GCOlderThan(context.Background(), 0)
			if err != nil {
				t.Error(err)
			}
			removed += n
			time.Sleep(time.Millisecond)
		}
		wg.Wait()
		if removed == 0 || had < 6 {
			t.Errorf("%d rows removed, %d times had", removed, had)
		}
		t.Logf("%d rows removed, %d times had", removed, had)
	})
}
