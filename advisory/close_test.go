package advisory_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// Close gives everything back: locks, waits, connections. (What runs on is found by
// TestMain.)
func TestClose(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		other := locker(t, db.DB)
		theirs := must(t, other, "theirs")
		l, err := advisory.New(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		mine := must(t, l, "mine")
		waits := acquiring(t, t.Context(), db, l, "theirs")
		before := out(db)
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if err := <-waits; !errors.Is(err, lock.ErrClosed) {
			t.Errorf("who waited: %v", err)
		}
		if err := mine.Err(); !errors.Is(err, lock.ErrReleased) {
			t.Errorf("who held: %v", err)
		}
		// The other one's, and what pgx is closing in the background.
		eventually(t, "its connections are back", func() bool { return out(db) < before && out(db) <= 1 })
		release(t, must(t, other, "mine", lock.Try()))
		eventually(t, "nobody waits in the server", func() bool { return waitersOf(t, db, "theirs") == 0 })
		release(t, theirs)
	})
}

// discarding counts the connections that are thrown away.
type discarding struct {
	sqldb.Driver
	n *atomic.Int64
}

type discardingConn struct {
	sqldb.DriverConn
	n *atomic.Int64
}

func (d discarding) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := d.Driver.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return discardingConn{c, d.n}, nil
}

func (c discardingConn) Close(discard bool) error {
	if discard {
		c.n.Add(1)
	}
	return c.DriverConn.Close(discard)
}

// A lock with further handles is given back by Close like any other: its session has
// not failed, and goes back to the pool. (The locks that share it would be lost by a
// race between their release and its end.)
func TestCloseReentered(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		var n atomic.Int64
		l, err := advisory.New(t.Context(), db.Wrap(func(d sqldb.Driver) sqldb.Driver { return discarding{d, &n} }))
		if err != nil {
			t.Fatal(err)
		}
		twice := must(t, l, "twice")
		again, err := l.Acquire(twice.Context(t.Context()), "twice", lock.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		other := must(t, l, "other")
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
		if n.Load() != 0 {
			t.Errorf("%d sessions were thrown away", n.Load())
		}
		if err := other.Err(); !errors.Is(err, lock.ErrReleased) {
			t.Errorf("who held another lock of the session: %v", err)
		}
		if twice.Err() == nil || again.Err() == nil {
			t.Errorf("the handles: %v, %v", twice.Err(), again.Err())
		}
	})
}

// Shutdown waits until what is held is released, and keeps it until then.
func TestShutdown(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const ttl = time.Second
		l, err := advisory.New(t.Context(), db.DB, lock.TTL(ttl))
		if err != nil {
			t.Fatal(err)
		}
		got := must(t, l, "last")
		done := make(chan error, 1)
		go func() { done <- l.Shutdown(t.Context()) }()
		eventually(t, "no new work is taken", func() bool {
			early, err := l.Acquire(t.Context(), "new", lock.Try())
			if err == nil { // Shutdown has not begun
				release(t, early)
			}
			return errors.Is(err, lock.ErrClosed)
		})
		time.Sleep(2 * ttl)
		if err := got.Err(); err != nil {
			t.Errorf("during Shutdown: %v", err)
		}
		select {
		case err := <-done:
			t.Fatalf("Shutdown did not wait: %v", err)
		default:
		}
		release(t, got)
		select {
		case err := <-done:
			if err != nil {
				t.Errorf("Shutdown: %v", err)
			}
		case <-time.After(30 * time.Second):
			t.Fatal("Shutdown does not end, though nothing is held")
		}

		l, err = advisory.New(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		got = must(t, l, "last")
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if err := l.Shutdown(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Shutdown whose ctx ends: %v", err)
		}
		if err := got.Err(); !errors.Is(err, lock.ErrReleased) {
			t.Errorf("after it: %v", err)
		}
	})
}

// Close ends within its bound when the server does not answer, and leaves nothing
// running: the connections are closed.
func TestCloseWithoutAServer(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		line := &dbtest.Line{}
		l, err := advisory.New(t.Context(), db.Wrap(line.Wrap))
		if err != nil {
			t.Fatal(err)
		}
		got := must(t, l, "silent")
		line.Set(dbtest.Paused)
		begun := time.Now()
		err = l.Close()
		if took := time.Since(begun); took > lock.ReleaseBound+5*time.Second {
			t.Errorf("it took %v", took)
		}
		t.Logf("Close: %v", err)
		if got.Err() == nil {
			t.Error("its holder was not told")
		}
		eventually(t, "no connection is out of the pool", func() bool { return out(db) == 0 })
		line.Set(dbtest.Whole)
		release(t, must(t, locker(t, db.DB), "silent", lock.Wait(20*time.Second)))
	})
}

// A ctx that ends while the server does not answer returns at once, whatever is under
// way: a try beside other locks, which stay trusted, or a release.
func TestSilenceAndCtx(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		for _, beside := range []bool{true, false} {
			line := &dbtest.Line{}
			l := locker(t, db.Wrap(line.Wrap), advisory.Connections(1))
			var kept *lock.Lock
			if beside {
				kept = must(t, l, "kept")
			} else {
				release(t, must(t, l, "warm"))
			}
			line.Set(dbtest.Paused)
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			begun := time.Now()
			got, err := l.Acquire(ctx, "try")
			cancel()
			if took := time.Since(begun); got != nil || !errors.Is(err, context.DeadlineExceeded) || took > 3*time.Second {
				t.Errorf("beside another lock %v: %v, %v after %v", beside, got, err, took)
			}
			line.Set(dbtest.Whole)
			if kept != nil {
				if err := kept.Err(); err != nil {
					t.Errorf("the other lock: %v", err)
				}
				release(t, kept)
			}
			release(t, must(t, l, "try", lock.Wait(20*time.Second)))
		}
	})
}
