package stock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// gate is a driver that lets nothing to the database while it is shut.
type gate struct {
	mu   sync.Mutex
	open chan struct{} // nil: it is open
	at   chan struct{} // one for everybody who comes to it while it is shut
}

type gatedPool struct {
	sqldb.Driver
	g *gate
}

func newGate(db *sqldb.DB) (*sqldb.DB, *gate) {
	g := &gate{at: make(chan struct{}, 1024)}
	return db.Wrap(func(d sqldb.Driver) sqldb.Driver { return gatedPool{d, g} }), g
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.open = make(chan struct{})
}

func (g *gate) lift() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
	g.open = nil
}

// pulse lets those pass who are at it, and nobody else.
func (g *gate) pulse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	close(g.open)
	g.open = make(chan struct{})
}

func (g *gate) pass(ctx context.Context) error {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	if open == nil {
		return nil
	}
	g.at <- struct{}{}
	select {
	case <-open:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (d gatedPool) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	if err := d.g.pass(ctx); err != nil {
		return nil, err
	}
	return d.Driver.Conn(ctx)
}

func (d gatedPool) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	if err := d.g.pass(ctx); err != nil {
		return nil, err
	}
	return d.Driver.Begin(ctx, o)
}

func combine(t testing.TB, s *stock.Stock, db *sqldb.DB, opts ...stock.CombineOption) *stock.Combined {
	t.Helper()
	c, err := s.Combine(db, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// await waits until so many are in the queues.
func await(t testing.TB, c *stock.Combined, waiting int) {
	t.Helper()
	for begun := time.Now(); c.Waiting() != waiting; runtime.Gosched() {
		if time.Since(begun) > time.Minute {
			t.Fatalf("%d wait, and not %d", c.Waiting(), waiting)
		}
	}
}

// ask is one caller of a script, and what it got.
type ask struct {
	op    string // "take", "put", "once"
	n     int64
	claim string
	ctx   context.Context
	done  chan struct{} // where the test waits for it

	left    int64
	receipt stock.Receipt
	err     error
}

func (a *ask) do(c *stock.Combined, id any) {
	ctx := a.ctx
	if ctx == nil {
		ctx = context.Background()
	}
	switch a.op {
	case "take":
		a.left, a.err = c.Take(ctx, id, a.n)
	case "put":
		a.left, a.err = c.Put(ctx, id, a.n)
	default:
		a.receipt, a.err = c.TakeOnce(ctx, id, a.n, a.claim)
		a.left = a.receipt.Left
	}
}

// together has all of the asks wait behind one that the gate stops, in their order, and
// then lets them go. The one in front puts 1 and leaves the row as it was but for that.
func together(t testing.TB, c *stock.Combined, g *gate, id any, asks []*ask) {
	t.Helper()
	var wg sync.WaitGroup
	g.shut()
	wg.Go(func() {
		if _, err := c.Put(context.WithValue(context.Background(), frontKey{}, true), id, 1); err != nil {
			t.Error(err)
		}
	})
	<-g.at
	for i, a := range asks {
		wg.Go(func() { a.do(c, id) })
		await(t, c, i+1)
	}
	g.lift()
	wg.Wait()
}

// model is what each of the asks has to get, if it were alone: the same by the plain
// calls, one after the other.
func model(left int64, strict bool, batch int, asks []*ask) (want []string, after, served int64) {
	claims := map[string]string{}
	blocked := ""
	for i, a := range asks {
		if i == 0 || (asks[i-1].op == "put") != (a.op == "put") || (asks[i-1].op == "once") != (a.op == "once") || batch > 0 && i%batch == 0 {
			blocked = ""
		}
		first, there := claims[a.claim]
		switch {
		case a.op == "put":
			left += a.n
			served++
			want = append(want, fmt.Sprint(left))
		case a.op == "once" && there:
			if !strings.HasPrefix(first, fmt.Sprint(a.n, " ")) {
				want = append(want, "mismatch")
			} else {
				want = append(want, first+" again")
			}
		case a.n > left || blocked != "":
			if strict {
				blocked = "yes"
			}
			want = append(want, fmt.Sprintf("short of %d: %d", a.n, left))
		default:
			left -= a.n
			served++
			want = append(want, fmt.Sprint(left))
			if a.op == "once" {
				claims[a.claim] = fmt.Sprint(a.n, " ", left)
				want[i] = claims[a.claim] + " fresh"
			}
		}
	}
	return want, left, served
}

func (a *ask) String() string {
	var short *stock.ShortError
	switch {
	case errors.As(a.err, &short):
		return fmt.Sprintf("short of %d: %d", short.Lines[0].Wanted, short.Lines[0].Left)
	case errors.Is(a.err, stock.ErrClaimMismatch):
		return "mismatch"
	case a.err != nil:
		return a.err.Error()
	case a.op == "once" && a.receipt.Fresh:
		return fmt.Sprint(a.receipt.N, " ", a.left, " fresh")
	case a.op == "once":
		return fmt.Sprint(a.receipt.N, " ", a.left, " again")
	}
	return fmt.Sprint(a.left)
}

// Everybody gets what he would have got alone, in the order in which they came, also
// what was left; the version goes up by one for everyone who was served.
func TestCombineOrder(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "0")
		handle, g := newGate(db.DB)
		for _, strict := range []bool{false, true} {
			var opts []stock.CombineOption
			if strict {
				opts = append(opts, stock.Strict())
			}
			c := combine(t, s, handle, opts...)
			takes := func(ns ...int64) (asks []*ask) {
				for _, n := range ns {
					asks = append(asks, &ask{op: "take", n: n})
				}
				return asks
			}
			claims := func(of ...string) (asks []*ask) {
				for _, x := range of {
					a := &ask{op: "once"}
					if _, err := fmt.Sscanf(x, "%d %s", &a.n, &a.claim); err != nil {
						t.Fatal(err)
					}
					a.claim += fmt.Sprint(strict, rand.Int64())
					asks = append(asks, a)
				}
				for i, a := range asks { // the same claim twice is one
					for j := range i {
						if strings.Fields(of[i])[1] == strings.Fields(of[j])[1] {
							a.claim = asks[j].claim
						}
					}
				}
				return asks
			}
			scripts := map[string]struct {
				left int64
				asks []*ask
			}{
				"all fit":               {100, takes(1, 2, 3, 4)},
				"one does not":          {10, takes(3, 9, 4, 2, 1, 1)},
				"none does":             {3, takes(4, 5, 6)},
				"nothing is left":       {0, takes(1, 1, 1)},
				"a small one behind":    {2, takes(1, 2, 1, 1)},
				"puts":                  {0, []*ask{{op: "put", n: 3}, {op: "put", n: 4}}},
				"a put between":         {2, []*ask{{op: "take", n: 2}, {op: "take", n: 1}, {op: "put", n: 3}, {op: "put", n: 1}, {op: "take", n: 4}, {op: "take", n: 1}}},
				"claims":                {100, claims("1 b", "2 a", "3 c")},
				"claims, one not":       {10, claims("3 z", "9 b", "4 a", "3 d", "2 c", "1 f")},
				"no claim":              {1, claims("2 a", "3 b", "2 c")},
				"no claim, no stock":    {0, claims("1 a", "1 b")},
				"the same claim":        {10, claims("1 a", "1 b", "1 a", "1 a", "1 b")},
				"the same claim, short": {1, claims("2 a", "1 b", "2 a", "1 c")},
				"takes and claims":      {10, append(append(takes(1, 2), claims("1 b", "1 a")...), takes(1, 20, 3)...)},
			}
			for name, script := range scripts {
				name = fmt.Sprint(name, ", strict ", strict)
				db.MustExec(t, fmt.Sprintf("UPDATE t_bonus SET left_count = %d, version = 0", script.left-1))
				together(t, c, g, 10001, script.asks)
				want, after, served := model(script.left, strict, 0, script.asks)
				for i, a := range script.asks {
					if a.String() != want[i] {
						t.Errorf("%s: %d, %s %d %s: %s, want %s", name, i, a.op, a.n, a.claim, a, want[i])
					}
				}
				if left, version := row(t, db); left != after || version != served+1 {
					t.Errorf("%s: %d left, want %d; version %d, want %d", name, left, after, version, served+1)
				}
				// Whoever comes again gets the same, also where nothing is left.
				var repeated []*ask
				for _, a := range script.asks {
					if a.op == "once" {
						repeated = append(repeated, &ask{op: "once", n: a.n, claim: a.claim})
					}
				}
				db.MustExec(t, "UPDATE t_bonus SET left_count = -1")
				together(t, c, g, 10001, repeated)
				fresh := map[string]stock.Receipt{}
				for _, a := range script.asks {
					if a.receipt.Fresh {
						fresh[a.claim] = a.receipt
					}
				}
				for _, a := range repeated {
					was, ok := fresh[a.claim]
					if r := a.receipt; ok && a.n == was.N && (a.err != nil || r.Fresh || r.Left != was.Left || !r.At.Equal(was.At)) || !ok && !errors.Is(a.err, stock.ErrSoldOut) {
						t.Errorf("%s: %s together again: %+v, %v, and it was %+v", name, a.claim, r, a.err, was)
					}
				}
				for _, a := range script.asks {
					if a.op != "once" || a.err != nil {
						continue
					}
					r, err := s.TakeOnce(t.Context(), db.DB, 10001, a.n, a.claim)
					if was := a.receipt; err != nil || r.Fresh || r.Left != was.Left || !r.At.Equal(was.At) || r.N != was.N || r.Claim != was.Claim {
						t.Errorf("%s: again %+v, %v, and it was %+v", name, r, err, a.receipt)
					}
				}
			}
		}
	})
}

