package stock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// likeClaim copies a claim under another name, as somebody would make it who takes nothing.
func likeClaim(db *dbtest.DB, of, name string) string {
	table := db.Table("claims")
	as := "'" + name + "'"
	if db.Kind().InnoDB() {
		as = fmt.Sprintf("X'%x'", name)
	}
	return "INSERT INTO " + table + " (stock, id, claim, owner, n, left_after, created_at) SELECT stock, id, " + as + ", owner, n, left_after, created_at FROM " + table + " WHERE " + claimIs(db, of)
}

// A batch locks its claims sorted, whatever the order in which they came, and then the
// row: while it waits for the first of them, the others and the row are free.
func TestCombineLockOrder(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "9")
		handle, g := newGate(db.DB)
		if _, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, "model"); err != nil {
			t.Fatal(err)
		}
		for _, atOnce := range []bool{true, false} { // what is left is known, or not
			c := combine(t, s, handle)
			name := func(claim string) string { return fmt.Sprint(claim, atOnce) }
			asks := []*ask{{op: "once", n: 1, claim: name("z")}, {op: "once", n: 1, claim: name("a")}, {op: "once", n: 1, claim: name("m")}}
			var front sync.WaitGroup
			g.shut()
			front.Go(func() {
				if atOnce {
					_, _ = c.Put(context.Background(), 10001, 1)
				} else {
					_, _ = c.Take(context.Background(), 10001, 1000)
				}
			})
			<-g.at
			for i, a := range asks {
				a.done = make(chan struct{})
				go func() {
					defer close(a.done)
					a.do(c, 10001)
				}()
				await(t, c, i+1)
			}
			first, err := db.SQL.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelReadCommitted})
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = first.Rollback() }()
			if _, err := first.Exec(likeClaim(db, "model", name("a"))); err != nil {
				t.Fatal(err)
			}
			g.lift()
			front.Wait()
			awaitWaiting(t, db, 1)
			conn, err := db.Another(t).SQL.Conn(t.Context()) // what is set in it is set in no session of db's
			if err != nil {
				t.Fatal(err)
			}
			impatient, level := "SET SESSION innodb_lock_wait_timeout = 1", "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED"
			if db.Kind() == sqldb.Postgres {
				impatient, level = "SET lock_timeout = '1s'", "SELECT 1"
			}
			for _, query := range []string{impatient, level, "BEGIN", "SELECT 1 FROM t_bonus WHERE id = 10001 FOR UPDATE", "ROLLBACK", "BEGIN", likeClaim(db, "model", name("m")), likeClaim(db, "model", name("z")), "ROLLBACK"} {
				if _, err := conn.ExecContext(t.Context(), query); err != nil {
					t.Errorf("at once %v: %s: %v", atOnce, query, err)
				}
			}
			_ = conn.Close()
			if err := first.Rollback(); err != nil {
				t.Fatal(err)
			}
			for _, a := range asks {
				if <-a.done; a.err != nil || !a.receipt.Fresh {
					t.Errorf("%+v, %v", a.receipt, a.err)
				}
			}
		}
	})
}

// sameGate returns claims of 10002 that have the gate of a claim of 10001.
func sameGate(n int, of string) (claims []string) {
	for i := 0; len(claims) < n; i++ {
		if stock.Gate("10002", fmt.Sprint(i)) == stock.Gate("10001", of) {
			claims = append(claims, fmt.Sprint(i))
		}
	}
	return claims
}

