package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// acquiring starts an Acquire, and returns when it waits in the server.
func acquiring(t testing.TB, ctx context.Context, db *dbtest.DB, l lock.Locker, name string, opts ...lock.Option) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	go func() {
		got, err := l.Acquire(ctx, name, opts...)
		if err == nil {
			err = got.Release(context.Background())
		}
		done <- err
	}()
	eventually(t, "it waits in the server", func() bool { return waitersOf(t, db, name) == 1 })
	return done
}

// A cancelled ctx returns at once, and no session stays behind waiting: else that one
// would be granted the lock, for nobody.
func TestCancelledWait(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		holder, l := locker(t, db.DB), locker(t, db.DB)
		got := must(t, holder, "wait")
		for range 3 {
			ctx, cancel := context.WithCancel(t.Context())
			done := acquiring(t, ctx, db, l, "wait")
			cancel()
			begun := time.Now()
			err := <-done
			if took := time.Since(begun); took > 5*time.Second { // a slice is ten
				t.Errorf("it took %v", took)
			}
			if !errors.Is(err, context.Canceled) || !errors.Is(err, lock.ErrHeld) {
				t.Errorf("the answer is %v", err)
			}
			eventually(t, "nobody waits in the server", func() bool { return waitersOf(t, db, "wait") == 0 })
			// By itself it ends with its slice, of ten seconds, or is given up after five.
			if took := time.Since(begun); took > 4500*time.Millisecond {
				t.Errorf("it waited in the server for another %v", took)
			}
		}
		release(t, got)
		release(t, must(t, holder, "wait", lock.Try()))
	})
}

// The grant that comes in the moment in which the caller leaves is given back.
func TestGrantAtTheMomentOfCancel(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		holder, l := locker(t, db.DB), locker(t, db.DB)
		for i := range 20 {
			got := must(t, holder, "moment")
			ctx, cancel := context.WithCancel(t.Context())
			done := acquiring(t, ctx, db, l, "moment")
			if i%2 == 0 {
				go cancel()
				release(t, got)
			} else {
				go release(t, got)
				cancel()
			}
			err := <-done
			cancel()
			if err != nil && !errors.Is(err, context.Canceled) {
				t.Errorf("the answer is %v", err)
			}
			eventually(t, "it is released", func() bool { return got.Err() != nil })
			release(t, must(t, holder, "moment", lock.Wait(20*time.Second))) // nobody has it for good
		}
	})
}

// Waits below a second are honoured, though GET_LOCK counts whole seconds; and so is
// what comes on top of whole ones: by pauses, and not by asking without end.
func TestShortWaits(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		handle, counter := dbtest.Count(db.DB)
		holder, l := locker(t, db.DB), locker(t, handle)
		got := must(t, holder, "short")
		release(t, must(t, l, "another")) // it has its connection: what is measured is the waiting
		for _, d := range []time.Duration{time.Millisecond, 40 * time.Millisecond, 400 * time.Millisecond, 1300 * time.Millisecond} {
			counter.Take()
			begun := time.Now()
			_, err := l.Acquire(t.Context(), "short", lock.Wait(d))
			took := time.Since(begun)
			if n, most := len(counter.Take()), 10+int(took/(20*time.Millisecond)); n > most {
				t.Errorf("Wait(%v): %d statements in %v, more than %d", d, n, took, most)
			}
			if !errors.Is(err, lock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) || took < d || took > d+5*time.Second {
				t.Errorf("Wait(%v): %v after %v", d, err, took)
			}
		}
		// One that is released within that time is had in it.
		done := make(chan error, 1)
		go func() {
			next, err := l.Acquire(t.Context(), "short", lock.Wait(900*time.Millisecond))
			if err == nil {
				err = next.Release(context.Background())
			}
			done <- err
		}()
		time.Sleep(100 * time.Millisecond)
		release(t, got)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A wait goes on over its slices, and holds what it was granted in a late one for a
// whole lease.
func TestSlices(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const ttl = time.Second // a slice is a second
		holder, l := locker(t, db.DB), locker(t, db.DB, lock.TTL(ttl))
		got := must(t, holder, "slices")
		granted := make(chan *lock.Lock, 1)
		var stats lock.Stats
		go func() {
			next, err := l.Acquire(t.Context(), "slices", lock.Wait(time.Minute), lock.WithTrace(stats.Trace()))
			if err != nil {
				t.Error(err)
			}
			granted <- next
		}()
		time.Sleep(2900 * time.Millisecond)
		if n := waitersOf(t, db, "slices"); n > 1 {
			t.Errorf("%d sessions wait", n)
		}
		release(t, got)
		next := <-granted
		if next == nil {
			t.FailNow() // it was told why
		}
		time.Sleep(2 * ttl)
		if err := next.Err(); err != nil {
			t.Errorf("after two TTLs: %v", err)
		}
		if n := stats.Waiting.Load(); n != 1 {
			t.Errorf("Waiting was told %d times", n)
		}
		release(t, next)
	})
}

