package stock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
)

// claimed makes the red-packet table and the table of claims.
func claimed(t testing.TB, db *dbtest.DB, left string) *stock.Stock {
	t.Helper()
	up(t, db)
	return bonus(t, db, left)
}

// up makes the table of claims, and not all those of sqllock: that takes longer than
// most of what is tested with it.
func up(t testing.TB, db *dbtest.DB) {
	t.Helper()
	place := schema.PlaceOf(db.DB)
	for _, m := range schema.Migrations(db.Kind()) {
		for _, statement := range m.Up {
			if strings.Contains(statement, "${table.claims}") || strings.Contains(statement, "${name.claims}") {
				db.MustExec(t, place.Render(statement))
			}
		}
	}
}

var readCommitted = sqldb.TxOptions{Isolation: sql.LevelReadCommitted}

// claimRows counts the claims that are stored, without their gates.
func claimRows(t testing.TB, db *dbtest.DB) (n int) {
	t.Helper()
	if err := db.SQL.QueryRow("SELECT COUNT(*) FROM " + db.Table("claims") + " WHERE owner <> ''").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// again is the receipt as whoever comes again gets it.
func again(r stock.Receipt) stock.Receipt {
	r.Fresh = false
	return r
}

func TestTakeOnce(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "100")
		db.MustExec(t, "INSERT INTO t_bonus (id, left_count) VALUES (10002, 100)")
		left := int64(100)
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			ctx := t.Context()
			user := "user:" + t.Name()
			first, err := s.TakeOnce(ctx, h, 10001, 3, user)
			left -= 3
			if err != nil || !first.Fresh || first.Left != left || first.N != 3 || first.Claim != user || first.At.IsZero() {
				t.Fatalf("%+v, %v", first, err)
			}
			for range 2 {
				if r, err := s.TakeOnce(ctx, h, uint16(10001), 3, user); err != nil || r != again(first) {
					t.Errorf("again: %+v, %v; want %+v", r, err, first)
				}
			}
			_, err = s.TakeOnce(ctx, h, 10001, 4, user)
			if !errors.Is(err, stock.ErrClaimMismatch) || !strings.Contains(err.Error(), "was made for 3, and not for 4") {
				t.Errorf("another n: %v", err)
			}
			// Every byte counts, and the row does.
			for _, other := range []string{user + " ", strings.ToUpper(user)} {
				left--
				if r, err := s.TakeOnce(ctx, h, 10001, 1, other); err != nil || !r.Fresh || r.Left != left {
					t.Errorf("%q: %+v, %v", other, r, err)
				}
			}
			if r, err := s.TakeOnce(ctx, h, 10002, 1, user); err != nil || !r.Fresh {
				t.Errorf("another row: %+v, %v", r, err)
			}
		})
		if n, version := row(t, db); n != left || version != 6 {
			t.Errorf("the row is %d, version %d; want %d and 6", n, version, left)
		}
		if n := claimRows(t, db); n != 8 {
			t.Errorf("%d claims", n)
		}
	})
}

// 64 goroutines with one claim: one decrement, 64 equal receipts, one of them fresh.
func TestTakeOnceCrowd(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := claimed(t, db, "100")
		ways := map[string]func() (stock.Receipt, error){
			"db": func() (stock.Receipt, error) { return s.TakeOnce(context.Background(), db.DB, 10001, 1, "on a DB") },
			"tx": func() (r stock.Receipt, err error) {
				err = db.InTx(context.Background(), readCommitted, func(ctx context.Context, tx *sqldb.Tx) (err error) {
					r, err = s.TakeOnce(ctx, tx, 10001, 1, "in a transaction")
					return err
				})
				return r, err
			},
		}
		for name, take := range ways {
			before, _ := row(t, db)
			var mu sync.Mutex
			got := map[stock.Receipt]int{}
			fresh := 0
			var wg sync.WaitGroup
			for range goroutines {
				wg.Go(func() {
					r, err := take()
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
					mu.Lock()
					defer mu.Unlock()
					if r.Fresh {
						fresh++
					}
					got[again(r)]++
				})
			}
			wg.Wait()
			if after, _ := row(t, db); len(got) != 1 || fresh != 1 || after != before-1 {
				t.Errorf("%s: %d fresh, %d left of %d, receipts %v", name, fresh, after, before, got)
			}
		}
	})
}

