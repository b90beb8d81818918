package stock_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// takers are the calls that sweep when they find too little: each wants 5 of row 1.
func takers(s *stock.Stock) map[string]func(ctx context.Context, h sqldb.Handle) error {
	return map[string]func(ctx context.Context, h sqldb.Handle) error{
		"Take": func(ctx context.Context, h sqldb.Handle) error { _, err := s.Take(ctx, h, 1, 5); return err },
		"TakeAll": func(ctx context.Context, h sqldb.Handle) error {
			_, err := s.TakeAll(ctx, h, []stock.Line{{1, 5}})
			return err
		},
		"TakeOnce": func(ctx context.Context, h sqldb.Handle) error {
			_, err := s.TakeOnce(ctx, h, 1, 5, rand.Text())
			return err
		},
		"Reserve": func(ctx context.Context, h sqldb.Handle) error {
			_, err := s.Reserve(ctx, h, []stock.Line{{1, 5}}, minute)
			return err
		},
	}
}

// A take that finds too little gives back what has expired of its row, and only that:
// the other lines of such a reservation wait for their own takers, or for Sweep.
// Nothing makes the reservation live again then, not even a clock that is set back.
func TestShortTakeSweeps(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 3)
		ctx := t.Context()
		for name, take := range takers(s) {
			for _, inTx := range []bool{false, true} {
				name := fmt.Sprintf("%s, in a transaction %v", name, inTx)
				try := func() error {
					if !inTx {
						return take(ctx, db.DB)
					}
					tx := begin(t, db, "")
					err := take(ctx, tx.tx)
					if cerr := tx.commit(); cerr != nil {
						t.Errorf("%s: commit: %v", name, cerr)
					}
					return err
				}
				db.MustExec(t, "UPDATE goods SET n = 3 WHERE id <= 2")
				two := reserve(t, s, db.DB, stock.Line{ID: 2, N: 3}, stock.Line{ID: 1, N: 2})
				one := reserve(t, s, db.DB, stock.Line{ID: 1, N: 1})
				db.MustExec(t, "UPDATE goods SET n = 2 WHERE id = 1")
				if err := try(); !errors.Is(err, stock.ErrSoldOut) {
					t.Fatalf("%s: while they are held: %v", name, err)
				}
				expire(t, db, two, one)
				if err := try(); err != nil {
					t.Fatalf("%s: %v", name, err)
				}
				wantCounts(t, db, 0, 0, 100)
				wantHold(t, db, two, "held 1:- 2:3")
				wantHold(t, db, one, "expired 1:-")
				shift(t, db, "+", two, one, two, one)
				for _, hold := range []stock.Hold{two, one} {
					if err := s.Confirm(ctx, db.DB, hold.ID); !errors.Is(err, stock.ErrExpired) {
						t.Errorf("%s: the clock was set back: confirm: %v", name, err)
					}
					if err := s.Cancel(ctx, db.DB, hold.ID); !errors.Is(err, stock.ErrExpired) {
						t.Errorf("%s: the clock was set back: cancel: %v", name, err)
					}
				}
				expire(t, db, two, two)
				if n, err := s.Sweep(ctx, db.DB); n != 1 || err != nil {
					t.Errorf("%s: swept %d, %v", name, n, err)
				}
				wantHold(t, db, two, "expired 1:- 2:-")
				wantCounts(t, db, 0, 3, 100)
			}
		}
	})
}

// A line after the other: the last one ends the reservation.
func TestShortTakesEndReservation(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 2)
		hold := reserve(t, s, db.DB, stock.Line{ID: 1, N: 100}, stock.Line{ID: 2, N: 100})
		expire(t, db, hold)
		if _, err := s.Take(t.Context(), db.DB, 1, 1); err != nil {
			t.Error(err)
		}
		wantHold(t, db, hold, "held 1:- 2:100")
		if _, err := s.TakeAll(t.Context(), db.DB, []stock.Line{{2, 1}, {1, 1}}); err != nil {
			t.Error(err)
		}
		wantHold(t, db, hold, "expired 1:- 2:-")
		wantCounts(t, db, 98, 99)
	})
}

// More expired reservations of one row than one look finds.
func TestShortTakeSweepsMany(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 1)
		db.MustExec(t, "UPDATE goods SET n = 120")
		var holds []stock.Hold
		for range 120 {
			holds = append(holds, reserve(t, s, db.DB, stock.Line{ID: 1, N: 1}))
		}
		expire(t, db, holds...)
		if left, err := s.Take(t.Context(), db.DB, 1, 110); err != nil || left != 10 {
			t.Errorf("%d, %v", left, err)
		}
	})
}

// The interleaving: one is giving back what has expired, and has not committed; the
// other finds the count still too low. It waits for the first, and is not refused what
// is there.
func TestShortTakeWaitsForSweep(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 1)
		hold := reserve(t, s, db.DB, stock.Line{ID: 1, N: 100})
		expire(t, db, hold)
		sweeper := begin(t, db, "")
		if n, err := s.Sweep(t.Context(), sweeper.tx); n != 1 || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
		done := make(chan error, 1)
		go func() {
			_, err := s.Take(context.Background(), db.DB, 1, 1)
			done <- err
		}()
		awaitWaiting(t, db, 1) // on MySQL and MariaDB for the row itself: there it is never refused
		if err := sweeper.commit(); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
		wantCounts(t, db, 99)
	})
}

// 64 at once want one each of 64 that have expired: all are served.
func TestShortTakesAtOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 1)
		var holds []stock.Hold
		for range 16 {
			holds = append(holds, reserve(t, s, db.DB, stock.Line{ID: 1, N: 4}))
		}
		db.MustExec(t, "UPDATE goods SET n = 0")
		expire(t, db, holds...)
		var wg sync.WaitGroup
		for range 64 {
			wg.Go(func() {
				if _, err := s.Take(context.Background(), db.DB, 1, 1); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		wantCounts(t, db, 0)
	})
}