// Those of one process who wait for one name use one connection.
func TestWaitersUseOneConnection(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		other := db.Another(t)
		holder, l := locker(t, db.DB), locker(t, other.DB)
		got := must(t, holder, "line")
		const n = 30
		done := make(chan error, n)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for range n {
			go func() { done <- lock.Do(ctx, l, "line", func(context.Context, *lock.Lock) error { return nil }) }()
		}
		eventually(t, "one waits in the server", func() bool { return waitersOf(t, db, "line") == 1 })
		time.Sleep(50 * time.Millisecond)
		if c, w := out(other), waitersOf(t, db, "line"); w != 1 || c > advisory.DefaultConnections/2+1 {
			t.Errorf("%d wait in the server, %d connections are out", w, c)
		}
		eventually(t, "what the tries took is back", func() bool { return out(other) == 1 })
		release(t, got)
		for range n {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// With Poll nobody waits in the server, so that nothing of the waiter is in the way of
// the holder's CREATE INDEX CONCURRENTLY. Without it, that one has to wait: the control.
func TestPoll(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		holder, l := locker(t, db.DB), locker(t, db.DB)
		got := must(t, holder, "poll")
		var stats lock.Stats
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		done := make(chan error, 1)
		go func() {
			next, err := l.Acquire(ctx, "poll", advisory.Poll(20*time.Millisecond), lock.WithTrace(stats.Trace()))
			if err == nil {
				err = next.Release(context.Background())
			}
			done <- err
		}()
		eventually(t, "it waits", func() bool { return stats.Waiting.Load() == 1 })
		for range 20 {
			if n := waitersOf(t, db, "poll"); n != 0 {
				t.Fatalf("%d wait in the server", n)
			}
		}
		if db.Kind() == sqldb.Postgres {
			db.MustExec(t, "CREATE TABLE indexed (n int)")
			ictx, icancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer icancel()
			if _, err := db.SQL.ExecContext(ictx, "CREATE INDEX CONCURRENTLY one ON indexed (n)"); err != nil {
				t.Errorf("beside a waiter that polls: %v", err)
			}
			waits := acquiring(t, ctx, db, locker(t, db.DB), "poll")
			if _, err := db.SQL.ExecContext(t.Context(), "SET lock_timeout = 0"); err != nil {
				t.Fatal(err)
			}
			bctx, bcancel := context.WithTimeout(t.Context(), time.Second)
			_, err := db.SQL.ExecContext(bctx, "CREATE INDEX CONCURRENTLY two ON indexed (n)")
			bcancel()
			if err == nil {
				t.Error("it did not wait for the waiter in the server: the control does not control")
			}
			defer func() { <-waits }()
		}
		release(t, got)
		if err := <-done; err != nil {
			t.Error(err)
		}
		cancel()
	})
}

// A session that is killed while somebody waits on it, or whose statement is, costs the
// wait its place, or ends it with an error, and nothing else.
func TestWaitIsKilled(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		holder, l := locker(t, db.DB), locker(t, db.DB)
		got := must(t, holder, "kill")
		mine := must(t, l, "kept")
		done := acquiring(t, t.Context(), db, l, "kill", lock.Wait(time.Minute))
		waiting := waiterOf(t, db, "kill")
		kill(t, db, waiting)
		eventually(t, "it waits on another session", func() bool { n := waiterOf(t, db, "kill"); return n != 0 && n != waiting })
		query := fmt.Sprintf("KILL QUERY %d", waiterOf(t, db, "kill"))
		if db.Kind() == sqldb.Postgres {
			query = fmt.Sprintf("SELECT pg_cancel_backend(%d)", waiterOf(t, db, "kill"))
		}
		if _, err := db.SQL.ExecContext(t.Context(), query); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err == nil || errors.Is(err, lock.ErrHeld) || !strings.Contains(err.Error(), `"kill"`) {
			t.Errorf("whose statement was killed: %v", err)
		}
		if err := mine.Err(); err != nil {
			t.Errorf("another lock of the Locker: %v", err)
		}
		release(t, mine)
		release(t, got)
		release(t, must(t, l, "kill", lock.Wait(20*time.Second)))
	})
}

