package locktable_test

import (
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// Whoever tries in vain is at the row for a moment on MySQL and MariaDB, where its holder's renewal and release skip it
// then: many who try all the time keep neither from getting through.
func TestManyTriesKeepNothingFromTheHolder(t *testing.T) {
	each(t, sqldb.Kinds(), func(t *testing.T, fresh *dbtest.DB) {
		var stats lock.Stats
		l := locker(t, fresh.DB, lock.TTL(4*time.Second), lock.WithTrace(stats.Trace()))
		other := locker(t, fresh.Another(t).DB)
		var stop atomic.Bool
		var tries atomic.Int64
		var wg sync.WaitGroup
		defer wg.Wait()
		defer stop.Store(true)
		for range 8 {
			wg.Go(func() {
				for !stop.Load() {
					got, err := other.Acquire(t.Context(), "job", lock.Try())
					switch tries.Add(1); {
					case err == nil:
						if err := got.Release(t.Context()); err != nil {
							t.Errorf("release by who tries: %v", err)
						}
					case !errors.Is(err, lock.ErrHeld):
						t.Errorf("a try: %v", err)
					}
				}
			})
		}
		for range 3 {
			release(t, acquire(t, l, "job"))
		}
		mine := acquire(t, l, "job")
		select {
		case <-mine.Done():
			t.Error(mine.Err())
		case <-time.After(6 * time.Second):
		}
		release(t, mine)
		t.Logf("%d tries, %d renewals, %d that were skipped", tries.Load(), stats.Renewed.Load(), stats.RenewFailed.Load())
	})
}
