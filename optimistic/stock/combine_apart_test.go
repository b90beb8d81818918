package stock_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// refuseBad has the table of claims take no claim that begins with bad.
func refuseBad(t testing.TB, db *dbtest.DB) {
	t.Helper()
	table := db.Table("claims")
	if db.Kind() == sqldb.SQLite {
		db.MustExec(t, "CREATE TRIGGER no_bad BEFORE INSERT ON "+table+" WHEN NEW.claim LIKE 'bad%' BEGIN SELECT RAISE(ABORT, 'bad'); END")
	} else {
		db.MustExec(t, "ALTER TABLE "+table+" ADD CONSTRAINT no_bad CHECK (claim NOT LIKE 'bad%')")
	}
}

// One that is bad fails alone, wherever it stands, and costs few statements; everybody
// else is served in the order of arrival, and the version says how many.
func TestCombineApartClaims(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "0")
		refuseBad(t, db)
		handle, g := newGate(db.DB)
		counted, n := dbtest.Count(handle)
		var told []stock.Batch
		c := combine(t, s, counted, stock.TraceCombine(&stock.CombineTrace{Batch: func(b stock.Batch) { told = append(told, b) }}))
		const size = 64
		for run, bad := range [][]int{{0}, {31}, {size - 1}, {3, 4, 50}} {
			db.MustExec(t, "UPDATE t_bonus SET left_count = 999, version = 0")
			asks := make([]*ask, size)
			for i := range asks {
				asks[i] = &ask{op: "once", n: 1 + int64(i%3), claim: fmt.Sprint(run, " ", (i*37)%size)}
			}
			asks[40].claim, asks[40].n = asks[20].claim, asks[20].n // twice the same
			for _, i := range bad {
				asks[i].claim = fmt.Sprint("bad", i)
			}
			told = nil
			n.Take()
			together(t, c, g, 10001, asks)
			statements := len(n.Take())
			left, served := int64(1000), int64(0)
			for i, a := range asks {
				switch isBad := strings.HasPrefix(a.claim, "bad"); {
				case isBad && (a.err == nil || sqldb.Uncertain(a.err)):
					t.Errorf("%v are bad, %d: %v", bad, i, a.err)
				case isBad:
				case i == 40:
					if want := asks[20].receipt; a.receipt.Fresh || a.receipt.Left != want.Left || !a.receipt.At.Equal(want.At) {
						t.Errorf("%v are bad: again: %+v, and it was %+v", bad, a.receipt, want)
					}
				default:
					left -= a.n
					served++
					if a.err != nil || a.left != left || !a.receipt.Fresh {
						t.Errorf("%v are bad, %d: %+v, %v; %d were left", bad, i, a.receipt, a.err, left)
					}
				}
			}
			if now, version := row(t, db); now != left || version != served+1 {
				t.Errorf("%v are bad: %d left, want %d; version %d, want %d", bad, now, left, version, served+1)
			}
			// Halving 64 for one is 6 transactions that fail, and 6 that do not, of 5 statements.
			if statements > 70*len(bad) {
				t.Errorf("%v are bad: %d statements", bad, statements)
			}
			if b := told[len(told)-1]; b.Size != size || int64(b.Served) != served || b.Err == nil || b.Alone < len(bad) || b.Alone > 4*len(bad) {
				t.Errorf("%v are bad: %+v", bad, b)
			}
		}
		// Where all are bad, each is told so.
		asks := make([]*ask, 80)
		for i := range asks {
			asks[i] = &ask{op: "once", n: 1, claim: fmt.Sprint("bad", i)}
		}
		n.Take()
		together(t, c, g, 10001, asks)
		for _, a := range asks {
			if a.err == nil || sqldb.Uncertain(a.err) {
				t.Errorf("%q: %v", a.claim, a.err)
			}
		}
		if q := len(n.Take()); q > 2*(len(asks)+64)+10 {
			t.Errorf("%d statements, where all of %d are bad", q, len(asks))
		}
	})
}

// Puts whose sum does not fit are served in their order, as far as each fits.
func TestCombineApartPuts(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "0")
		handle, g := newGate(db.DB)
		c := combine(t, s, handle)
		most := int64(math.MaxInt32)
		if db.Kind() == sqldb.SQLite {
			most = math.MaxInt64
		}
		for _, ns := range [][]int64{{60, 60, 40}, {60, 40, 1, 1}, {101, 1, 99, 1}, {50, 51, 49, 2, 1}, {200, 100}, {30, 30, 30, 30, 10, 1}} {
			left := most - 100
			db.MustExec(t, fmt.Sprintf("UPDATE t_bonus SET left_count = %d, version = 0", left-1))
			var asks []*ask
			for _, n := range ns {
				asks = append(asks, &ask{op: "put", n: n})
			}
			together(t, c, g, 10001, asks)
			served := int64(0)
			for i, a := range asks {
				if a.n > most-left {
					if !errors.Is(a.err, stock.ErrOverflow) {
						t.Errorf("%v, %d: %d, %v", ns, i, a.left, a.err)
					}
					continue
				}
				left += a.n
				served++
				if a.err != nil || a.left != left {
					t.Errorf("%v, %d: %d, %v; there were %d", ns, i, a.left, a.err, left)
				}
			}
			if now, version := row(t, db); now != left || version != served+1 {
				t.Errorf("%v: %d left, want %d; version %d, want %d", ns, now, left, version, served+1)
			}
		}
	})
}

