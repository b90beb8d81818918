package stock_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// Many sweep at once: everything goes back, once.
func TestSweepByMany(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 4)
		const holds = 130 // more than a batch
		var all []stock.Hold
		for i := range holds {
			all = append(all, reserve(t, s, db.DB, stock.Line{ID: i%2 + 1, N: 1}, stock.Line{ID: i%2 + 3, N: 1}))
			if i%20 == 19 { // so that the stock lasts
				db.MustExec(t, "UPDATE goods SET n = 100")
			}
		}
		db.MustExec(t, "UPDATE goods SET n = 0")
		live := all[7]
		expire(t, db, all...)
		shift(t, db, "+", live)
		var swept atomic.Int64
		var wg sync.WaitGroup
		for range 8 {
			other := open(t, db.Another(t).DB, goodsTable)
			wg.Go(func() {
				n, err := other.Sweep(context.Background(), db.DB)
				if err != nil {
					t.Error(err)
				}
				swept.Add(int64(n))
			})
		}
		wg.Wait()
		if n, err := s.Sweep(t.Context(), db.DB); err != nil || n != 0 {
			t.Errorf("%d were left over, %v", n, err)
		}
		if swept.Load() != holds-1 {
			t.Errorf("swept %d of %d", swept.Load(), holds-1)
		}
		wantCounts(t, db, holds/2, holds/2-1, holds/2, holds/2-1)
		wantHold(t, db, live, "held 2:1 4:1")
	})
}

// A sweep leaves out what somebody else is at, and does not wait for it; neither does a
// take in a transaction.
func TestSweepLeavesOut(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 2)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		busy, idle := reserve(t, s, db.DB, stock.Line{ID: 1, N: 100}), reserve(t, s, db.DB, stock.Line{ID: 2, N: 1})
		expire(t, db, busy)
		tx := begin(t, db, "")
		if err := tx.tx.QueryRow(ctx, "SELECT id FROM "+db.Table("reservations")+" WHERE id = '"+reservation(busy)+"' FOR UPDATE").Scan(new(string)); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Sweep(ctx, db.DB); err != nil || n != 0 {
			t.Errorf("swept %d, %v", n, err)
		}
		for name, take := range takers(s) {
			other := begin(t, db, "")
			if err := take(ctx, other.tx); !errors.Is(err, stock.ErrSoldOut) {
				t.Errorf("%s: %v", name, err)
			}
			if err := other.rollback(); err != nil {
				t.Fatal(err)
			}
		}
		expire(t, db, idle)
		if n, err := s.Sweep(ctx, db.DB); err != nil || n != 1 {
			t.Errorf("swept %d, %v", n, err)
		}
		if err := tx.rollback(); err != nil {
			t.Fatal(err)
		}
		if n, err := s.Sweep(ctx, db.DB); err != nil || n != 1 {
			t.Errorf("swept %d, %v", n, err)
		}
		wantCounts(t, db, 100, 100)
	})
}

// In a transaction it is a batch, with the caller's commit.
func TestSweepInTx(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 1)
		hold := reserve(t, s, db.DB, stock.Line{ID: 1, N: 5})
		expire(t, db, hold)
		tx := begin(t, db, "")
		if n, err := s.Sweep(t.Context(), tx.tx); err != nil || n != 1 {
			t.Errorf("swept %d, %v", n, err)
		}
		if err := tx.rollback(); err != nil {
			t.Fatal(err)
		}
		wantHold(t, db, hold, "held 1:5")
		wantCounts(t, db, 95)
		inTx(t, db, func(h sqldb.Handle) {
			if n, err := s.Sweep(t.Context(), h); err != nil || n != 1 {
				t.Errorf("swept %d, %v", n, err)
			}
		})
		wantHold(t, db, hold, "expired 1:-")
		wantCounts(t, db, 100)
	})
}

// What does not fit keeps nothing else from going back, and is told; what goes back to
// a row that is gone is gone with it.
func TestSweepStuck(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 3)
		full := reserve(t, s, db.DB, stock.Line{ID: 1, N: 10}, stock.Line{ID: 2, N: 10})
		gone := reserve(t, s, db.DB, stock.Line{ID: 2, N: 10}, stock.Line{ID: 3, N: 10})
		gone2 := reserve(t, s, db.DB, stock.Line{ID: 3, N: 10})
		fine := reserve(t, s, db.DB, stock.Line{ID: 2, N: 1})
		db.MustExec(t, "DELETE FROM goods WHERE id = 3", "UPDATE goods SET n = "+largest(db)+" WHERE id = 1")
		if err := s.Cancel(t.Context(), db.DB, gone2.ID); err != nil {
			t.Errorf("cancel what holds of a row that is gone: %v", err)
		}
		if err := s.Cancel(t.Context(), db.DB, full.ID); !errors.Is(err, stock.ErrOverflow) {
			t.Errorf("cancel what does not fit: %v", err)
		}
		expire(t, db, full, gone, fine)
		n, err := s.Sweep(t.Context(), db.DB)
		if n != 2 || !errors.Is(err, stock.ErrOverflow) || !strings.Contains(err.Error(), reservation(full)) {
			t.Errorf("swept %d, %v", n, err)
		}
		wantHold(t, db, full, "held 1:10 2:10")
		wantHold(t, db, gone, "expired 2:- 3:-")
		wantHold(t, db, gone2, "cancelled 3:-")
		db.MustExec(t, "UPDATE goods SET n = 0 WHERE id = 1")
		if n, err := s.Sweep(t.Context(), db.DB); n != 1 || err != nil {
			t.Errorf("swept %d, %v", n, err)
		}
		wantCounts(t, db, 10, 100)
	})
}

