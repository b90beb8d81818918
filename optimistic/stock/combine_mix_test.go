package stock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// Many processes make the same claims, together and one after the other, each on its
// own row: one receipt of a claim is fresh, the others are equal to it and are not.
func TestCombineOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "1000")
		const claims = 60
		var mu sync.Mutex
		got := make([][]stock.Receipt, claims)
		var wg sync.WaitGroup
		for range 3 {
			other := db.Another(t)
			c := combine(t, open(t, other.DB, table), other.DB, stock.MaxBatch(40))
			for range 50 {
				wg.Go(func() {
					for _, k := range rand.Perm(claims)[:20] {
						r, err := c.TakeOnce(context.Background(), 10001, 1+int64(k%3), fmt.Sprint(`it's "`, k, `" \ {ü},`))
						if err != nil {
							t.Error(err)
							return
						}
						mu.Lock()
						got[k] = append(got[k], r)
						mu.Unlock()
					}
				})
			}
		}
		wg.Wait()
		want := int64(1000)
		lefts := map[int64]bool{}
		version := int64(0)
		for k, receipts := range got {
			if len(receipts) == 0 {
				continue
			}
			version++
			want -= 1 + int64(k%3)
			fresh := 0
			for _, r := range receipts {
				if r.Fresh {
					fresh++
				}
				first := receipts[0]
				if r.Left != first.Left || r.N != 1+int64(k%3) || r.Claim != first.Claim || !r.At.Equal(first.At) || r.At.IsZero() {
					t.Errorf("%+v and %+v", r, first)
				}
			}
			if fresh != 1 || lefts[receipts[0].Left] {
				t.Errorf("claim %d: %d are fresh, left %d", k, fresh, receipts[0].Left)
			}
			lefts[receipts[0].Left] = true
			r, err := s.TakeOnce(t.Context(), db.DB, 10001, 1+int64(k%3), receipts[0].Claim)
			if err != nil || r.Fresh || r.Left != receipts[0].Left || !r.At.Equal(receipts[0].At) {
				t.Errorf("alone: %+v, %v, and it was %+v", r, err, receipts[0])
			}
		}
		if left, v := row(t, db); left != want || v != version {
			t.Errorf("%d left, want %d; version %d, want %d", left, want, v, version)
		}
	})
}

// The receipts of a batch are thought of before the row is locked, and put right if
// somebody else has changed the row, or some of the claims were there.
func TestCombineReceipts(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "10")
		handle, g := newGate(db.DB)
		c := combine(t, s, handle)
		var there []stock.Receipt
		for _, claim := range []string{"b", "d"} {
			r, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, claim)
			if err != nil {
				t.Fatal(err)
			}
			there = append(there, r)
		}
		asks := []*ask{{op: "once", n: 1, claim: "d"}, {op: "once", n: 2, claim: "c"}, {op: "once", n: 1, claim: "b"}, {op: "once", n: 3, claim: "a"}}
		wait := queue(t, c, g, asks)
		g.pulse() // the one in front has seen 9
		<-g.at
		db.MustExec(t, "UPDATE t_bonus SET left_count = 100")
		g.lift()
		wait()
		for i, want := range []string{"1 8 again", "2 98 fresh", "1 9 again", "3 95 fresh"} {
			if a := asks[i]; a.String() != want {
				t.Errorf("%s: %s, want %s", a.claim, a, want)
			} else if r, err := s.TakeOnce(t.Context(), db.DB, 10001, a.n, a.claim); err != nil || r.Left != a.left || !r.At.Equal(a.receipt.At) {
				t.Errorf("%s: the table has %+v, %v, and it was told %+v", a.claim, r, err, a.receipt)
			}
		}
		if left, version := row(t, db); left != 95 || version != 5 {
			t.Errorf("%d left, version %d; %+v", left, version, there)
		}
		asks = []*ask{{op: "once", n: 1, claim: "y"}, {op: "once", n: 2, claim: "x"}}
		wait = queue(t, c, g, asks)
		g.pulse() // the one in front has seen 96
		<-g.at
		db.MustExec(t, "UPDATE t_bonus SET left_count = 50")
		g.lift()
		wait()
		if asks[0].String() != "1 49 fresh" || asks[1].String() != "2 47 fresh" {
			t.Errorf("%s; %s", asks[0], asks[1])
		}
		for _, a := range asks {
			if r, err := s.TakeOnce(t.Context(), db.DB, 10001, a.n, a.claim); err != nil || r.Left != a.left {
				t.Errorf("%s: the table has %+v, %v, and it was told %+v", a.claim, r, err, a.receipt)
			}
		}
	})
}