// The control: who asks first if there is such a claim, and then makes it without a
// key that decides, serves one user twice.
func TestNaiveClaimServesTwice(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		bonus(t, db, "10")
		db.MustExec(t, "CREATE TABLE naive (claim VARCHAR(40))")
		var read, done sync.WaitGroup
		read.Add(2)
		var served atomic.Int64
		for range 2 {
			done.Go(func() {
				var n int
				err := db.QueryRow(context.Background(), "SELECT COUNT(*) FROM naive WHERE claim = 'user'").Scan(&n)
				read.Done()
				read.Wait()
				if err == nil && n == 0 {
					_, err = db.Exec(context.Background(), "INSERT INTO naive VALUES ('user')")
					served.Add(1)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		if served.Load() != 2 {
			t.Errorf("served %d times", served.Load())
		}
	})
}

// The control: a claim whose count of rows is asked (ON DUPLICATE KEY UPDATE id = id)
// is fresh for everybody where the DSN counts rows that were found.
func TestNaiveCountServesTwice(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "10")
		found := db.OpenSQL(t, func(c *mysql.Config) {
			c.ClientFoundRows = true
			c.Params = map[string]string{"sql_mode": "''"}
		})
		db.MustExec(t, "CREATE TABLE naive (claim VARCHAR(40) PRIMARY KEY)")
		fresh := 0
		for range 2 {
			res, err := found.Exec("INSERT INTO naive VALUES ('user') ON DUPLICATE KEY UPDATE claim = claim")
			if err != nil {
				t.Fatal(err)
			}
			if n, _ := res.RowsAffected(); n == 1 {
				fresh++
			}
		}
		if fresh != 2 {
			t.Errorf("fresh %d times: the control has shown nothing", fresh)
		}
		handle, err := mysqldb.New(t.Context(), found)
		if err != nil {
			t.Fatal(err)
		}
		for i := range 3 {
			r, err := s.TakeOnce(t.Context(), handle, 10001, 1, "user")
			if err != nil || r.Fresh != (i == 0) || r.Left != 9 {
				t.Errorf("%d: %+v, %v", i, r, err)
			}
		}
	})
}

// The control: repeated inside its transaction, a take without a claim takes twice;
// with a claim, once.
func TestRetryInsideTransaction(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "10")
		twice := func(take func(ctx context.Context, tx *sqldb.Tx) error) {
			t.Helper()
			err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				return errors.Join(take(ctx, tx), take(ctx, tx))
			})
			if err != nil {
				t.Error(err)
			}
		}
		twice(func(ctx context.Context, tx *sqldb.Tx) error { _, err := s.Take(ctx, tx, 10001, 1); return err })
		if left, _ := row(t, db); left != 8 {
			t.Errorf("%d left: the control has shown nothing", left)
		}
		twice(func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := s.TakeOnce(ctx, tx, 10001, 1, "order:1")
			return err
		})
		if left, _ := row(t, db); left != 7 {
			t.Errorf("%d left", left)
		}
	})
}

// A refusal makes no claim, also if the caller commits; later the claim takes.
func TestTakeOnceRefused(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "2")
		for _, id := range []int{10001, 4711} {
			both(t, db, func(t *testing.T, h sqldb.Handle) {
				for range 2 { // also when the row is known to be dry
					_, err := s.TakeOnce(t.Context(), h, id, 3, "order")
					var short *stock.ShortError
					switch {
					case id == 4711 && errors.Is(err, stock.ErrNotFound):
					case id == 10001 && errors.As(err, &short) && len(short.Lines) == 1 && short.Lines[0] == (stock.Short{ID: int64(10001), Wanted: 3, Left: 2}):
					default:
						t.Errorf("id %d: %v", id, err)
					}
				}
			})
		}
		if n := claimRows(t, db); n != 0 {
			t.Errorf("%d claims of nothing", n)
		}
		if _, err := s.Put(t.Context(), db.DB, 10001, 1); err != nil {
			t.Fatal(err)
		}
		if r, err := s.TakeOnce(t.Context(), db.DB, 10001, 3, "order"); err != nil || !r.Fresh || r.Left != 0 {
			t.Errorf("%+v, %v", r, err)
		}
		// Who has a receipt gets it, whatever is left.
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			if _, err := s.TakeOnce(t.Context(), h, 10001, 1, "another"); !errors.Is(err, stock.ErrSoldOut) {
				t.Errorf("%v", err)
			}
			if r, err := s.TakeOnce(t.Context(), h, 10001, 3, "order"); err != nil || r.Fresh || r.Left != 0 {
				t.Errorf("%+v, %v", r, err)
			}
			if _, err := s.TakeOnce(t.Context(), h, 10001, 1, "order"); !errors.Is(err, stock.ErrClaimMismatch) {
				t.Errorf("%v", err)
			}
		})
		if n := claimRows(t, db); n != 1 {
			t.Errorf("%d claims", n)
		}
	})
}

// When a row is known to be sold out, claims are not inserted to be rolled back.
func TestTakeOnceDry(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		claimed(t, db, "0")
		handle, counter := dbtest.Count(db.DB)
		s := open(t, handle, table)
		for i := range 3 {
			counter.Take()
			if _, err := s.TakeOnce(t.Context(), handle, 10001, 1, "order"); !errors.Is(err, stock.ErrSoldOut) {
				t.Fatal(err)
			}
			q := strings.Join(counter.Take(), "\n")
			if wrote := strings.Contains(q, "INSERT INTO"); wrote != (i == 0) {
				t.Errorf("refusal %d was\n%s", i, q)
			}
		}
	})
}

