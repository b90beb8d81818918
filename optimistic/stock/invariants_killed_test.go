package stock_test

import (
	"context"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// mixChild is a process of a mix, which is killed some time: kind, DSN, name.
func mixChild(args []string) int {
	return child(args, func(ctx context.Context, db *sqldb.DB) (func(func(error)), error) {
		s, err := stock.New(db, goodsTable)
		m := &mix{s: s, db: db, name: args[2]}
		return func(bad func(error)) { m.run(ctx, 16, never, bad) }, err
	})
}

// 64 goroutines in three processes do all of it, of which two are killed (kill -9)
// and begun anew again and again, and connections of all of them are cut by the
// server: at every moment left + sold + claimed + held + confirmed is what there was.
func TestInvariantsKilled(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		mixed(t, db)
		ctx := context.Background()
		k := &killing{child: "mix", n: 2, lives: 500 * time.Millisecond, audit: audit}
		k.run(t, db, func(handle *sqldb.DB) func(func() bool) {
			m := &mix{s: open(t, handle, goodsTable), db: handle, name: "parent"}
			return func(over func() bool) { m.run(ctx, 32, over, possible(t)) }
		})
		db.MustExec(t, "UPDATE "+db.Table("reservations")+" SET expires_at = created_at WHERE state = 'held'",
			"UPDATE "+db.Table("reservation_lines")+" SET held_until = (SELECT created_at FROM "+db.Table("reservations")+" r WHERE r.id = reservation) WHERE held_until IS NOT NULL")
		s := open(t, db.DB, goodsTable)
		if _, err := s.Sweep(ctx, db.DB); err != nil {
			t.Error(err)
		}
		if err := audit(ctx, db.DB); err != nil {
			t.Error(err)
		}
		var open int
		if err := db.QueryRow(ctx, "SELECT COUNT(*) FROM "+db.Table("reservation_lines")+" WHERE held_until IS NOT NULL").Scan(&open); err != nil || open != 0 {
			t.Errorf("%d lines are open after everything has expired and was swept, %v", open, err)
		}
	})
}
