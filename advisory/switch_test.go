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

// The server is told to end a session that says nothing for a TTL.
func TestServerHasTheSwitch(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		w := &intruder{}
		l := locker(t, db.Wrap(w.wrap))
		for ttl, want := range map[time.Duration]string{
			7 * time.Second: "7s", 90 * time.Minute: "90min", 1999 * time.Millisecond: "1999ms", 50 * 365 * 24 * time.Hour: "2147483647ms",
		} {
			got := must(t, l, "switch", lock.TTL(ttl))
			query := "SELECT CAST(@@wait_timeout AS CHAR)"
			if db.Kind() == sqldb.Postgres {
				query = "SHOW idle_session_timeout"
			} else {
				want = fmt.Sprint(min(int(ttl/time.Second), 31_536_000))
			}
			rows, err := w.conn.Query(t.Context(), query, nil)
			if err != nil {
				t.Fatal(err)
			}
			rows.Next()
			values, err := rows.Values()
			if err != nil {
				t.Fatal(err)
			}
			is := fmt.Sprint(values[0])
			if b, ok := values[0].([]byte); ok {
				is = string(b)
			}
			if is != want {
				t.Errorf("TTL %v: the server's is %s, not %s", ttl, is, want)
			}
			if err := rows.Close(); err != nil {
				t.Fatal(err)
			}
			release(t, got)
		}
	})
}

// wait_timeout counts whole seconds: a TTL that is shorter is refused, by New and by
// Acquire.
func TestTTLBelowASecond(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := locker(t, db.DB)
		for _, ttl := range []time.Duration{lock.MinTTL, 999 * time.Millisecond} {
			other, err := advisory.New(t.Context(), db.DB, lock.TTL(ttl))
			got, aerr := l.Acquire(t.Context(), "ttl", lock.TTL(ttl))
			if db.Kind() == sqldb.Postgres {
				if err != nil || aerr != nil {
					t.Fatalf("%v: %v, %v", ttl, err, aerr)
				}
				release(t, got)
				if err := other.Close(); err != nil {
					t.Error(err)
				}
				continue
			}
			if !errors.Is(err, errors.ErrUnsupported) || !errors.Is(aerr, errors.ErrUnsupported) {
				t.Errorf("%v: %v, %v", ttl, err, aerr)
			}
		}
	})
}

// A TTL with a fraction of a second: the holder trusts no longer than the server keeps
// its session.
func TestTTLIsCutToSeconds(t *testing.T) {
	t.Parallel()
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		line := &dbtest.Line{}
		l, other := locker(t, db.Wrap(line.Wrap)), locker(t, db.DB)
		sent := time.Now()
		got := must(t, l, "cut", lock.TTL(1999*time.Millisecond))
		line.Set(dbtest.Paused)
		next := must(t, other, "cut")
		if err := got.Err(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("another has it after %v, and its holder: %v", time.Since(sent), err)
		}
		line.Set(dbtest.Whole)
		release(t, next)
	})
}

// A session that its server has ended is found out with the next ping, and the loss
// told by then, for all its locks; the Locker goes on with another session.
func TestSessionIsKilled(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const ttl = 3 * time.Second
		l := locker(t, db.DB, lock.TTL(ttl), advisory.Connections(1))
		var all []*lock.Lock
		var stats lock.Stats
		for i := range 3 {
			all = append(all, must(t, l, fmt.Sprint("killed ", i), lock.WithTrace(stats.Trace())))
		}
		kill(t, db, sessionOf(t, db, "killed 0"))
		killed := time.Now()
		next := must(t, locker(t, db.DB), "killed 0")
		for i, h := range all {
			select {
			case <-h.Done():
			case <-time.After(20 * time.Second):
				t.Fatalf("lock %d is trusted %v after its session was killed; the TTL is %v", i, time.Since(killed), ttl)
			}
			var lost *lock.LostError
			if !errors.As(h.Err(), &lost) || lost.Name != h.Name() {
				t.Errorf("lock %d: %v", i, h.Err())
			}
			if err := h.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
				t.Errorf("lock %d: Release: %v", i, err)
			}
		}
		if took := time.Since(killed); took > ttl+3*time.Second {
			t.Errorf("it took %v; the TTL is %v", took, ttl)
		}
		eventually(t, "three losses are told", func() bool { return stats.Lost.Load() == 3 })
		if err := next.Err(); err != nil {
			t.Error(err)
		}
		release(t, next)
		release(t, must(t, l, "killed 0"))
	})
}

