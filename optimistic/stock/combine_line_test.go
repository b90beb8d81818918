package stock_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// queue has a caller in front, which the gate stops, and the asks behind it.
func queue(t testing.TB, c *stock.Combined, g *gate, asks []*ask) (wait func()) {
	t.Helper()
	var wg sync.WaitGroup
	g.shut()
	wg.Go(func() {
		if _, err := c.Put(context.Background(), 10001, 1); err != nil {
			t.Error(err)
		}
	})
	<-g.at
	for i, a := range asks {
		a.done = make(chan struct{})
		wg.Go(func() {
			defer close(a.done)
			a.do(c, 10001)
		})
		await(t, c, i+1)
	}
	return wg.Wait
}

// Who has not been sent leaves when its ctx ends, at once, and takes nothing; the
// others are served, also when it was the first of them.
func TestCombineLeave(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "10")
		handle, g := newGate(db.DB)
		c := combine(t, s, handle)
		for leaves := range 3 {
			db.MustExec(t, "UPDATE t_bonus SET left_count = 10")
			ctx, cancel := context.WithCancel(t.Context())
			asks := []*ask{{op: "take", n: 1}, {op: "once", n: 1, claim: fmt.Sprint(leaves)}, {op: "take", n: 1}}
			asks[leaves].ctx = ctx
			wait := queue(t, c, g, asks)
			cancel()
			<-asks[leaves].done
			if err := asks[leaves].err; !errors.Is(err, context.Canceled) || sqldb.Uncertain(err) {
				t.Errorf("%d left: %v", leaves, err)
			}
			g.lift()
			wait()
			for i, a := range asks {
				if i != leaves && a.err != nil {
					t.Errorf("%d left, %d: %v", leaves, i, a.err)
				}
			}
			if left, _ := row(t, db); left != 9 {
				t.Errorf("%d left: the row has %d", leaves, left)
			}
		}
		if _, err := c.Take(canceled(), 10001, 1); !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	})
}

func canceled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// lateCtx has ended for whoever looks, though nobody was told.
type lateCtx struct {
	context.Context
	ended atomic.Bool
}

func (c *lateCtx) Err() error {
	if c.ended.Load() {
		return context.Canceled
	}
	return c.Context.Err()
}

// The interleaving: the first of the queue is told to send the next batch, and before it
// wakes up, its ctx has ended. It hands that on, and takes nothing.
func TestCombineLeaveNominated(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "10")
		handle, g := newGate(db.DB)
		c := combine(t, s, handle)
		first, second := &lateCtx{Context: t.Context()}, &lateCtx{Context: t.Context()}
		asks := []*ask{{op: "take", n: 1, ctx: first}, {op: "take", n: 1, ctx: second}, {op: "take", n: 1}}
		wait := queue(t, c, g, asks)
		first.ended.Store(true)
		second.ended.Store(true)
		g.lift()
		wait()
		for _, a := range asks[:2] {
			if !errors.Is(a.err, context.Canceled) {
				t.Errorf("%v", a.err)
			}
		}
		if left, _ := row(t, db); left != 10 || asks[2].err != nil || c.Waiting() != 0 {
			t.Errorf("the row has %d; %v; %d wait", left, asks[2].err, c.Waiting())
		}
	})
}

// The first of a queue is told to send the next batch, and its ctx ends just then, again
// and again: somebody else is told, and nobody waits for ever.
func TestCombineLeaveAndLead(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	s := claimed(t, db, "100000")
	handle, g := newGate(db.DB)
	c := combine(t, s, handle)
	led, left := 0, 0
	for i := 0; i < 300 || (led == 0 || left == 0) && i < 10000; i++ {
		ctx, cancel := context.WithCancel(t.Context())
		asks := []*ask{{op: "take", n: 1, ctx: ctx}, {op: "take", n: 1, ctx: ctx}, {op: "take", n: 1}}
		wait := queue(t, c, g, asks)
		go cancel()
		g.lift()
		wait()
		if asks[2].err != nil {
			t.Fatal(asks[2].err)
		}
		for _, a := range asks[:2] {
			switch {
			case a.err == nil:
				led++
			case errors.Is(a.err, context.Canceled):
				left++
			default:
				t.Fatal(a.err)
			}
		}
		cancel()
	}
	if n, _ := row(t, db); n != int64(100000+(led+left)/2-led-(led+left)/2) {
		t.Errorf("the row has %d; %d were served, %d left", n, led, left)
	}
	t.Logf("%d were served, %d left", led, left)
}

