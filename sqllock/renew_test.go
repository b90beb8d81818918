package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// lives fails the test if the lock ends within d.
func lives(t testing.TB, k *lock.Lock, d time.Duration) {
	t.Helper()
	select {
	case <-k.Done():
		t.Fatalf("it was lost: %v", k.Err())
	case <-time.After(d):
	}
}

// The connection of the renewals dies: another one is taken.
func TestRenewalConnectionDies(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const ttl = 1500 * time.Millisecond
		if err := migrations.Up(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		var stats lock.Stats
		l := locker(t, db.Another(t).DB, lock.TTL(ttl), lock.WithTrace(stats.Trace()))
		k := must(t, l, "job")
		eventually(t, "it was renewed", func() bool { return stats.Renewed.Load() > 0 })
		for _, kill := range sessions(t, db) {
			_, _ = db.SQL.Exec(kill)
		}
		n := stats.Renewed.Load()
		eventually(t, "it was renewed again", func() bool { return stats.Renewed.Load() > n+1 })
		if k.Err() != nil {
			t.Error(k.Err())
		}
		release(t, k)
	})
}

// sessions are the statements that end all sessions that have renewed locks.
func sessions(t testing.TB, db *dbtest.DB) (kill []string) {
	t.Helper()
	if db.Kind() == sqldb.Postgres {
		return []string{"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%mine.ttl%' AND query LIKE '%" + db.Schema() + "%' AND pid <> pg_backend_pid()"}
	}
	rows, err := db.SQL.Query("SELECT CONCAT('KILL ', id) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var s string
		if err := rows.Scan(&s); err != nil {
			t.Fatal(err)
		}
		kill = append(kill, s)
	}
	return kill
}

// A pool whose connections are all in use costs no lock, also none that was waited
// for while the renewals had nothing to do.
func TestRenewalWithExhaustedPool(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const ttl = time.Second
		table(t, db)
		other := db.Another(t)
		a, b := locker(t, db.DB, lock.TTL(ttl)), locker(t, other.DB, lock.TTL(ttl))
		first := must(t, b, "job")
		got := make(chan *lock.Lock, 1)
		go func() {
			k, err := a.Acquire(context.Background(), "job")
			if err != nil {
				t.Error(err)
			}
			got <- k
		}()
		time.Sleep(1500 * time.Millisecond) // longer than an idle goroutine lives
		release(t, first)
		k := <-got
		putBack := exhaust(t, db)
		lives(t, k, 3*ttl)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if _, err := a.Acquire(ctx, "other"); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, lock.ErrHeld) || !strings.Contains(err.Error(), "pool") {
			t.Errorf("an Acquire without a connection: %v", err)
		}
		putBack()
		release(t, k)
	})
}

// Whoever waits for the first connection keeps nobody else longer than that one's
// own ctx allows.
func TestStartObeysEachContext(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		putBack := exhaust(t, db)
		long, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := l.Acquire(long, "job")
			done <- err
		}()
		time.Sleep(50 * time.Millisecond)
		_ = soon(t, "another Acquire", func() error {
			if _, err := l.Acquire(t.Context(), "job", lock.Wait(50*time.Millisecond)); err == nil || errors.Is(err, lock.ErrHeld) {
				t.Error(err)
			}
			return nil
		})
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		putBack()
	})
}

// One renewal fails, or its statement gets no answer: there is time for another.
func TestRenewalFailsOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const ttl = 1500 * time.Millisecond
		table(t, db)
		wrapped, gate := gated(db.DB)
		var stats lock.Stats
		l := locker(t, wrapped, lock.TTL(ttl), lock.WithTrace(stats.Trace()))
		k := must(t, l, "job")
		gate.set(true)
		eventually(t, "a renewal hangs", func() bool { return gate.hit() > 0 })
		eventually(t, "it is given up", func() bool { return stats.RenewFailed.Load() > 0 })
		if k.Err() != nil {
			t.Fatalf("one renewal has cost the lock: %v", k.Err())
		}
		gate.set(false)
		lives(t, k, 2*ttl)

		begun := time.Now()
		gate.set(true) // no answer ever: the loss is told in time
		within(t, "the loss is told", begun, ttl, k.Done())
		if !errors.Is(k.Err(), lock.ErrLost) {
			t.Error(k.Err())
		}
		gate.set(false)
		_ = k.Release(t.Context())
	})
}

// Many who try in vain have the row for a moment each, on MySQL and MariaDB: its
// holder is renewed and can release all the same.
func TestRenewalBesideTries(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const ttl = 2 * time.Second
		a, b := table(t, db, lock.TTL(ttl)), locker(t, db.Another(t).DB)
		k := must(t, a, "job")
		stop := make(chan struct{})
		var wg sync.WaitGroup
		t.Cleanup(func() { close(stop); wg.Wait() })
		for range 8 {
			wg.Add(1)
			go func() {
				defer wg.Done()
				for {
					select {
					case <-stop:
						return
					default:
					}
					if m, err := b.Acquire(context.Background(), "job", lock.Try(), lock.NoRenew()); err == nil {
						_ = m.Release(context.Background())
					} else if !errors.Is(err, lock.ErrHeld) {
						t.Error(err)
					}
				}
			}()
		}
		lives(t, k, 3*ttl)
		for range 5 {
			release(t, k)
			eventually(t, "it is had again", func() (got bool) {
				k, _ = a.Acquire(t.Context(), "job", lock.Try())
				return k != nil
			})
		}
		release(t, k)
	})
}
