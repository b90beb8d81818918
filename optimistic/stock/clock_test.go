package stock_test

import (
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
)

// The clock is that of the statement, not that of the beginning of the transaction: what
// expires while a transaction runs has expired in it, and a receipt says when it was
// taken.
func TestClockOfTheStatement(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel() // it waits for a time to pass
		s := shelf(t, db, 2)
		ctx := t.Context()
		tx := begin(t, db, "read committed")
		if err := tx.tx.QueryRow(ctx, "SELECT COUNT(*) FROM goods").Scan(new(int)); err != nil { // it has begun
			t.Fatal(err)
		}
		began := dbNow(t, db)
		var last stock.Hold
		for id := range 2 {
			var err error
			if last, err = s.Reserve(ctx, db.DB, []stock.Line{{1 + id, 100}}, stock.MinTTL); err != nil {
				t.Fatal(err)
			}
		}
		past(t, db, last.ExpiresAt)
		r, err := s.TakeOnce(ctx, tx.tx, 1, 1, "user") // which is short, and sweeps
		if err != nil || r.Left != 99 || !r.At.After(began) {
			t.Errorf("%+v, %v; it began before %v", r, err, began)
		}
		if n, err := s.Sweep(ctx, tx.tx); err != nil || n != 1 {
			t.Errorf("swept %d, %v", n, err)
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		wantCounts(t, db, 99, 100)
	})
}
