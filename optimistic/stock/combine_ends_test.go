package stock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// A trace that panics, or ends its goroutine, fails nobody else: the others have their
// answers, the next ones are served, and Close returns.
func TestCombineTraceEnds(t *testing.T) {
	ends := map[string]func(){"panic": func() { panic("the trace") }, "Goexit": runtime.Goexit}
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "0")
		breaking, b := breakableDB(db.DB)
		handle, g := newGate(breaking)
		for name, end := range ends {
			for _, fails := range []bool{false, true} {
				for size := 1; size < 4; size += 2 {
					db.MustExec(t, "UPDATE t_bonus SET left_count = 99")
					var mu sync.Mutex
					seen := 0
					c := combine(t, s, handle, stock.TraceCombine(&stock.CombineTrace{Batch: func(stock.Batch) {
						mu.Lock()
						seen++
						second := seen == 2
						mu.Unlock()
						if second {
							end()
						}
					}}))
					asks := make([]*ask, size)
					var wg sync.WaitGroup
					g.shut()
					wg.Go(func() { _, _ = c.Put(context.WithValue(context.Background(), frontKey{}, true), 10001, 1) })
					<-g.at
					for i := range asks {
						asks[i] = &ask{op: "take", n: 1}
						wg.Go(func() {
							defer func() { _ = recover() }()
							asks[i].do(c, 10001)
						})
						await(t, c, i+1)
					}
					if fails {
						b.arm(0, false, io.ErrUnexpectedEOF)
					}
					g.lift()
					wg.Wait()
					b.disarm()
					for _, a := range asks[1:] {
						if a.err != nil || a.left == 0 {
							t.Errorf("%s, %d, fails %v: %d, %v", name, size, fails, a.left, a.err)
						}
					}
					if _, err := c.Take(t.Context(), 10001, 1); err != nil {
						t.Errorf("%s: %v", name, err)
					}
					if err := c.Close(); err != nil { // or the test hangs here
						t.Error(err)
					}
				}
			}
		}
	})
}

// endsAt is a driver that ends the goroutine that asks for a connection.
type endsAt struct {
	sqldb.Driver
	armed *bool
}

func (d endsAt) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	if *d.armed {
		*d.armed = false
		runtime.Goexit()
	}
	return d.Driver.Conn(ctx)
}

// Whose goroutine ends while it sends the batch leaves the others Uncertain, and the row
// to the next.
func TestCombineSenderEnds(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "9")
		armed := false
		handle, g := newGate(db.Wrap(func(d sqldb.Driver) sqldb.Driver { return endsAt{d, &armed} }))
		c := combine(t, s, handle)
		asks := []*ask{{op: "take", n: 1}, {op: "take", n: 1}, {op: "take", n: 1}, {op: "put", n: 1}}
		wait := queue(t, c, g, asks)
		g.pulse()
		<-g.at
		armed = true
		g.lift()
		wait()
		for _, a := range asks[1:3] {
			if !sqldb.Uncertain(a.err) {
				t.Errorf("%v", a.err)
			}
		}
		if left, _ := row(t, db); left != 11 || asks[3].err != nil || asks[3].left != 11 {
			t.Errorf("%d left; %v", left, asks[3].err)
		}
		if err := c.Close(); err != nil { // or the test hangs here
			t.Error(err)
		}
	})
}

// A batch of one is told of too: with no wait for one that nobody was before.
func TestCombineTrace(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "9")
		handle, g := newGate(db.DB)
		var told []stock.Batch
		c := combine(t, s, handle, stock.TraceCombine(&stock.CombineTrace{Batch: func(b stock.Batch) { told = append(told, b) }}))
		last := func() stock.Batch { return told[len(told)-1] }
		for i, lone := range []struct {
			a      ask
			id     any
			served int
			fails  bool
		}{
			{ask{op: "take", n: 1}, 10001, 1, false},
			{ask{op: "take", n: 99}, 10001, 0, false},
			{ask{op: "once", n: 1, claim: "a"}, int8(1), 0, true}, // no such row
			{ask{op: "once", n: 1, claim: "a"}, uint16(10001), 1, false},
			{ask{op: "once", n: 1, claim: "a"}, 10001, 0, false},
			{ask{op: "once", n: 2, claim: "a"}, 10001, 0, false},
			{ask{op: "put", n: 1}, 10001, 1, false},
		} {
			lone.a.do(c, lone.id)
			if b := last(); len(told) != i+1 || b.Size != 1 || b.Served != lone.served || b.Waited != 0 || b.Took <= 0 || (b.Err != nil) != lone.fails || b.Alone != 0 {
				t.Errorf("%+v: %+v", lone, b)
			}
		}
		// Waited is that of the first, who has waited for longer than the last.
		asks := []*ask{{op: "take", n: 1}}
		wait := queue(t, c, g, asks)
		begun := time.Now()
		for time.Since(begun) < 5*time.Millisecond {
			runtime.Gosched()
		}
		var wg sync.WaitGroup
		wg.Go(func() { (&ask{op: "take", n: 50}).do(c, 10001) })
		await(t, c, 2)
		least := time.Since(begun)
		g.lift()
		wait()
		wg.Wait()
		if b := last(); b.Size != 2 || b.Served != 1 || b.Waited < least || b.Err != nil || b.ID != any(int64(10001)) {
			t.Errorf("%+v, and the first has waited for %v", b, least)
		}
		// One that waits alone has waited.
		asks = []*ask{{op: "put", n: 1}}
		wait = queue(t, c, g, asks)
		g.lift()
		wait()
		if b := last(); b.Size != 1 || b.Served != 1 || b.Waited <= 0 {
			t.Errorf("%+v", b)
		}
	})
}