// Whoever comes to a row that nobody is at goes by the very statements of a Stock.
func TestCombineLone(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "100")
		counted, n := dbtest.Count(db.DB)
		c := combine(t, s, counted)
		if _, err := s.TakeOnce(t.Context(), counted, 10001, 1, "first"); err != nil {
			t.Fatal(err)
		}
		n.Take()
		for name, f := range map[string][2]func() error{
			"take": {
				func() error { _, err := c.Take(t.Context(), 10001, 1); return err },
				func() error { _, err := s.Take(t.Context(), counted, 10001, 1); return err },
			},
			"put": {
				func() error { _, err := c.Put(t.Context(), 10001, 1); return err },
				func() error { _, err := s.Put(t.Context(), counted, 10001, 1); return err },
			},
			"once": {
				func() error { _, err := c.TakeOnce(t.Context(), 10001, 1, "a"); return err },
				func() error { _, err := s.TakeOnce(t.Context(), counted, 10001, 1, "b"); return err },
			},
		} {
			if err := f[0](); err != nil {
				t.Fatal(err)
			}
			ours := strings.Join(n.Take(), "\n")
			if err := f[1](); err != nil {
				t.Fatal(err)
			}
			// On MySQL and MariaDB it asks for its gate, and does not wait there.
			ours = strings.ReplaceAll(ours, " FOR UPDATE SKIP LOCKED", " FOR UPDATE")
			if alone := strings.Join(n.Take(), "\n"); ours != alone || ours == "" {
				t.Errorf("%s: %s\nand alone: %s", name, ours, alone)
			}
		}
	})
}

