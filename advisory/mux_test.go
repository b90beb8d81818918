package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// out is how many connections are out of db's pool.
func out(db *dbtest.DB) int {
	if db.Pool != nil {
		return int(db.Pool.Stat().AcquiredConns())
	}
	return db.SQL.Stats().InUse
}

// A thousand locks share few connections, and Close gives all of them back.
func TestManyLocksShareConnections(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l, err := advisory.New(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		const locks, goroutines = 1000, 16
		var wg sync.WaitGroup
		for g := range goroutines {
			wg.Go(func() {
				for i := g; i < locks; i += goroutines {
					if _, err := l.Acquire(t.Context(), "many "+strconv.Itoa(i)); err != nil {
						t.Errorf("lock %d: %v", i, err)
						return
					}
				}
			})
		}
		wg.Wait()
		if n := out(db); n < 1 || n > advisory.DefaultConnections {
			t.Errorf("%d connections are out of the pool", n)
		}
		refusedTry(t, locker(t, db.DB), "many 999")
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		for _, i := range []int{0, 500, 999} {
			release(t, must(t, locker(t, db.DB), "many "+strconv.Itoa(i), lock.Try()))
		}
	})
}

// slow is a driver whose pool takes its time to give a connection, and counts them.
type slow struct {
	sqldb.Driver
	given *atomic.Int64
}

func (d slow) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	d.given.Add(1)
	time.Sleep(50 * time.Millisecond)
	return d.Driver.Conn(ctx)
}

// Where many want a lock of their own at once, no more than half of the connections
// are taken for that, also while they are being opened; the number is an option.
func TestConnectionsOption(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		for n, want := range map[int]int64{1: 1, 2: 1, 3: 2, advisory.DefaultConnections: advisory.DefaultConnections / 2} {
			var given atomic.Int64
			l := locker(t, db.Wrap(func(d sqldb.Driver) sqldb.Driver { return slow{d, &given} }), advisory.Connections(n))
			given.Store(0)
			var wg sync.WaitGroup
			var held sync.Map
			for i := range 32 {
				wg.Go(func() {
					got, err := l.Acquire(t.Context(), "each "+strconv.Itoa(i))
					if err != nil {
						t.Error(err)
						return
					}
					held.Store(i, got)
				})
			}
			wg.Wait()
			if got := given.Load(); got < 1 || got > want {
				t.Errorf("Connections(%d): %d were taken, not %d", n, got, want)
			}
			if err := l.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// The control for the next test: a session is granted what it has, a second time.
func TestSessionIsGrantedTwice(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		c, err := db.SQL.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = c.Close() }()
		for range 2 {
			for _, q := range map[bool][]string{
				true:  {"SELECT GET_LOCK('advc_twice', 0)"},
				false: {"SELECT pg_try_advisory_lock_shared(7310868735001)::int", "SELECT pg_try_advisory_lock(7310868735001)::int"},
			}[db.Kind().InnoDB()] {
				var got int
				if err := c.QueryRowContext(t.Context(), q).Scan(&got); err != nil || got != 1 {
					t.Errorf("%s: %d, %v", q, got, err)
				}
			}
		}
		for _, q := range map[bool][]string{true: {"DO RELEASE_LOCK('advc_twice')", "DO RELEASE_LOCK('advc_twice')"}, false: {"SELECT pg_advisory_unlock_all()"}}[db.Kind().InnoDB()] {
			if _, err := c.ExecContext(t.Context(), q); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// No key is tried on a session that holds it: one Locker excludes its own goroutines,
// however few connections it has, and whatever way the key comes.
func TestOneLockerExcludesItself(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		for _, conns := range []int{1, 2, 8} {
			l := locker(t, db.DB, advisory.Connections(conns))
			key, err := advisory.KeyOf(db.DB, "self")
			if err != nil {
				t.Fatal(err)
			}
			got := must(t, l, "self")
			if held := refusedTry(t, l, "self"); held.Holder.Label != "this process" {
				t.Errorf("the holder is %v", held.Holder)
			}
			if _, err := l.AcquireKey(t.Context(), key, lock.Try()); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("the same key: %v", err)
			}
			var inside, most int
			var mu sync.Mutex
			var wg sync.WaitGroup
			for range 6 {
				wg.Go(func() {
					next, err := l.Acquire(t.Context(), "self", lock.Wait(30*time.Second))
					if err != nil {
						t.Error(err)
						return
					}
					mu.Lock()
					inside++
					most = max(most, inside)
					mu.Unlock()
					time.Sleep(time.Millisecond)
					mu.Lock()
					inside--
					mu.Unlock()
					if err := next.Release(t.Context()); err != nil {
						t.Error(err)
					}
				})
			}
			time.Sleep(20 * time.Millisecond)
			release(t, got)
			wg.Wait()
			if most != 1 {
				t.Errorf("%d connections: %d were inside at once", conns, most)
			}
		}
	})
}