// With Strict, one that does not fit blocks those behind it also where the batch falls
// apart between them; but for a claim that was made before.
func TestCombineApartStrict(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "10")
		refuseBad(t, db)
		handle, g := newGate(db.DB)
		for _, strict := range []bool{true, false} {
			opts := []stock.CombineOption{stock.Strict()}
			if !strict {
				opts = nil
			}
			c := combine(t, s, handle, opts...)
			db.MustExec(t, "UPDATE t_bonus SET left_count = 10")
			made := fmt.Sprint("made ", strict)
			if _, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, made); err != nil {
				t.Fatal(err)
			}
			db.MustExec(t, "UPDATE t_bonus SET left_count = 4")
			asks := []*ask{
				{op: "once", n: 1, claim: "bad"},
				{op: "once", n: 9, claim: "large"},
				{op: "once", n: 1, claim: fmt.Sprint("small ", strict)},
				{op: "once", n: 1, claim: made},
				{op: "once", n: 2, claim: fmt.Sprint("more ", strict)},
			}
			together(t, c, g, 10001, asks)
			want := []string{"short of 9: 5", "1 4 fresh", "1 9 again", "2 2 fresh"}
			if strict {
				want = []string{"short of 9: 5", "short of 1: 5", "1 9 again", "short of 2: 5"}
			}
			for i, a := range asks[1:] {
				if a.String() != want[i] {
					t.Errorf("strict %v, %s: %s, want %s", strict, a.claim, a, want[i])
				}
			}
			if asks[0].err == nil {
				t.Error("the bad one was served")
			}
			// Where several are refused together, those of the next part are with them.
			db.MustExec(t, "UPDATE t_bonus SET left_count = 4")
			asks = []*ask{{op: "once", n: 1, claim: "bad"}}
			for i, n := range []int64{1, 9, 1, 1, 1, 1, 1} {
				asks = append(asks, &ask{op: "once", n: n, claim: fmt.Sprint(strict, " ", i)})
			}
			together(t, c, g, 10001, asks)
			want = []string{"1 4 fresh", "short of 9: 4", "1 3 fresh", "1 2 fresh", "1 1 fresh", "1 0 fresh", "short of 1: 0"}
			if strict {
				want = append(want[:2:2], "short of 1: 4", "short of 1: 4", "short of 1: 4", "short of 1: 4", "short of 1: 4")
			}
			for i, a := range asks[1:] {
				if a.String() != want[i] {
					t.Errorf("strict %v, %s: %s, want %s", strict, a.claim, a, want[i])
				}
			}
		}
	})
}

// Strict blocks within a batch: not the next one, not what rides apart, and not who
// comes while the batch is under way.
func TestCombineStrictBatches(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "0")
		handle, g := newGate(db.DB)
		c := combine(t, s, handle, stock.Strict(), stock.MaxBatch(3))
		for name, asks := range map[string][]*ask{
			"the next batch": {{op: "take", n: 9}, {op: "take", n: 1}, {op: "take", n: 1}, {op: "take", n: 1}, {op: "take", n: 1}},
			"apart":          {{op: "take", n: 1}, {op: "take", n: 9}, {op: "once", n: 1, claim: "a"}, {op: "once", n: 2, claim: "b"}, {op: "once", n: 1, claim: "c"}, {op: "take", n: 1}},
			"behind a put":   {{op: "take", n: 9}, {op: "take", n: 1}, {op: "put", n: 1}, {op: "take", n: 2}},
		} {
			db.MustExec(t, "UPDATE t_bonus SET left_count = 2, version = 0") // and one is put
			together(t, c, g, 10001, asks)
			for i, want := range map[string][]string{
				"the next batch": {"short of 9: 3", "short of 1: 3", "short of 1: 3", "2", "1"},
				"apart":          {"2", "short of 9: 2", "1 1 fresh", "short of 2: 1", "short of 1: 1", "0"},
				"behind a put":   {"short of 9: 3", "short of 1: 3", "4", "2"},
			}[name] {
				if asks[i].String() != want {
					t.Errorf("%s, %d: %s, want %s", name, i, asks[i], want)
				}
			}
		}
		db.MustExec(t, "UPDATE t_bonus SET left_count = 2")
		asks := []*ask{{op: "take", n: 9}, {op: "take", n: 1}}
		wait := queue(t, c, g, asks)
		g.pulse()
		<-g.at // the batch is at the database
		late := &ask{op: "take", n: 1}
		var wg sync.WaitGroup
		wg.Go(func() { late.do(c, 10001) })
		await(t, c, 1)
		g.lift()
		wait()
		wg.Wait()
		if asks[1].String() != "short of 1: 3" || late.String() != "2" {
			t.Errorf("%s; and later %s", asks[1], late)
		}
	})
}