// Who was sent gets its true answer, whatever becomes of its ctx; when nobody waits for
// it any more, the batch is ended.
func TestCombineSent(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "0")
		handle, g := newGate(db.DB)
		for _, op := range []string{"take", "once"} {
			for _, all := range []bool{false, true} {
				c := combine(t, s, handle)
				db.MustExec(t, "UPDATE t_bonus SET left_count = 9")
				ctx, cancel := context.WithCancel(t.Context())
				asks := []*ask{{op: op, n: 1, ctx: ctx}, {op: op, n: 1, ctx: ctx}, {op: op, n: 1}}
				for i, a := range asks {
					a.claim = fmt.Sprint(op, all, i)
				}
				if all {
					asks[2].ctx = ctx
				}
				wait := queue(t, c, g, asks)
				g.pulse()
				<-g.at // the batch is at the database
				cancel()
				if all {
					for _, a := range asks { // it is not let through, and ends
						<-a.done
						if !errors.Is(a.err, context.Canceled) || sqldb.Uncertain(a.err) {
							t.Errorf("%s: %v", op, a.err)
						}
					}
				}
				g.lift()
				wait()
				want := int64(7)
				if all {
					want = 10
				} else {
					for _, a := range asks {
						if a.err != nil {
							t.Errorf("%s: %v", op, a.err)
						}
					}
				}
				if left, _ := row(t, db); left != want {
					t.Errorf("%s, all %v: the row has %d, want %d", op, all, left, want)
				}
			}
		}
	})
}

// As many as may wait do, one more is refused, and nothing is taken for it.
func TestCombineBusy(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "9")
		handle, g := newGate(db.DB)
		c := combine(t, s, handle, stock.MaxWaiting(2), stock.MaxBatch(2))
		asks := []*ask{{op: "take", n: 1}, {op: "take", n: 1}}
		wait := queue(t, c, g, asks)
		if _, err := c.Take(t.Context(), 10001, 1); !errors.Is(err, stock.ErrBusy) {
			t.Errorf("%v", err)
		}
		g.lift()
		wait()
		if left, _ := row(t, db); left != 8 || asks[0].err != nil || asks[1].err != nil {
			t.Errorf("the row has %d; %v, %v", left, asks[0].err, asks[1].err)
		}
	})
}

// No batch is larger than the option says, and nobody is left out.
func TestCombineMaxBatch(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	s := claimed(t, db, "99")
	handle, g := newGate(db.DB)
	var sizes []int
	c := combine(t, s, handle, stock.MaxBatch(3), stock.TraceCombine(&stock.CombineTrace{Batch: func(b stock.Batch) { sizes = append(sizes, b.Size) }}))
	asks := make([]*ask, 8)
	for i := range asks {
		asks[i] = &ask{op: "take", n: 1}
	}
	together(t, c, g, 10001, asks)
	if fmt.Sprint(sizes) != "[1 3 3 2]" {
		t.Errorf("%v", sizes)
	}
	if left, version := row(t, db); left != 92 || version != 9 {
		t.Errorf("%d left, version %d", left, version)
	}
}

// Close serves those who wait, and refuses whoever comes.
func TestCombineClose(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "9")
		handle, g := newGate(db.DB)
		counted, n := dbtest.Count(handle)
		c := combine(t, s, counted)
		asks := []*ask{{op: "take", n: 1}, {op: "once", n: 1, claim: "a"}, {op: "once", n: 1, claim: "b"}}
		wait := queue(t, c, g, asks)
		closed := make(chan error, 2)
		for range cap(closed) {
			go func() { closed <- c.Close() }()
		}
		for {
			// Until Close has begun, it joins the queue; so with a ctx that has ended.
			if _, err := c.Take(canceled(), 10001, 1); errors.Is(err, stock.ErrClosed) {
				break
			}
		}
		select {
		case err := <-closed:
			t.Fatalf("Close did not wait: %v", err)
		default:
		}
		g.lift()
		wait()
		for range cap(closed) {
			if err := <-closed; err != nil {
				t.Error(err)
			}
		}
		for _, a := range asks {
			if a.err != nil {
				t.Error(a.err)
			}
		}
		if left, _ := row(t, db); left != 7 {
			t.Errorf("the row has %d", left)
		}
		if err := c.Close(); err != nil { // again
			t.Error(err)
		}
		n.Take()
		for _, op := range []string{"take", "put", "once"} {
			for _, id := range []any{10001, 404} {
				a := &ask{op: op, n: 1, claim: "c"}
				if a.do(c, id); !errors.Is(a.err, stock.ErrClosed) {
					t.Errorf("%s: %v", op, a.err)
				}
			}
		}
		if q := n.Take(); len(q) > 0 || c.Lines() != 0 {
			t.Errorf("statements ran: %q; %d lines", q, c.Lines())
		}
	})
}

