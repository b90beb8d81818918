package main

import (
	"database/sql"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	viaSQL = "database/sql: left [9 8] <nil>\n"
	viaPGX = "pgx: left [8 6] <nil>\n"
	rest   = "short: 50 of 2 wanted, 10 left\nshort: 50 of 3 wanted, 9 left\nreserved: left [0]\n2 orders with 3 lines\n"
)

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), "", &out); err != nil {
		t.Fatal(err)
	}
	if want := viaSQL + rest; out.String() != want {
		t.Errorf("it prints %q, want %q", out.String(), want)
	}
}

// On the servers; it takes its tables away again.
func TestRunOn(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		want := viaSQL + rest
		if db.Kind() == sqldb.Postgres {
			want = viaSQL + viaPGX + strings.NewReplacer("9 left", "8 left", "2 orders with 3", "3 orders with 5").Replace(rest)
		}
		for range 2 {
			var out strings.Builder
			if err := run(t.Context(), db.DSN, &out); err != nil {
				t.Fatal(err)
			}
			if out.String() != want {
				t.Errorf("it prints %q, want %q", out.String(), want)
			}
		}
		var n int
		if err := db.SQL.QueryRow("SELECT COUNT(*) FROM t_goods").Scan(&n); err == nil || err == sql.ErrNoRows {
			t.Error("its tables are left behind")
		}
	})
}