// Where the server cannot be had, each tries it alone, so many at a time, under its own
// ctx; they count among those who wait.
func TestCombineApartServer(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "100")
		breaking, b := breakableDB(db.DB)
		handle, g := newGate(breaking)
		const crowd = 40
		var told stock.Batch
		c := combine(t, s, handle, stock.MaxWaiting(crowd), stock.TraceCombine(&stock.CombineTrace{Batch: func(b stock.Batch) {
			if b.Size > 1 {
				told = b
			}
		}}))
		ctx, cancel := context.WithCancel(t.Context())
		asks := make([]*ask, crowd)
		for i := range asks {
			asks[i] = &ask{op: "take", n: 1, ctx: ctx}
		}
		wait := queue(t, c, g, asks)
		g.pulse()
		<-g.at
		b.arm(0, false, io.ErrUnexpectedEOF)
		g.pulse() // the batch gets no connection
		for range 16 {
			<-g.at
		}
		select {
		case <-g.at:
			t.Error("more than 16 are sent at the same time")
		case <-time.After(200 * time.Millisecond):
		}
		var next ask
		var wg sync.WaitGroup
		wg.Go(func() { next = ask{op: "take", n: 1}; next.do(c, 10001) })
		<-g.at // one that nobody is before
		if _, err := c.Take(t.Context(), 10001, 1); !errors.Is(err, stock.ErrBusy) {
			t.Errorf("%d are alone, and one more waits: %v", crowd, err)
		}
		cancel()
		for _, a := range asks {
			<-a.done
			if !errors.Is(a.err, context.Canceled) || sqldb.Uncertain(a.err) {
				t.Errorf("%v", a.err)
			}
		}
		g.lift()
		wait()
		wg.Wait()
		if told.Alone != crowd || told.Served != 0 || told.Err == nil {
			t.Errorf("%+v", told)
		}
		if left, _ := row(t, db); left != 100 || next.err != nil { // one was put, one taken
			t.Errorf("%d left, %v", left, next.err)
		}
		// Without an end of ctx, all of them are served.
		asks = make([]*ask, crowd)
		for i := range asks {
			asks[i] = &ask{op: "take", n: 1}
		}
		b.arm(0, false, io.ErrUnexpectedEOF)
		together(t, c, g, 10001, asks)
		for _, a := range asks {
			if a.err != nil {
				t.Error(a.err)
			}
		}
		if left, _ := row(t, db); left != 101-crowd || told.Alone != crowd {
			t.Errorf("%d left; %+v", left, told)
		}
	})
}

// A batch has its time. Then one whose ctx has ended returns, and nothing was taken for
// it; the others try it alone.
func TestCombineBound(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "100")
		handle, g := newGate(db.DB)
		for _, op := range []string{"take", "once"} {
			c := combine(t, s, handle)
			c.SetBound(100 * time.Millisecond)
			db.MustExec(t, "UPDATE t_bonus SET left_count = 99")
			ctx, cancel := context.WithCancel(t.Context())
			asks := []*ask{{op: op, n: 1, claim: op + "a"}, {op: op, n: 1, claim: op + "b", ctx: ctx}, {op: op, n: 1, claim: op + "c"}}
			wait := queue(t, c, g, asks)
			g.pulse()
			<-g.at
			tx, err := db.SQL.Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec("UPDATE t_bonus SET version = 7 WHERE id = 10001"); err != nil {
				t.Fatal(err)
			}
			g.lift()
			cancel()
			select {
			case <-asks[1].done:
			case <-time.After(20 * time.Second): // less than the bound that it has without SetBound
				t.Errorf("%s: it waits for the others, and they for the row", op)
			}
			if err := asks[1].err; !errors.Is(err, context.Canceled) || sqldb.Uncertain(err) {
				t.Errorf("%s: %v", op, err)
			}
			if err := tx.Commit(); err != nil {
				t.Fatal(err)
			}
			wait()
			if left, version := row(t, db); left != 98 || version != 9 || asks[0].err != nil || asks[2].err != nil {
				t.Errorf("%s: %d left, version %d; %v, %v", op, left, version, asks[0].err, asks[2].err)
			}
		}
	})
}

// A claim that is there has its receipt, whatever becomes of the rest of its batch: also
// when the row is gone.
func TestCombineOldClaimOfARowThatIsGone(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "9")
		if _, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, "old"); err != nil {
			t.Fatal(err)
		}
		handle, g := newGate(db.DB)
		asks := []*ask{{op: "once", n: 1, claim: "old"}, {op: "once", n: 1, claim: "new"}}
		wait := queue(t, combine(t, s, handle), g, asks)
		g.pulse()
		<-g.at // the batch
		db.MustExec(t, "DELETE FROM t_bonus")
		g.lift()
		wait()
		if a := asks[0]; a.err != nil || a.receipt.Fresh || a.receipt.Left != 8 {
			t.Errorf("%+v, %v", a.receipt, a.err)
		}
		if a := asks[1]; !errors.Is(a.err, stock.ErrNotFound) {
			t.Errorf("%+v, %v", a.receipt, a.err)
		}
	})
}