// A row whose statement hangs does not hold up another.
func TestCombineRowsApart(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "100")
		db.MustExec(t, "INSERT INTO t_bonus (id, left_count) VALUES (10002, 100)")
		c := combine(t, s, db.DB)
		tx, err := db.SQL.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("UPDATE t_bonus SET left_count = left_count WHERE id = 10001"); err != nil {
			t.Fatal(err)
		}
		if _, err := tx.Exec("SELECT left_count FROM t_bonus WHERE id = 10001 FOR UPDATE"); err != nil {
			t.Fatal(err)
		}
		var hung, wg sync.WaitGroup
		for i := range 10 {
			hung.Go(func() {
				var err error
				if i%2 == 0 {
					_, err = c.Take(context.Background(), 10001, 1)
				} else {
					_, err = c.TakeOnce(context.Background(), 10001, 1, fmt.Sprint("hung", i))
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		await(t, c, 9)
		for i := range 50 {
			wg.Go(func() {
				if _, err := c.Take(t.Context(), 10002, 1); err != nil {
					t.Error(err)
				}
				if _, err := c.TakeOnce(t.Context(), 10002, 1, fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait() // or the test hangs here
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		hung.Wait()
		var sum int64
		if err := db.QueryRow(t.Context(), "SELECT SUM(left_count) FROM t_bonus").Scan(&sum); err != nil || sum != 90 {
			t.Errorf("%d left, %v", sum, err)
		}
	})
}

// What can't be right is refused before any statement.
func TestCombineInvalid(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	s := bonus(t, db, "9")
	for name, opt := range map[string]stock.CombineOption{"nil": nil, "batch": stock.MaxBatch(0), "waiting": stock.MaxWaiting(-1), "trace": stock.TraceCombine(nil)} {
		if _, err := s.Combine(db.DB, opt); !errors.Is(err, stock.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.Combine(nil); !errors.Is(err, stock.ErrInvalid) {
		t.Error(err)
	}
	counted, n := dbtest.Count(db.DB)
	c := combine(t, s, counted)
	ctx := t.Context()
	for name, f := range map[string]func() error{
		"n":      func() error { _, err := c.Take(ctx, 10001, 0); return err },
		"put":    func() error { _, err := c.Put(ctx, 10001, -1); return err },
		"id":     func() error { _, err := c.Take(ctx, nil, 1); return err },
		"time":   func() error { _, err := c.Take(ctx, time.Now(), 1); return err },
		"list":   func() error { _, err := c.Put(ctx, []int{1}, 1); return err },
		"map":    func() error { _, err := c.TakeOnce(ctx, map[int]int{}, 1, "a"); return err },
		"func":   func() error { _, err := c.Take(ctx, func() {}, 1); return err },
		"bytes":  func() error { _, err := c.Take(ctx, [16]byte{}, 1); return err },
		"claim":  func() error { _, err := c.TakeOnce(ctx, 10001, 1, ""); return err },
		"claim0": func() error { _, err := c.TakeOnce(ctx, 10001, 1, "a\x00b"); return err },
	} {
		if err := f(); !errors.Is(err, stock.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if q := n.Take(); len(q) > 0 {
		t.Errorf("statements ran: %q", q)
	}
	// Without the table of claims, that is said.
	if _, err := c.TakeOnce(ctx, 10001, 1, "a"); !errors.Is(err, stock.ErrNotMigrated) {
		t.Error(err)
	}
}