// With Strict, a claim that was made before blocks nobody, though what it once took would
// not fit any more.
func TestCombineStrictAgain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "5")
		handle, g := newGate(db.DB)
		c := combine(t, s, handle, stock.Strict())
		if _, err := s.TakeOnce(t.Context(), db.DB, 10001, 5, "large"); err != nil {
			t.Fatal(err)
		}
		asks := []*ask{{op: "once", n: 5, claim: "large"}, {op: "once", n: 1, claim: "small"}, {op: "once", n: 1, claim: "more"}}
		wait := queue(t, c, g, asks)
		if _, err := s.Take(t.Context(), db.DB, 10001, 5); !errors.Is(err, stock.ErrSoldOut) {
			t.Fatal(err) // from now on, the row is read first
		}
		g.lift() // and 1 is put
		wait()
		if asks[0].String() != "5 0 again" || asks[1].String() != "1 0 fresh" || asks[2].String() != "short of 1: 0" {
			t.Errorf("%s; %s; %s", asks[0], asks[1], asks[2])
		}
	})
}

// An id that is not written as the row has it finds the row's claims.
func TestCombineOtherID(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		claimed(t, db, "10")
		db.MustExec(t, "CREATE TABLE coupon (id VARCHAR(20) PRIMARY KEY, n INT NOT NULL)", "INSERT INTO coupon VALUES ('abc', 10)")
		s := open(t, db.DB, stock.Table{Name: "coupon", ID: "id", Count: "n"})
		handle, g := newGate(db.DB)
		c := combine(t, s, handle)
		if _, err := s.TakeOnce(t.Context(), db.DB, "abc", 1, "x"); err != nil {
			t.Fatal(err)
		}
		asks := []*ask{{op: "once", n: 1, claim: "x"}, {op: "once", n: 1, claim: "y"}, {op: "once", n: 1, claim: "z"}}
		together(t, c, g, "ABC", asks)
		if asks[0].String() != "1 9 again" || asks[1].String() != "1 9 fresh" || asks[2].String() != "1 8 fresh" {
			t.Errorf("%s; %s; %s", asks[0], asks[1], asks[2])
		}
		takes := []*ask{{op: "take", n: 1}, {op: "take", n: 9}, {op: "take", n: 2}}
		together(t, c, g, "ABC", takes)
		if takes[0].String() != "8" || takes[1].String() != "short of 9: 8" || takes[2].String() != "6" {
			t.Errorf("%s; %s; %s", takes[0], takes[1], takes[2])
		}
		if r, err := s.TakeOnce(t.Context(), db.DB, "abc", 1, "z"); err != nil || r.Fresh || r.Left != 8 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

// A refusal gives back first what has expired, as one that is alone does.
func TestCombineReclaims(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := shelf(t, db, 1)
		handle, g := newGate(db.DB)
		c := combine(t, s, handle)
		for _, op := range []string{"take", "once"} {
			db.MustExec(t, "UPDATE goods SET n = 10")
			hold := reserve(t, s, db.DB, stock.Line{ID: 1, N: 8})
			expire(t, db, hold)
			asks := []*ask{{op: op, n: 3, claim: "a"}, {op: op, n: 5, claim: "b"}, {op: op, n: 9, claim: "c"}, {op: op, n: 2, claim: "d"}}
			together(t, c, g, 1, asks) // and one more is put
			if asks[0].err != nil || asks[1].err != nil || !errors.Is(asks[2].err, stock.ErrSoldOut) || asks[3].err != nil {
				t.Errorf("%s: %v, %v, %v, %v", op, asks[0].err, asks[1].err, asks[2].err, asks[3].err)
			}
			if left, err := s.Left(t.Context(), db.DB, 1); err != nil || left != 1 {
				t.Errorf("%s: %d left, %v", op, left, err)
			}
		}
	})
}