// The interleaving: a batch gets no connection, its members try it alone, and their gate
// is taken. What became of the batch says nothing of what becomes of them then.
func TestCombineGatesAfterABatch(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "9")
		db.MustExec(t, "INSERT INTO t_bonus (id, left_count) VALUES (10002, 9)")
		breaking, b := breakableDB(db.DB)
		handle, g := newGate(breaking)
		alone := 0
		c := combine(t, s, handle, stock.TraceCombine(&stock.CombineTrace{Batch: func(b stock.Batch) { alone += b.Alone }}))
		if _, err := c.TakeOnce(t.Context(), 10001, 1, "first"); err != nil {
			t.Fatal(err) // which makes the gates
		}
		tx := begin(t, db, "read committed")
		if _, err := s.TakeOnce(t.Context(), tx.tx, 10001, 1, "held"); err != nil {
			t.Fatal(err)
		}
		var asks []*ask
		for _, claim := range sameGate(4, "held") {
			asks = append(asks, &ask{op: "once", n: 1, claim: claim})
		}
		tooMuch := asks[3]
		tooMuch.n = 99
		b.arm(0, false, io.ErrUnexpectedEOF)
		together(t, c, g, 10002, asks)
		for _, a := range asks[:3] {
			if a.err != nil || !a.receipt.Fresh || a.receipt.Claim != a.claim || a.receipt.N != 1 {
				t.Errorf("claim %q: %+v, %v", a.claim, a.receipt, a.err)
			}
		}
		if !errors.Is(tooMuch.err, stock.ErrSoldOut) {
			t.Errorf("99 of 10: %+v, %v", tooMuch.receipt, tooMuch.err)
		}
		var left, claims int
		err := db.QueryRow(t.Context(), "SELECT left_count, (SELECT COUNT(*) FROM "+db.Table("claims")+" WHERE id = '10002') FROM t_bonus WHERE id = 10002").Scan(&left, &claims)
		if err != nil || left != 7 || claims != 3 || alone != 4 { // one was put by together
			t.Errorf("%d left, %d claims, %d tried alone, %v", left, claims, alone, err)
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
	})
}

// A claim of another row that has the same gate is under way, in a transaction that goes
// on: it does not hold up one that goes alone through a Combined. The same claim does.
func TestCombineGates(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "9")
		db.MustExec(t, "INSERT INTO t_bonus (id, left_count) VALUES (10002, 9)")
		if _, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, "first"); err != nil {
			t.Fatal(err) // which makes the gates
		}
		same := sameGate(2, "held")
		tx := begin(t, db, "read committed")
		if _, err := s.TakeOnce(t.Context(), tx.tx, 10001, 1, "held"); err != nil {
			t.Fatal(err)
		}
		counting, counter := dbtest.Count(db.DB)
		c := combine(t, s, counting)
		soon, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if _, err := c.TakeOnce(soon, 10002, 1, "another"); err != nil {
			t.Fatal(err)
		}
		counter.Take()
		for _, claim := range []string{same[0], "yet another"} {
			if r, err := c.TakeOnce(soon, 10002, 1, claim); err != nil || !r.Fresh {
				t.Errorf("%+v, %v", r, err)
			}
		}
		for _, query := range counter.Take() { // one that is taken is no reason to look for all of them
			if strings.Contains(query, "owner = ''") {
				t.Errorf("the gates are counted: %s", query)
			}
		}
		if r, err := c.TakeOnce(soon, 10002, 1, same[0]); err != nil || r.Fresh || r.Left != 7 {
			t.Errorf("again: %+v, %v", r, err)
		}
		if _, err := c.TakeOnce(soon, 10002, 99, same[1]); !errors.Is(err, stock.ErrSoldOut) {
			t.Errorf("%v", err)
		}
		// The control: without Combine it waits.
		ctx, stop := context.WithTimeout(t.Context(), 200*time.Millisecond)
		defer stop()
		if _, err := s.TakeOnce(ctx, db.DB, 10002, 1, same[1]); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		held := make(chan stock.Receipt, 1)
		go func() {
			r, err := c.TakeOnce(context.Background(), 10001, 1, "held")
			if err != nil {
				t.Error(err)
			}
			held <- r
		}()
		awaitWaiting(t, db, 1)
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		if r := <-held; r.Fresh || r.Left != 7 {
			t.Errorf("%+v", r)
		}
		// Who has emptied the table has taken the gates along: they are made again.
		db.MustExec(t, "DELETE FROM "+db.Table("claims"))
		for i := range 3 {
			if r, err := c.TakeOnce(t.Context(), 10002, 1, fmt.Sprint("anew", i)); err != nil || !r.Fresh {
				t.Errorf("%+v, %v", r, err)
			}
		}
		var gates int
		if err := db.QueryRow(t.Context(), "SELECT COUNT(*) FROM "+db.Table("claims")+" WHERE owner = ''").Scan(&gates); err != nil || gates != 256 {
			t.Errorf("%d gates, %v", gates, err)
		}
	})
}