// A busy session is pinged all the same: what is said in between is no ping, but the
// locks on it do not run out.
func TestBusySessionIsPinged(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const ttl = time.Second
		l := locker(t, db.DB, lock.TTL(ttl), advisory.Connections(1))
		var stats lock.Stats
		got := must(t, l, "long", lock.WithTrace(stats.Trace()))
		for begun := time.Now(); time.Since(begun) < 3*ttl; {
			release(t, must(t, l, "brief"))
		}
		if err := got.Err(); err != nil {
			t.Error(err)
		}
		if n := stats.Renewed.Load(); n < 5 {
			t.Errorf("it was renewed %d times in three TTLs", n)
		}
		release(t, got)
	})
}

// A lock whose clock has run out, since its pings fail, is not kept by a session that
// lives on by what else is said on it: the session ends.
func TestLostLockIsFreed(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		var s script
		l, other := locker(t, db.Wrap(s.wrap), lock.TTL(time.Second), advisory.Connections(1)), locker(t, db.DB)
		_, _, _, ping := words(db.Kind())
		var stats lock.Stats
		got := must(t, l, "lost", lock.WithTrace(stats.Trace()))
		s.on(ping, -1, false, dbtest.ErrGone)
		free := make(chan *lock.Lock, 1)
		go func() {
			next, err := other.Acquire(t.Context(), "lost", lock.Wait(30*time.Second))
			if err != nil {
				t.Error(err)
			}
			free <- next
		}()
		for {
			select {
			case next := <-free:
				if !errors.Is(got.Err(), lock.ErrLost) || stats.RenewFailed.Load() == 0 {
					t.Errorf("another has it; its holder: %v, %d failed pings", got.Err(), stats.RenewFailed.Load())
				}
				if next != nil {
					release(t, next)
				}
				s.on("", 0, false, nil)
				return
			default:
			}
			// It keeps the session from being idle, as long as it is there.
			if brief, err := l.Acquire(t.Context(), "brief", lock.Wait(10*time.Second)); err == nil {
				_ = brief.Release(t.Context())
			}
			time.Sleep(50 * time.Millisecond)
		}
	})
}

// A statement without an answer is given up also where no ctx bounds it.
func TestSilenceWithoutCtx(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		line := &dbtest.Line{}
		l := locker(t, db.Wrap(line.Wrap))
		release(t, must(t, l, "warm"))
		line.Set(dbtest.Paused)
		done := make(chan error, 1)
		go func() {
			_, err := l.Acquire(context.Background(), "silent")
			done <- err
		}()
		select {
		case err := <-done:
			if err == nil || errors.Is(err, lock.ErrHeld) || !strings.Contains(err.Error(), "not answered") {
				t.Errorf("the answer is %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Error("it waits for ever")
		}
		line.Set(dbtest.Whole)
	})
}

// A thousand locks of a session are kept by one statement.
func TestOnePingForAll(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		handle, counter := dbtest.Count(db.DB)
		const ttl, locks = time.Second, 200
		l := locker(t, handle, lock.TTL(ttl), advisory.Connections(1))
		var stats lock.Stats
		for i := range locks {
			must(t, l, fmt.Sprint("lock ", i), lock.WithTrace(stats.Trace()))
		}
		counter.Take()
		renewed := stats.Renewed.Load()
		time.Sleep(2 * ttl)
		n, renewals := len(counter.Take()), stats.Renewed.Load()-renewed
		if renewals < 4*locks || n > 8 {
			t.Errorf("%d statements, %d renewals in two TTLs", n, renewals)
		}
	})
}

// An Acquire and a Release are one statement each.
func TestOneStatementEach(t *testing.T) {
	flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		handle, counter := dbtest.Count(db.DB)
		l := locker(t, handle)
		release(t, must(t, l, "warm"))
		counter.Take()
		for range 10 {
			release(t, must(t, l, "counted"))
		}
		if all := counter.Take(); len(all) != 20 {
			t.Errorf("%d statements for ten pairs: %q", len(all), all)
		}
	})
}
