package stock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// age makes claims older, by hand.
func age(t testing.TB, db *dbtest.DB, where string) {
	t.Helper()
	set := map[sqldb.Kind]string{
		sqldb.Postgres: "created_at - interval '2 hours'", sqldb.SQLite: "created_at - 7200000000",
		sqldb.MySQL: "created_at - INTERVAL 2 HOUR", sqldb.MariaDB: "created_at - INTERVAL 2 HOUR",
	}[db.Kind()]
	db.MustExec(t, "UPDATE "+db.Table("claims")+" SET created_at = "+set+" WHERE "+where)
}

// Old claims go, young ones and those of other tables stay, over several pages and
// batches; a claim that has gone takes again.
func TestPruneClaims(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := claimed(t, db, "100")
		if _, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, "user"); err != nil {
			t.Fatal(err)
		}
		// 2400 more, of four ids, so that pages end within one.
		const more = 2400
		var table string
		if err := db.SQL.QueryRow("SELECT stock FROM " + db.Table("claims")).Scan(&table); err != nil {
			t.Fatal(err)
		}
		now := map[sqldb.Kind]string{sqldb.Postgres: "now()", sqldb.SQLite: "CAST(unixepoch('subsec') * 1000000 AS INTEGER)"}[db.Kind()]
		if db.Kind().InnoDB() {
			now = "UTC_TIMESTAMP(6)"
		}
		values := make([]string, more)
		for i := range values {
			values[i] = fmt.Sprintf("('%s', '%d', '%05d', 'somebody', 1, 7, %s)", table, i%4, i, now)
		}
		db.MustExec(t, "INSERT INTO "+db.Table("claims")+" (stock, id, claim, owner, n, left_after, created_at) VALUES "+strings.Join(values, ", "))
		db.MustExec(t, "INSERT INTO "+db.Table("claims")+" SELECT 'elsewhere.goods', id, claim, owner, n, left_after, created_at FROM "+db.Table("claims"))
		age(t, db, "claim <= '01999'") // 2000, and as many elsewhere
		if n, err := s.PruneClaims(t.Context(), time.Hour); err != nil || n != 2000 {
			t.Errorf("%d deleted, %v", n, err)
		}
		if n := claimRows(t, db); n != 2*(more+1)-2000 {
			t.Errorf("%d claims are left", n)
		}
		if r, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, "user"); err != nil || r.Fresh {
			t.Errorf("a young claim: %+v, %v", r, err)
		}
		age(t, db, "claim = 'user' OR owner = ''") // the gates, however old, stay
		if n, err := s.PruneClaims(t.Context(), time.Hour); err != nil || n != 1 {
			t.Errorf("%d deleted, %v", n, err)
		}
		if r, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, "user"); err != nil || !r.Fresh || r.Left != 98 {
			t.Errorf("after it was pruned: %+v, %v", r, err)
		}
		if _, err := s.PruneClaims(t.Context(), 0); !errors.Is(err, stock.ErrInvalid) {
			t.Errorf("olderThan 0: %v", err)
		}
	})
}

// Prune passes over a claim that somebody is at, and whoever repeats one that is
// being pruned is not kept waiting by a prune that waits for somebody else.
func TestPruneClaimsSkips(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "100")
		for i := range 5 {
			if _, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, fmt.Sprint(i)); err != nil {
				t.Fatal(err)
			}
		}
		age(t, db, "claim <> '4'")
		at := begin(t, db, "read committed")
		if _, err := at.tx.Exec(t.Context(), "UPDATE "+db.Table("claims")+" SET n = n + 1 WHERE claim = '2'"); err != nil {
			t.Fatal(err)
		}
		taker := begin(t, db, "read committed")
		if _, err := s.TakeOnce(t.Context(), taker.tx, 10001, 1, "not yet committed"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if n, err := s.PruneClaims(ctx, time.Hour); err != nil || n != 3 {
			t.Errorf("%d deleted, %v", n, err)
		}
		if err := errors.Join(at.rollback(), taker.commit()); err != nil {
			t.Fatal(err)
		}
		if n, err := s.PruneClaims(ctx, time.Hour); err != nil || n != 1 {
			t.Errorf("%d deleted, %v", n, err)
		}
		if n := claimRows(t, db); n != 2 {
			t.Errorf("%d claims", n)
		}
	})
}