// Who has no reservations pays nothing for them: no statement more for a take, one
// for a refusal where the tables are, none where they are not, and nothing is aborted.
func TestSweepCosts(t *testing.T) {
	for _, migrated := range []bool{false, true} {
		t.Run(fmt.Sprintf("migrated=%v", migrated), func(t *testing.T) {
			dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
				t.Parallel()
				if migrated {
					if err := migrations.Up(t.Context(), db.DB); err != nil {
						t.Fatal(err)
					}
				}
				goods(t, db, 2)
				handle, counter := dbtest.Count(db.DB)
				s := open(t, handle, goodsTable)
				about := func() (q []string) {
					return slices.DeleteFunc(counter.Take(), func(q string) bool { return !strings.Contains(q, "reservation") })
				}
				want := 0
				if migrated {
					want = 1
				}
				for round := range 3 {
					both(t, &dbtest.DB{DB: handle, SQL: db.SQL, Pool: db.Pool}, func(t *testing.T, h sqldb.Handle) {
						if _, err := s.Take(t.Context(), h, 1, 1); err != nil {
							t.Error(err)
						}
						if q := about(); len(q) != 0 {
							t.Errorf("a take asked %q", q)
						}
						if _, err := s.Take(t.Context(), h, 1, 1000); !errors.Is(err, stock.ErrSoldOut) {
							t.Error(err)
						}
						q := about()
						if round > 0 && len(q) != want || round == 0 && len(q) > want+1 {
							t.Errorf("a refusal asked %q", q)
						}
						if _, err := s.Take(t.Context(), h, 1, 1); err != nil {
							t.Errorf("after a refusal: %v", err)
						}
						about() // of a row that was dry it has read first
					})
				}
			})
		})
	}
}

// Tables that this user may not read are as good as none, and abort nothing.
func TestSweepDenied(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		shelf(t, db, 1)
		role := db.Schema() + "_clerk"
		db.MustExec(t, "CREATE ROLE "+role, "GRANT USAGE ON SCHEMA "+db.Schema()+" TO "+role, "GRANT SELECT, UPDATE ON goods TO "+role)
		t.Cleanup(func() { db.MustExec(t, "DROP OWNED BY "+role, "DROP ROLE "+role) })
		for _, grant := range []string{"", "GRANT SELECT ON " + db.Table("reservations") + ", " + db.Table("reservation_lines") + " TO " + role} {
			if grant != "" {
				db.MustExec(t, grant)
			}
			s := open(t, db.DB, goodsTable)
			inTx(t, db, func(h sqldb.Handle) {
				if _, err := h.Exec(t.Context(), "SET LOCAL ROLE "+role); err != nil {
					t.Fatal(err)
				}
				if _, err := s.Take(t.Context(), h, 1, 1000); !errors.Is(err, stock.ErrSoldOut) {
					t.Errorf("%v", err)
				}
				if _, err := s.Take(t.Context(), h, 1, 1); err != nil {
					t.Errorf("after it: %v", err)
				}
			})
		}
	})
}

// The interleaving: a REPEATABLE READ transaction has read that a line is open; another
// gives it back and commits; the first would give it back once more.
func TestShortTakeOldSnapshot(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		s := shelf(t, db, 2)
		ctx := t.Context()
		hold := reserve(t, s, db.DB, stock.Line{ID: 1, N: 100}, stock.Line{ID: 2, N: 1})
		expire(t, db, hold)
		tx := begin(t, db, "repeatable read")
		if err := tx.tx.QueryRow(ctx, "SELECT COUNT(*) FROM "+db.Table("reservation_lines")).Scan(new(int)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Take(ctx, db.DB, 1, 100); err != nil {
			t.Fatal(err)
		}
		_, err := s.Take(ctx, tx.tx, 1, 1)
		if !errors.Is(err, stock.ErrSoldOut) && !sqldb.Retryable(err) {
			t.Errorf("%v", err)
		}
		if cerr := tx.commit(); errors.Is(err, stock.ErrSoldOut) && cerr != nil {
			t.Errorf("a refusal has ended the transaction: %v", cerr)
		}
		wantCounts(t, db, 0, 99)
		wantHold(t, db, hold, "held 1:- 2:1")
	})
}

// What has expired does not fit into the column any more: the take is refused, and in a
// transaction, which that may have ended, the refusal says why.
func TestShortTakeCannotGiveBack(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 1)
		ctx := t.Context()
		alter := "ALTER TABLE goods MODIFY n SMALLINT NOT NULL"
		if db.Kind() == sqldb.Postgres {
			alter = "ALTER TABLE goods ALTER COLUMN n TYPE smallint"
		}
		db.MustExec(t, alter, "UPDATE goods SET n = 100 WHERE id = 1")
		hold := reserve(t, s, db.DB, stock.Line{ID: 1, N: 10})
		db.MustExec(t, "UPDATE goods SET n = 32760 WHERE id = 1")
		expire(t, db, hold)
		tx := begin(t, db, "")
		_, err := s.Take(ctx, tx.tx, 1, 32765)
		if !errors.Is(err, stock.ErrSoldOut) || !errors.Is(err, stock.ErrOverflow) {
			t.Errorf("in a transaction: %v", err)
		}
		_ = tx.rollback()
		if _, err := s.Take(ctx, db.DB, 1, 32765); !errors.Is(err, stock.ErrSoldOut) {
			t.Errorf("alone: %v", err)
		}
		if left, err := s.Take(ctx, db.DB, 1, 5); err != nil || left != 32755 {
			t.Errorf("%d left, %v", left, err)
		}
	})
}