// waiterOf is the id of the session that waits for a name; 0: there is none.
func waiterOf(t testing.TB, db *dbtest.DB, name string) (id int64) {
	t.Helper()
	key := serverKey(t, db, name)
	query := "SELECT COALESCE(MAX(ID), 0) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%GET_LOCK(_" + key + "_, %' AND STATE LIKE 'User lock'"
	if db.Kind() == sqldb.Postgres {
		query = fmt.Sprintf(`SELECT coalesce(max(pid), 0) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objsubid = 1
			AND classid::bigint << 32 | objid::bigint = %s::bigint`, key)
	}
	if err := db.SQL.QueryRowContext(context.Background(), query).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// Who was seen to hold the lock is told at the end of a wait, also if the server does not
// answer that question any more, or a wait of it has told nothing.
func TestHolderIsNotForgotten(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		var s script
		l := locker(t, db.Wrap(s.wrap))
		got := must(t, l, "mine")
		question := "pg_stat_activity"
		if db.Kind().InnoDB() {
			question = "IS_USED_LOCK("
		}
		s.on(question, -1, false, dbtest.ErrGone)
		_, err := l.Acquire(t.Context(), "mine", lock.TTL(time.Second), lock.Wait(1500*time.Millisecond)) // more than a slice
		var held *lock.HeldError
		if !errors.As(err, &held) || held.Holder.Label != "this process" || s.hit() == 0 {
			t.Errorf("%v, after %d questions", err, s.hit())
		}
		s.on("", 0, false, nil)
		release(t, got)
	})
}

// Time limits that the pool's sessions have do not end a wait in the server, nor leave a
// doubt about it. The control is the same wait by hand, on such a session.
func TestLimitsOfThePool(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		limits, byHand := "&statement_timeout=100&lock_timeout=100", "SELECT pg_advisory_lock(%s)"
		switch db.Kind() {
		case sqldb.MySQL:
			limits, byHand = "&max_execution_time=100", "SELECT GET_LOCK('%s', 20)"
		case sqldb.MariaDB:
			limits, byHand = "&max_statement_time=0.1", "SELECT GET_LOCK('%s', 20)"
		}
		if !strings.Contains(db.DSN, "?") {
			limits = "?" + limits[1:]
		}
		limited := *db
		limited.DSN += limits
		pool := limited.Limited(t, 3)
		holder, l := locker(t, db.DB), locker(t, pool)
		got := must(t, holder, "limits")
		control, err := pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var answer *string
		if err := control.QueryRow(t.Context(), fmt.Sprintf(byHand, serverKey(t, db, "limits"))).Scan(&answer); err == nil && answer != nil && *answer == "1" {
			t.Error("the limits limit nothing")
		}
		if err := control.Close(); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		done := acquiring(t, t.Context(), db, l, "limits", lock.Wait(time.Minute))
		time.Sleep(1200 * time.Millisecond)
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v after %v", err, time.Since(begun))
		default:
		}
		release(t, got)
		if err := <-done; err != nil {
			t.Error(err)
		}
		release(t, must(t, holder, "limits", lock.Try()))
	})
}

// An error of a wait, such as a deadlock, names the lock and leaves nothing behind:
// neither a lock, if it was granted all the same, nor a loss of the others.
func TestErrorOfAWait(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		block := "IS NOT NULL" // only a wait says that
		if db.Kind().InnoDB() {
			block = ", 9)" // a slice: in whole seconds, and with a moment for the answer
		}
		for what, err := range map[string]error{
			"cancelled": serverError(db.Kind(), "57014", 3024),
			"deadlock":  serverError(db.Kind(), "40P01", map[sqldb.Kind]uint16{sqldb.MySQL: 3058, sqldb.MariaDB: 1213}[db.Kind()]),
			"exhausted": serverError(db.Kind(), "53200", 1041),
		} {
			for _, granted := range []bool{true, false} {
				var s script
				l, holder := locker(t, db.Wrap(s.wrap)), locker(t, db.DB)
				kept, got := must(t, l, "kept"), must(t, holder, "failed")
				s.on(block, 1, granted, err)
				done := make(chan error, 1)
				go func() {
					_, err := l.Acquire(t.Context(), "failed")
					done <- err
				}()
				if granted {
					eventually(t, "it waits", func() bool { return waitersOf(t, db, "failed") == 1 })
					release(t, got)
				}
				aerr := <-done
				if !errors.Is(aerr, err) || !strings.Contains(aerr.Error(), `"failed"`) || errors.Is(aerr, lock.ErrHeld) || what == "deadlock" && !strings.Contains(aerr.Error(), "what is held stays held") {
					t.Errorf("%s: %v", what, aerr)
				}
				if s.hit() != 1 {
					t.Fatalf("%d statements were answered by the script", s.hit())
				}
				if !granted {
					release(t, got)
				}
				if id := sessionOf(t, db, "failed"); id != 0 {
					t.Errorf("%s, granted %v: session %d has it", what, granted, id)
				}
				if err := kept.Err(); err != nil || sessionOf(t, db, "kept") == 0 {
					t.Errorf("%s: the other lock: %v", what, err)
				}
				release(t, kept)
				release(t, must(t, l, "failed"))
			}
		}
	})
}