// Who waits has a session of its own: what else the Locker does goes on. When there are
// more waits than connections, the others poll.
func TestWaitsHaveTheirOwnSession(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const waits = 6
		holder, l := locker(t, db.DB), locker(t, db.DB, advisory.Connections(4))
		var held []*lock.Lock
		for i := range waits {
			held = append(held, must(t, holder, "waited "+strconv.Itoa(i)))
		}
		var stats lock.Stats
		got := make(chan error, waits)
		for i := range waits {
			go func() {
				next, err := l.Acquire(t.Context(), "waited "+strconv.Itoa(i), lock.Wait(time.Minute), lock.WithTrace(stats.Trace()))
				if err == nil {
					err = next.Release(context.Background())
				}
				got <- err
			}()
		}
		eventually(t, "all of them wait", func() bool { return stats.Waiting.Load() == waits })
		eventually(t, "three of them wait in the server", func() bool { return waitersIn(t, db, waits) == 3 })
		begun := time.Now()
		for i := range 10 {
			release(t, must(t, l, "something else "+strconv.Itoa(i)))
		}
		if took := time.Since(begun); took > 5*time.Second {
			t.Errorf("ten other locks took %v", took)
		}
		if n := out(db); n > 4+advisory.DefaultConnections {
			t.Errorf("%d connections are out of the pool", n)
		}
		for _, h := range held {
			release(t, h)
		}
		for range waits {
			if err := <-got; err != nil {
				t.Error(err)
			}
		}
	})
}

// waitersIn counts the sessions that wait in the server for one of the names "waited N".
func waitersIn(t testing.TB, db *dbtest.DB, n int) (all int) {
	t.Helper()
	for i := range n {
		all += waitersOf(t, db, "waited "+strconv.Itoa(i))
	}
	return all
}

// waitersOf counts the sessions that wait in the server for a name.
func waitersOf(t testing.TB, db *dbtest.DB, name string) (n int) {
	t.Helper()
	key := serverKey(t, db, name)
	query := "SELECT count(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%GET_LOCK(_" + key + "_, %' AND STATE LIKE 'User lock'"
	if db.Kind() == sqldb.Postgres {
		query = fmt.Sprintf(`SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND objsubid = 1
			AND classid::bigint << 32 | objid::bigint = %s::bigint`, key)
	}
	if err := db.SQL.QueryRowContext(context.Background(), query).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// A pool of two leaves the Locker one connection: everything goes through it, and the
// waits poll.
func TestPoolOfTwo(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		two := db.Limited(t, 2)
		l, other := locker(t, two), locker(t, db.DB)
		got := must(t, other, "two")
		mine := must(t, l, "mine")
		done := make(chan error, 1)
		go func() {
			next, err := l.Acquire(t.Context(), "two", lock.Wait(time.Minute))
			if err == nil {
				err = next.Release(context.Background())
			}
			done <- err
		}()
		time.Sleep(50 * time.Millisecond)
		if _, err := two.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Error(err)
		}
		release(t, got)
		if err := <-done; err != nil {
			t.Error(err)
		}
		if err := mine.Err(); err != nil {
			t.Error(err)
		}
		release(t, mine)
	})
}