// combineMix is a mix with claims that many make at once.
type combineMix struct {
	*mix
	c    *stock.Combined
	name string // in front of the claims

	// burns has some take without a claim, which whoever is killed would burn.
	burns bool
}

// burn takes or puts without a claim, and writes that into the ledger afterwards.
func (m *combineMix) burn(ctx context.Context) error {
	n := 1 + rand.Int64N(3)
	if rand.IntN(2) == 0 {
		if _, err := m.c.Take(ctx, 1+rand.IntN(mixRows), n); err != nil {
			return err
		}
		return m.sell(ctx, n, func(context.Context, *sqldb.Tx) error { return nil })
	}
	if _, err := m.c.Put(ctx, 1+rand.IntN(mixRows), n); err != nil {
		return err
	}
	return m.sell(ctx, -n, func(context.Context, *sqldb.Tx) error { return nil })
}

// mixClaims is how many claims all processes make, again and again.
const mixClaims = 400

func (m *combineMix) claim(ctx context.Context) (k int, r stock.Receipt, err error) {
	k = rand.IntN(mixClaims)
	if rand.IntN(8) == 0 {
		r, err = m.s.TakeOnce(ctx, m.db, 1+k%mixRows, 1+int64(k%2), fmt.Sprint(m.name, k))
	} else {
		r, err = m.c.TakeOnce(ctx, 1+k%mixRows, 1+int64(k%2), fmt.Sprint(m.name, k))
	}
	return k, r, err
}

// run lets goroutines claim, and a few do everything else, until the time is over.
func (m *combineMix) run(ctx context.Context, goroutines int, over func() bool, bad func(error)) (receipts, fresh []stock.Receipt) {
	var mu sync.Mutex
	var wg sync.WaitGroup
	wg.Go(func() { m.mix.run(ctx, 8, over, bad) })
	for range goroutines {
		wg.Go(func() {
			for !over() {
				if m.burns && rand.IntN(4) == 0 {
					if err := m.burn(ctx); err != nil && !errors.Is(err, stock.ErrSoldOut) {
						bad(err)
					}
					continue
				}
				ctx, cancel := ctx, context.CancelFunc(func() {})
				if rand.IntN(10) == 0 {
					ctx, cancel = context.WithTimeout(ctx, rand.N(20*time.Millisecond))
				}
				_, r, err := m.claim(ctx)
				ended := ctx.Err() != nil
				cancel()
				m.done.Add(1)
				switch {
				case err == nil:
					mu.Lock()
					receipts = append(receipts, r)
					if r.Fresh {
						fresh = append(fresh, r)
					}
					mu.Unlock()
				case errors.Is(err, stock.ErrSoldOut):
					m.short.Add(1)
				case ended && !sqldb.Uncertain(err):
				default:
					bad(err)
				}
			}
		})
	}
	wg.Wait()
	return receipts, fresh
}

// combineChild is a process of a mix, which is killed some time: kind, DSN, name.
func combineChild(args []string) int {
	return child(args, func(_ context.Context, db *sqldb.DB) (func(func(error)), error) {
		s, err := stock.New(db, goodsTable)
		if err != nil {
			return nil, err
		}
		c, err := s.Combine(db)
		m := &combineMix{mix: &mix{s: s, db: db, name: args[2]}, c: c, name: "all "}
		return func(bad func(error)) { m.run(context.Background(), 120, never, bad) }, err
	})
}