// A batch is as many statements as one caller needs, whatever its size.
func TestCombineStatements(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "100000")
		handle, g := newGate(db.DB)
		counted, n := dbtest.Count(handle)
		var batches []stock.Batch
		c := combine(t, s, counted, stock.TraceCombine(&stock.CombineTrace{Batch: func(b stock.Batch) { batches = append(batches, b) }}))
		if _, err := s.TakeOnce(t.Context(), counted, 10001, 1, "first"); err != nil {
			t.Fatal(err) // which opens the gates
		}
		for name, max := range map[string]int{"take": 1, "put": 1, "once": 4} {
			var asks []*ask
			for i := range 200 {
				asks = append(asks, &ask{op: name, n: 1, claim: fmt.Sprint(i)})
			}
			n.Take()
			together(t, c, g, 10001, asks)
			for _, a := range asks {
				if a.err != nil {
					t.Fatal(a.err)
				}
			}
			if name == "once" && db.Kind() == sqldb.Postgres {
				max = 1
			}
			if q := n.Take(); len(q)-1 > max {
				t.Errorf("%s: %d statements:\n%s", name, len(q)-1, strings.Join(q, "\n"))
			}
			b := batches[len(batches)-1]
			if b.Size != 200 || b.Served != 200 || b.Alone != 0 || b.Err != nil || b.Waited <= 0 || b.Took <= 0 || b.ID != int64(10001) {
				t.Errorf("%s: %+v", name, b)
			}
		}
	})
}

// Many at once, with little to take: nothing is oversold, and each number that is left
// is told once.
func TestCombineCrowd(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		const crowd, gifts = 512, 1500
		s := claimed(t, db, fmt.Sprint(gifts))
		c := combine(t, s, db.DB, stock.MaxBatch(100))
		var taken, refused atomic.Int64
		var seen [gifts]atomic.Bool
		var wg sync.WaitGroup
		for range crowd {
			wg.Go(func() {
				for range 4 {
					left, err := c.Take(t.Context(), 10001, 1)
					switch {
					case errors.Is(err, stock.ErrSoldOut):
						refused.Add(1)
					case err != nil:
						t.Error(err)
					default:
						taken.Add(1)
						if seen[left].Swap(true) {
							t.Errorf("%d was left twice", left)
						}
					}
				}
			})
		}
		wg.Wait()
		if left, version := row(t, db); left != 0 || version != gifts || taken.Load() != gifts || refused.Load() != crowd*4-gifts {
			t.Errorf("%d left, version %d, %d taken, %d refused", left, version, taken.Load(), refused.Load())
		}
		if c.Lines() != 0 || c.Waiting() != 0 {
			t.Errorf("%d lines are kept, %d wait", c.Lines(), c.Waiting())
		}
	})
}