// Whatever cannot be asked any more stays unknown, and is told so; nothing is taken a
// second time for it.
func TestCombineFaultsForGood(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "0")
		breaking, b := breakableDB(db.DB)
		handle, g := newGate(breaking)
		c := combine(t, s, handle)
		unknown := 0
		for _, op := range []string{"take", "once", "put"} {
			for at := 0; ; at++ {
				asks := make([]*ask, 4)
				for i := range asks {
					asks[i] = &ask{op: op, n: int64(i + 1), claim: fmt.Sprint("for good ", at, " ", i)}
				}
				db.MustExec(t, "UPDATE t_bonus SET left_count = 99, version = 0")
				b.arm(at, true, io.ErrUnexpectedEOF)
				b.lasts = true
				together(t, c, g, 10001, asks)
				what := b.disarm()
				b.lasts = false
				check(t, db, fmt.Sprintf("%s, call %d (%.60s)", op, at, what), op == "put", 100, asks)
				for _, a := range asks {
					if !sqldb.Uncertain(a.err) {
						continue
					}
					unknown++
					if op == "once" {
						if !strings.Contains(a.err.Error(), "call TakeOnce again with the same claim") {
							t.Errorf("%v", a.err)
						}
						r, err := c.TakeOnce(t.Context(), 10001, a.n, a.claim)
						if err != nil || r.N != a.n {
							t.Errorf("%+v, %v", r, err)
						}
					}
				}
				if what == "" {
					break
				}
			}
		}
		if unknown == 0 {
			t.Error("nothing was unknown: the test has shown nothing")
		}
	})
}

// The gates of a stock table are made once by a process, however many come first.
func TestGatesAreMadeOnce(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		claimed(t, db, "99")
		counted, n := dbtest.Count(db.DB)
		s := open(t, counted, table)
		var wg sync.WaitGroup
		for i := range 20 {
			wg.Go(func() {
				if _, err := s.TakeOnce(context.Background(), counted, 10001, 1, fmt.Sprint(i)); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		made := 0
		for _, q := range n.Take() {
			if strings.HasSuffix(q, "ON DUPLICATE KEY UPDATE n = 0") {
				made++
			}
		}
		if left, _ := row(t, db); made != 1 || left != 79 {
			t.Errorf("they were made %d times; %d left", made, left)
		}
	})
}

// Of a COMMIT that is never answered, and never carried out, it is known that nothing was
// taken, and so it is told: by a batch, and by one that claims alone.
func TestCombineNeverCommitted(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "100")
		breaking, b := breakableDB(db.DB)
		handle, g := newGate(breaking)
		c := combine(t, s, handle)
		if _, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, "made"); err != nil {
			t.Fatal(err)
		}
		asks := []*ask{{op: "once", n: 1, claim: "made"}, {op: "once", n: 1, claim: "a"}, {op: "once", n: 1, claim: "b"}}
		b.arm(0, false, io.ErrUnexpectedEOF)
		b.lasts, b.only = true, "COMMIT"
		together(t, c, g, 10001, asks)
		if what := b.disarm(); what != "COMMIT" {
			t.Errorf("it was %q that broke", what)
		}
		for _, a := range asks[1:] {
			if a.err == nil || sqldb.Uncertain(a.err) {
				t.Errorf("%v", a.err)
			}
		}
		if left, _ := row(t, db); left != 100 { // one was put
			t.Errorf("%d left", left)
		}
	})
}
