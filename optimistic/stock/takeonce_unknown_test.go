package stock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// faulty is a driver of whose COMMITs the first few break: before they are applied, or
// after.
type faulty struct {
	sqldb.Driver
	applied bool
	left    *atomic.Int64
}

func (d faulty) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	tx, err := d.Driver.Begin(ctx, o)
	if err != nil {
		return nil, err
	}
	return faultyTx{tx, d}, nil
}

type faultyTx struct {
	sqldb.DriverTx
	d faulty
}

func (x faultyTx) Commit(ctx context.Context) error {
	if x.d.left.Add(-1) < 0 {
		return x.DriverTx.Commit(ctx)
	}
	if x.d.applied {
		if err := x.DriverTx.Commit(ctx); err != nil {
			return err
		}
	} else if err := x.DriverTx.Rollback(ctx); err != nil {
		return err
	}
	return io.ErrUnexpectedEOF
}

// A COMMIT without an answer is settled by the claim: one take, and the receipt of
// this very call, whether it was applied or not.
func TestTakeOnceUnknownOutcome(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := claimed(t, db, "10")
		left := int64(10)
		for _, applied := range []bool{true, false} {
			wrapped := db.Wrap(func(d sqldb.Driver) sqldb.Driver {
				var faults atomic.Int64
				faults.Store(1)
				return faulty{d, applied, &faults}
			})
			claim := fmt.Sprint("applied: ", applied)
			r, err := s.TakeOnce(t.Context(), wrapped, 10001, 1, claim)
			left--
			if err != nil || !r.Fresh || r.Left != left {
				t.Errorf("%s: %+v, %v", claim, r, err)
			}
			if again, err := s.TakeOnce(t.Context(), wrapped, 10001, 1, claim); err != nil || again.Fresh || again.Left != r.Left || !again.At.Equal(r.At) {
				t.Errorf("%s, again: %+v, %v", claim, again, err)
			}
		}
		// Nobody answers any more.
		broken := db.Wrap(func(d sqldb.Driver) sqldb.Driver {
			var faults atomic.Int64
			faults.Store(1000)
			return faulty{d, false, &faults}
		})
		_, err := s.TakeOnce(t.Context(), broken, 10001, 1, "broken")
		if err == nil || errors.Is(err, stock.ErrSoldOut) {
			t.Errorf("%v", err)
		}
		if n, _ := row(t, db); n != left {
			t.Errorf("%d left, want %d", n, left)
		}
		// The same of TakeAll, which has no identity, is left open.
		goods := open(t, db.DB, table)
		wrapped := db.Wrap(func(d sqldb.Driver) sqldb.Driver {
			var faults atomic.Int64
			faults.Store(1)
			return faulty{d, true, &faults}
		})
		_, err = goods.TakeAll(t.Context(), wrapped, []stock.Line{{10001, 1}})
		if !sqldb.Uncertain(err) || sqldb.Retryable(err) || !strings.Contains(err.Error(), "take 1 lines of t_bonus") {
			t.Errorf("TakeAll: %v", err)
		}
		if n, _ := row(t, db); n != left-1 {
			t.Errorf("%d left, want %d", n, left-1)
		}
	})
}

// between is a driver that calls after once, when a query has been answered.
type between struct {
	sqldb.Driver
	after func()
	once  *sync.Once
}

func (d between) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	rows, err := d.Driver.Query(ctx, query, args)
	if err != nil {
		return nil, err
	}
	return betweenRows{rows, d}, nil
}

type betweenRows struct {
	sqldb.DriverRows
	d between
}

func (r betweenRows) Close() error {
	err := r.DriverRows.Close()
	r.d.once.Do(r.d.after)
	return err
}

// Whoever repeats a claim while somebody else takes the last piece for that very claim
// is not told that all is gone, also where the row was sold out before: between the
// two reads with which a dry row is refused, the take is committed.
func TestTakeOnceDryRace(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		other := claimed(t, db, "0")
		var first stock.Receipt
		d := between{once: &sync.Once{}, after: func() {}}
		var handle *sqldb.DB
		racing := false
		handle = db.Wrap(func(inner sqldb.Driver) sqldb.Driver {
			d.Driver = inner
			d.after = func() {
				if !racing {
					return
				}
				var err error
				if first, err = other.TakeOnce(context.Background(), db.DB, 10001, 1, "user"); err != nil {
					t.Error(err)
				}
			}
			return d
		})
		s := open(t, db.DB, table)
		if _, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, "user"); !errors.Is(err, stock.ErrSoldOut) {
			t.Fatal(err) // and the row is known to be dry
		}
		db.MustExec(t, "UPDATE t_bonus SET left_count = 1")
		racing = true
		r, err := s.TakeOnce(t.Context(), handle, 10001, 1, "user")
		if err != nil || !first.Fresh || r != again(first) {
			t.Errorf("%+v, %v; the other has %+v", r, err, first)
		}
	})
}

// latecomer is a driver whose first COMMIT has no answer, and is applied when somebody
// waits for what it has locked.
type latecomer struct {
	sqldb.Driver
	first *sync.Once
	lost  func()
	await func()
	done  chan error
}

func (d latecomer) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	tx, err := d.Driver.Begin(ctx, o)
	if err != nil {
		return nil, err
	}
	return &lateTx{DriverTx: tx, d: d}, nil
}

type lateTx struct {
	sqldb.DriverTx
	d    latecomer
	lost bool
}

func (x *lateTx) Commit(ctx context.Context) error {
	x.d.first.Do(func() {
		x.lost = true
		x.d.lost()
		go func() {
			defer func() { x.d.done <- x.DriverTx.Commit(context.Background()) }()
			x.d.await()
		}()
	})
	if x.lost {
		return io.ErrUnexpectedEOF
	}
	return x.DriverTx.Commit(ctx)
}

func (x *lateTx) Rollback(ctx context.Context) error {
	if x.lost {
		return nil // the connection is gone
	}
	return x.DriverTx.Rollback(ctx)
}

// A COMMIT without an answer may still be on its way when the claim is looked for: to
// read would find nothing, and whoever has left by then would be told that nothing
// was taken.
func TestTakeOnceLateCommit(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := claimed(t, db, "10")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		handle := db.Wrap(func(d sqldb.Driver) sqldb.Driver {
			return latecomer{d, &sync.Once{}, cancel, func() { awaitWaiting(t, db, 1) }, done}
		})
		r, err := s.TakeOnce(ctx, handle, 10001, 1, "user")
		if cerr := <-done; cerr != nil {
			t.Fatal(cerr)
		}
		left, _ := row(t, db)
		if err != nil || !r.Fresh || r.Left != 9 || left != 9 {
			t.Errorf("%+v, %v: %d left", r, err, left)
		}
	})
}