// Four processes, with 512 goroutines together, claim through their Combined from the
// same rows, beside everything else that a Stock does; three of them are killed (kill
// -9) and begun anew again and again, and connections are cut. At every moment the sums
// are what they were, and in the end each receipt that was told stands in the table,
// and each claim was fresh once at most.
func TestCombineKilled(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		mixed(t, db)
		ctx := context.Background()
		var largest atomic.Int64
		var receipts, fresh []stock.Receipt
		k := &killing{child: "combine", n: 3, lives: 700 * time.Millisecond, audit: audit, enough: func() bool { return largest.Load() > 1 }}
		k.run(t, db, func(handle *sqldb.DB) func(func() bool) {
			s := open(t, handle, goodsTable)
			c := combine(t, s, handle, stock.TraceCombine(&stock.CombineTrace{Batch: func(b stock.Batch) {
				for n := largest.Load(); int64(b.Size) > n && !largest.CompareAndSwap(n, int64(b.Size)); n = largest.Load() {
				}
			}}))
			m := &combineMix{mix: &mix{s: s, db: handle, name: "parent"}, c: c, name: "all "}
			return func(over func() bool) { receipts, fresh = m.run(ctx, 120, over, possible(t)) }
		})
		s := open(t, db.DB, goodsTable)
		once := map[string]bool{}
		for _, r := range fresh {
			if once[r.Claim] {
				t.Errorf("the claim %q was fresh twice", r.Claim)
			}
			once[r.Claim] = true
		}
		told := map[string]stock.Receipt{}
		for _, r := range receipts {
			if first, ok := told[r.Claim]; ok && (first.Left != r.Left || !first.At.Equal(r.At)) {
				t.Errorf("%+v, and %+v", r, first)
			}
			told[r.Claim] = r
		}
		for claim, r := range told {
			var k int
			if _, err := fmt.Sscanf(claim, "all %d", &k); err != nil {
				t.Fatal(err)
			}
			again, err := s.TakeOnce(ctx, db.DB, 1+k%mixRows, r.N, claim)
			if err != nil || again.Fresh || again.Left != r.Left || !again.At.Equal(r.At) {
				t.Errorf("the table has %+v, %v, and it was told %+v", again, err, r)
			}
		}
		if len(told) == 0 || len(fresh) == 0 {
			t.Errorf("%d claims, %d fresh: the test has shown nothing", len(told), len(fresh))
		}
		t.Logf("%d claims told, %d fresh, %d to a batch at most", len(told), len(fresh), largest.Load())
	})
}

// Batches of three programs and all that a Stock does, with claims that nobody else
// makes: no deadlock, since all of them lock claims, then reservations, then rows, each
// sorted.
func TestCombineNoDeadlock(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		mixed(t, db)
		handle, d := countedDeadlocks(t, db)
		s := open(t, handle, goodsTable)
		until := time.Now().Add(loadTime(2*time.Second, 10*time.Second))
		var wg sync.WaitGroup
		var served atomic.Int64
		for i := range 3 {
			m := &combineMix{mix: &mix{s: s, db: handle}, c: combine(t, s, handle), name: fmt.Sprint(i, " "), burns: true}
			wg.Go(func() {
				r, _ := m.run(context.Background(), 60, by(until), func(err error) { t.Error(err) })
				served.Add(int64(len(r)))
			})
		}
		wg.Wait()
		if err := audit(t.Context(), db.DB); err != nil {
			t.Error(err)
		}
		if served.Load() == 0 {
			t.Error("no claim was answered: the test has shown nothing")
		}
		if len(d.victims) != 0 {
			t.Errorf("%d deadlocks: %.2000q", len(d.victims), d.victims)
		}
		t.Logf("%d claims answered, %d passed over", served.Load(), d.passed)
	})
}
