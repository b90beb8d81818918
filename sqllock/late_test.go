package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// slow is a driver whose answers to changing statements take a while, as many of them
// as left says.
type slow struct {
	sqldb.Driver
	left *atomic.Int64
	by   time.Duration
}

type slowConn struct {
	sqldb.DriverConn
	s slow
}

type slowTx struct {
	sqldb.DriverTx
	s slow
}

func (s slow) pause() {
	if s.left.Add(-1) >= 0 {
		time.Sleep(s.by)
	}
}

func (s slow) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := s.Driver.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return slowConn{c, s}, nil
}

func (c slowConn) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	tx, err := c.DriverConn.Begin(ctx, o)
	if err != nil {
		return nil, err
	}
	return slowTx{tx, c.s}, nil
}

func (c slowConn) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	defer c.s.pause()
	return c.DriverConn.Exec(ctx, query, args)
}

func (c slowConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	defer c.s.pause()
	return c.DriverConn.Query(ctx, query, args)
}

func (t slowTx) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	defer t.s.pause()
	return t.DriverTx.Query(ctx, query, args)
}

// A grant whose answer came later than its lease can be trusted was none: it is given
// back. Who waits tries again; a Try is told.
func TestAnswerIsLate(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		other := table(t, db)
		const ttl = 400 * time.Millisecond
		var left atomic.Int64
		l := locker(t, db.Wrap(func(d sqldb.Driver) sqldb.Driver { return slow{d, &left, ttl} }), lock.TTL(ttl), lock.NoRenew())
		first := must(t, other, "job")
		release(t, first)

		left.Store(1)
		_, err := l.Acquire(t.Context(), "job", lock.Try())
		if err == nil || errors.Is(err, lock.ErrHeld) || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "too late") {
			t.Errorf("a Try: %v", err)
		}
		release(t, must(t, other, "job", lock.Try()))

		left.Store(1)
		k, err := l.Acquire(t.Context(), "job", lock.Wait(30*time.Second))
		if err != nil {
			t.Fatal(err)
		}
		if left.Load() > 0 {
			t.Error("no answer was late: the test tests nothing")
		}
		_ = k.Release(t.Context())
	})
}