// A text and bytes that spell alike are two ids, and never one queue.
func TestCombineIDs(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB, sqldb.SQLite}, func(t *testing.T, db *dbtest.DB) {
		claimed(t, db, "9")
		column := "VARBINARY(20)"
		if db.Kind() == sqldb.SQLite {
			column = "ANY"
		}
		db.MustExec(t, "CREATE TABLE coupon (id "+column+" PRIMARY KEY, n INT NOT NULL)")
		for _, id := range []any{"\x00a", []byte("a")} {
			mark := "INSERT INTO coupon VALUES (?, 100)"
			if _, err := db.Exec(t.Context(), mark, id); err != nil {
				t.Fatal(err)
			}
		}
		s := open(t, db.DB, stock.Table{Name: "coupon", ID: "id", Count: "n"})
		handle, g := newGate(db.DB)
		c := combine(t, s, handle)
		var wg sync.WaitGroup
		g.shut()
		for _, id := range []any{"\x00a", []byte("a")} {
			wg.Go(func() {
				if _, err := c.Take(context.Background(), id, 1); err != nil {
					t.Error(err)
				}
			})
		}
		for begun := time.Now(); c.Waiting() == 0 && len(g.at) < 2 && time.Since(begun) < time.Minute; runtime.Gosched() {
		}
		if c.Waiting() != 0 || c.Lines() != 2 {
			t.Errorf("%d wait at %d rows", c.Waiting(), c.Lines())
		}
		g.lift()
		wg.Wait()
		for _, id := range []any{"\x00a", []byte("a")} {
			if left, err := s.Left(t.Context(), db.DB, id); err != nil || left != 99 {
				t.Errorf("%q: %d, %v", id, left, err)
			}
		}
	})
}

// Whatever integers are the same number are one queue.
func TestCombineNumbers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "9")
		handle, g := newGate(db.DB)
		c := combine(t, s, handle)
		ids := []any{int(10001), int64(10001), uint16(10001), new(int)}
		*ids[3].(*int) = 10001
		var wg sync.WaitGroup
		g.shut()
		wg.Go(func() { _, _ = c.Put(context.Background(), int32(10001), 1) })
		<-g.at
		for i, id := range ids {
			wg.Go(func() {
				if _, err := c.Take(context.Background(), id, 1); err != nil {
					t.Error(err)
				}
			})
			await(t, c, i+1)
		}
		// Written as a text it is another queue, and on MySQL and MariaDB the same row.
		text := make(chan error, 1)
		go func() { _, err := c.Take(context.Background(), "10001", 1); text <- err }()
		<-g.at
		if c.Lines() != 2 {
			t.Errorf("%d lines", c.Lines())
		}
		g.lift()
		wg.Wait()
		want := int64(6)
		if err := <-text; err == nil {
			want--
		} else if db.Kind().InnoDB() || errors.Is(err, stock.ErrSoldOut) {
			t.Error(err)
		}
		if left, _ := row(t, db); left != want {
			t.Errorf("%d left, want %d", left, want)
		}
	})
}

// What a caller that nobody is before pays for Combine is no statement, and little memory.
func TestCombineLoneAllocations(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	s := claimed(t, db, "1000000")
	c := combine(t, s, db.DB)
	ctx := context.Background()
	measure := func(take func() error) float64 {
		return testing.AllocsPerRun(300, func() {
			if err := take(); err != nil {
				t.Error(err)
			}
		})
	}
	alone := measure(func() error { _, err := s.Take(ctx, db.DB, 10001, 1); return err })
	combined := measure(func() error { _, err := c.Take(ctx, 10001, 1); return err })
	if combined > alone+6 {
		t.Errorf("%v allocations, and %v without Combine", combined, alone)
	}
	t.Log(fmt.Sprint(combined, " allocations, and ", alone, " without Combine"))
}