// At READ COMMITTED neither a claim that is there nor a refusal breaks the caller's
// transaction: what it did before and after is committed.
func TestTakeOnceLeavesTransactionUsable(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "1")
		db.MustExec(t, "CREATE TABLE marks (n INT)")
		first, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, "user")
		if err != nil {
			t.Fatal(err)
		}
		tx := begin(t, db, "read committed")
		mark := func(n int) {
			t.Helper()
			if _, err := tx.tx.Exec(t.Context(), fmt.Sprintf("INSERT INTO marks VALUES (%d)", n)); err != nil {
				t.Fatal(err)
			}
		}
		mark(1)
		if r, err := s.TakeOnce(t.Context(), tx.tx, 10001, 1, "user"); err != nil || r != again(first) {
			t.Errorf("%+v, %v", r, err)
		}
		mark(2)
		if _, err := s.TakeOnce(t.Context(), tx.tx, 10001, 2, "user"); !errors.Is(err, stock.ErrClaimMismatch) {
			t.Errorf("%v", err)
		}
		mark(3)
		if _, err := s.TakeOnce(t.Context(), tx.tx, 10001, 1, "another user"); !errors.Is(err, stock.ErrSoldOut) {
			t.Errorf("%v", err)
		}
		mark(4)
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		var n int
		if err := db.SQL.QueryRow("SELECT COUNT(*) FROM marks").Scan(&n); err != nil || n != 4 {
			t.Errorf("%d marks, %v", n, err)
		}
		if n := claimRows(t, db); n != 1 {
			t.Errorf("%d claims", n)
		}
	})
}

// What can't be right is refused before any SQL runs: the driver is nil.
func TestTakeOnceRefusedBeforeSQL(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	none := db.Wrap(func(sqldb.Driver) sqldb.Driver { return nil })
	s := open(t, none, table)
	for name, c := range map[string]struct {
		id    any
		n     int64
		claim string
	}{
		"no claim": {1, 1, ""}, "too long": {1, 1, strings.Repeat("x", stock.MaxClaim+1)}, "no UTF-8": {1, 1, "a\xff"}, "NUL": {1, 1, "a\x00b"},
		"n 0": {1, 0, "c"}, "nil id": {nil, 1, "c"}, "a long id": {strings.Repeat("x", stock.MaxClaim+1), 1, "c"},
	} {
		if _, err := s.TakeOnce(t.Context(), none, c.id, c.n, c.claim); !errors.Is(err, stock.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := s.TakeOnce(t.Context(), db.Tx(db.SQL), 1, 1, "c"); !errors.Is(err, stock.ErrInvalid) {
		t.Errorf("a pool: %v", err)
	}
}

func TestTakeOnceLongestClaim(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "10")
		long := strings.Repeat("ü", 127) + "x"
		for i := range 2 {
			if r, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, long); err != nil || r.Fresh != (i == 0) || r.Left != 9 {
				t.Errorf("%+v, %v", r, err)
			}
		}
	})
}

// It makes no difference how an id is written that the column takes for one: the
// claim is the row's.
func TestTakeOnceCollation(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		if !folds(db) {
			t.Skip("this database has no collation without case")
		}
		up(t, db)
		s := texts(t, db, "Zoë", "mid")
		receipts := map[bool]stock.Receipt{}
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			_, inTx := h.(*sqldb.Tx)
			claim := fmt.Sprint("in a transaction: ", inTx)
			for i, id := range []string{"zoë", "Zoë", "ZOë", "zoë"} {
				r, err := s.TakeOnce(t.Context(), h, id, 1, claim)
				if i == 0 {
					receipts[inTx] = again(r)
				}
				if err != nil || r.Fresh != (i == 0) || again(r) != receipts[inTx] {
					t.Errorf("%s: %+v, %v", id, r, err)
				}
			}
		})
		wantCounts(t, db, 100, 98)
		db.MustExec(t, "UPDATE goods SET n = 0")
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			for inTx, want := range receipts {
				for _, id := range []string{"zoë", "Zoë"} {
					if r, err := s.TakeOnce(t.Context(), h, id, 1, want.Claim); err != nil || r != want {
						t.Errorf("%v, %s: %+v, %v", inTx, id, r, err)
					}
					if _, err := s.TakeOnce(t.Context(), h, id, 1, "new"); !errors.Is(err, stock.ErrSoldOut) {
						t.Errorf("%s: %v", id, err)
					}
				}
			}
		})
		if n := claimRows(t, db); n != 2 {
			t.Errorf("%d claims", n)
		}
	})
}