// A Try does not wait for ever for a connection that the pool does not have, nor for one
// of the Locker's own.
func TestTryWithoutAConnection(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		two := db.Limited(t, 2)
		l := locker(t, two)
		taken := both(t, two)
		done := make(chan error, 1)
		go func() {
			got, err := l.Acquire(context.Background(), "try", lock.Try())
			if err == nil {
				err = errors.Join(errors.New("it was had"), got.Release(context.Background()))
			}
			done <- err
		}()
		select {
		case err := <-done:
			if err == nil || errors.Is(err, lock.ErrHeld) || !strings.Contains(err.Error(), `"try"`) || !strings.Contains(err.Error(), "connection") {
				t.Errorf("the answer is %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("it waits for ever")
		}
		if err := taken[0].Close(); err != nil {
			t.Fatal(err)
		}
		release(t, must(t, l, "try", lock.Try()))
	})
}

// Locks with different TTLs do not share a session, and make room for each other when
// there is no other.
func TestTTLsShareNoSession(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := locker(t, db.DB, advisory.Connections(2))
		a := must(t, l, "a", lock.TTL(time.Hour))
		b := must(t, l, "b", lock.TTL(2*time.Second))
		if x, y := sessionOf(t, db, "a"), sessionOf(t, db, "b"); x == y {
			t.Error("an hour and two seconds share a session")
		}
		// A third TTL finds no session of its own: one that is shorter will do, so that
		// others wait no longer than was asked for.
		c := must(t, l, "c", lock.TTL(time.Minute))
		if x, y := sessionOf(t, db, "c"), sessionOf(t, db, "b"); x != y {
			t.Error("a minute is not on the session of two seconds")
		}
		// None is short enough.
		_, err := l.Acquire(t.Context(), "d", lock.TTL(time.Second), lock.Try())
		if err == nil || errors.Is(err, lock.ErrHeld) {
			t.Errorf("a second: %v", err)
		}
		release(t, b)
		release(t, c)
		release(t, must(t, l, "d", lock.TTL(time.Second))) // the free one goes back, and makes room
		release(t, a)
	})
}

// More readers than connections share the sessions' locks; a writer that waits is not
// passed by those that come later.
func TestReadersShareSessions(t *testing.T) {
	t.Parallel()
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l, other := locker(t, db.DB, advisory.Connections(2)), locker(t, db.DB)
		var readers []*lock.Lock
		for range 10 {
			readers = append(readers, must(t, l, "read", lock.Shared(), lock.Try()))
		}
		if n := out(db); n != 2 {
			t.Errorf("%d connections are out of the pool", n)
		}
		release(t, must(t, other, "read", lock.Shared(), lock.Try()))
		writer := make(chan *lock.Lock, 1)
		go func() {
			got, err := other.Acquire(t.Context(), "read", lock.Wait(time.Minute))
			if err != nil {
				t.Error(err)
			}
			writer <- got
		}()
		eventually(t, "the writer waits", func() bool { return waitersOf(t, db, "read") == 1 })
		refusedTry(t, l, "read", lock.Shared())
		for i, r := range readers { // in any order: the first, which the server knows, is not the last
			select {
			case <-writer:
				t.Fatalf("the writer is in beside %d readers", len(readers)-i)
			default:
			}
			if err := r.Err(); err != nil {
				t.Errorf("reader %d: %v", i, err)
			}
			release(t, r)
		}
		got := <-writer
		refusedTry(t, l, "read", lock.Shared())
		release(t, got)
		release(t, must(t, l, "read", lock.Shared(), lock.Try()))
	})
}
