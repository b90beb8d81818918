package locktable_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// A pool whose every connection is busy, with more waiting for one, loses no lock.
func TestExhaustedPoolLosesNoLock(t *testing.T) {
	servers(t, func(t *testing.T, fl flavour, fresh *dbtest.DB) {
		l := lease{ttl: time.Second}
		db := fl.open(t, fresh.DSN, 4)
		a, direct := locker(t, db, lock.TTL(l.ttl), lock.WithTrace(l.trace())), locker(t, fresh.DB)
		mine := []*lock.Lock{acquire(t, a, "one"), acquire(t, a, "two")}
		sleep := "SELECT SLEEP(20)"
		if fl.kind == sqldb.Postgres {
			sleep = "SELECT 1 FROM pg_sleep(20)"
		}
		busy, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range 12 { // 3 connections are left
			wg.Go(func() {
				var n int
				_ = db.QueryRow(busy, sleep).Scan(&n)
			})
		}
		time.Sleep(3 * l.ttl)
		for _, l := range mine {
			isHeld(t, direct, l)
		}
		// Who wants a lock from the exhausted pool waits for as long as ctx says, and is not told that it is held.
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := a.Acquire(ctx, "three"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrHeld) {
			t.Errorf("Acquire from an exhausted pool: %v", err)
		}
		for _, l := range mine {
			if err := l.Err(); err != nil {
				t.Error(err)
			}
		}
		if _, failed := l.get(); len(failed) > 0 {
			t.Errorf("renewals failed:\n%v", errors.Join(failed...))
		}
		stop()
		wg.Wait()
		for _, l := range mine {
			release(t, l)
		}
	})
}

// A pool of one connection serves, without one of its own for the renewals.
func TestPoolOfOne(t *testing.T) {
	servers(t, func(t *testing.T, fl flavour, fresh *dbtest.DB) {
		ctx := t.Context()
		const ttl = 1500 * time.Millisecond
		db := fl.open(t, fresh.DSN, 1)
		a, direct := locker(t, db, lock.TTL(ttl)), locker(t, fresh.DB)
		mine := acquire(t, a, "job")
		time.Sleep(3 * ttl)
		isHeld(t, direct, mine)
		if err := guarded(ctx, db, mine); err != nil {
			t.Error(err)
		}
		release(t, mine)

		// Inside the caller's own transaction there is no connection left, and none will come.
		err := db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			for name, opts := range map[string][]lock.Option{"ctx": nil, "Wait": {lock.Wait(200 * time.Millisecond)}, "Try": {lock.Try()}} {
				actx, cancel := ctx, context.CancelFunc(func() {})
				if name != "Wait" {
					actx, cancel = context.WithTimeout(ctx, 200*time.Millisecond)
				}
				begun := time.Now()
				_, err := a.Acquire(actx, "other", opts...)
				cancel()
				if err == nil || !strings.Contains(err.Error(), "pool") {
					t.Errorf("%s: the answer does not name the pool: %v", name, err)
				}
				if name != "Wait" && !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("%s: %v", name, err)
				}
				if took := time.Since(begun); took > 2*time.Second {
					t.Errorf("%s: it took %v", name, took)
				}
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		release(t, acquire(t, a, "other", lock.Wait(5*time.Second)))
	})
}