// largest is what the column n takes.
func largest(db *dbtest.DB) string {
	if db.Kind() == sqldb.SQLite {
		return "9223372036854775807"
	}
	return "2147483647"
}

// A cancel that fails half-way in the caller's transaction can't be committed.
func TestCancelFailsWhole(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 1)
		hold := reserve(t, s, db.DB, stock.Line{ID: 1, N: 10})
		db.MustExec(t, "UPDATE goods SET n = "+largest(db))
		tx := begin(t, db, "")
		if err := s.Cancel(t.Context(), tx.tx, hold.ID); !errors.Is(err, stock.ErrOverflow) {
			t.Errorf("%v", err)
		}
		if err := tx.commit(); err == nil {
			t.Error("half of it could be committed")
		}
		wantHold(t, db, hold, "held 1:10")
	})
}

// In a REPEATABLE READ transaction of MySQL and MariaDB, nothing that settles a
// reservation locks a gap: others can reserve, whose ids may fall anywhere.
func TestSettleLocksNoGap(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 3)
		one, two, three, four := reserve(t, s, db.DB, stock.Line{ID: 1, N: 1}, stock.Line{ID: 2, N: 1}), reserve(t, s, db.DB, stock.Line{ID: 1, N: 1}), reserve(t, s, db.DB, stock.Line{ID: 1, N: 1}), reserve(t, s, db.DB, stock.Line{ID: 2, N: 1})
		expire(t, db, three, four)
		for name, f := range map[string]func(ctx context.Context, tx *sqldb.Tx) error{
			"confirm": func(ctx context.Context, tx *sqldb.Tx) error { return s.Confirm(ctx, tx, two.ID) },
			"cancel":  func(ctx context.Context, tx *sqldb.Tx) error { return s.Cancel(ctx, tx, one.ID) },
			"take": func(ctx context.Context, tx *sqldb.Tx) error {
				_, err := s.Take(ctx, tx, 1, 98)
				return err
			},
			"sweep": func(ctx context.Context, tx *sqldb.Tx) error {
				n, err := s.Sweep(ctx, tx)
				if n != 2 {
					t.Errorf("swept %d", n)
				}
				return err
			},
		} {
			t.Run(name, func(t *testing.T) {
				tx := begin(t, db, "repeatable read")
				if err := f(t.Context(), tx.tx); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
				defer cancel()
				for range 10 {
					hold, err := s.Reserve(ctx, db.DB, []stock.Line{{3, 1}}, minute)
					if err != nil {
						t.Fatal(err)
					}
					if err := s.Cancel(ctx, db.DB, hold.ID); err != nil {
						t.Fatal(err)
					}
				}
			})
		}
	})
}

// A transaction whose snapshot is older than the reservation settles it all the same,
// on MySQL and MariaDB, or is told to try again.
func TestSettleOldSnapshot(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 2)
		ctx := t.Context()
		for name, f := range map[string]func(tx *sqldb.Tx, id string) error{
			"confirm": func(tx *sqldb.Tx, id string) error { return s.Confirm(ctx, tx, id) },
			"cancel":  func(tx *sqldb.Tx, id string) error { return s.Cancel(ctx, tx, id) },
		} {
			tx := begin(t, db, "repeatable read")
			if err := tx.tx.QueryRow(ctx, "SELECT COUNT(*) FROM "+db.Table("reservations")).Scan(new(int)); err != nil {
				t.Fatal(err)
			}
			hold := reserve(t, s, db.DB, stock.Line{ID: 1, N: 1}, stock.Line{ID: 2, N: 2})
			err := f(tx.tx, hold.ID)
			switch {
			case sqldb.Retryable(err):
				if db.Kind() == sqldb.Postgres && (!errors.Is(err, stock.ErrNoReservation) || !strings.Contains(err.Error(), "begin it anew")) {
					t.Errorf("%s: %v", name, err)
				}
				wantHold(t, db, hold, "held 1:1 2:2")
				continue
			case err != nil || db.Kind() == sqldb.Postgres:
				t.Errorf("%s: %v", name, err)
			}
			if err := tx.commit(); err != nil {
				t.Fatal(err)
			}
			wantHold(t, db, hold, map[string]string{"confirm": "confirmed 1:- 2:-", "cancel": "cancelled 1:- 2:-"}[name])
		}
	})
}
