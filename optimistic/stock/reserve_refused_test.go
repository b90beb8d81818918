package stock_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// Whoever knows only the id in the table can't settle it, and neither can another
// stock.
func TestReservationOfAnother(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := shelf(t, db, 1)
		db.MustExec(t, "CREATE TABLE others (id BIGINT PRIMARY KEY, n INT NOT NULL)", "INSERT INTO others VALUES (1, 0)")
		other := open(t, db.DB, stock.Table{Name: "others", ID: "id", Count: "n"})
		hold := reserve(t, s, db.DB, stock.Line{ID: 1, N: 10})
		forged := reservation(hold) + "." + strings.Repeat("A", 26)
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			for _, f := range []func(*stock.Stock, string) error{
				func(s *stock.Stock, id string) error { return s.Confirm(t.Context(), h, id) },
				func(s *stock.Stock, id string) error { return s.Cancel(t.Context(), h, id) },
			} {
				if err := f(s, forged); !errors.Is(err, stock.ErrNoReservation) {
					t.Errorf("forged: %v", err)
				}
				if err := f(other, hold.ID); !errors.Is(err, stock.ErrNoReservation) {
					t.Errorf("another stock: %v", err)
				}
			}
		})
		expire(t, db, hold)
		if n, err := other.Sweep(t.Context(), db.DB); err != nil || n != 0 {
			t.Errorf("another stock swept %d, %v", n, err)
		}
		if _, err := other.Take(t.Context(), db.DB, 1, 1); !errors.Is(err, stock.ErrSoldOut) {
			t.Errorf("another stock took: %v", err)
		}
		wantCounts(t, db, 90)
		wantHold(t, db, hold, "held 1:10")
	})
}

func TestReserveRefusedBeforeSQL(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		goods(t, db, 1)
		handle, counter := dbtest.Count(db.DB)
		s := open(t, handle, goodsTable)
		ctx := t.Context()
		line := []stock.Line{{1, 1}}
		for name, f := range map[string]func() error{
			"no time":         func() error { _, err := s.Reserve(ctx, handle, line, 0); return err },
			"time back":       func() error { _, err := s.Reserve(ctx, handle, line, -time.Minute); return err },
			"below the floor": func() error { _, err := s.Reserve(ctx, handle, line, stock.MinTTL-1); return err },
			"no lines":        func() error { _, err := s.Reserve(ctx, handle, nil, minute); return err },
			"n":               func() error { _, err := s.Reserve(ctx, handle, []stock.Line{{1, 1}, {2, 0}}, minute); return err },
			"id":              func() error { _, err := s.Reserve(ctx, handle, []stock.Line{{1.5, 1}}, minute); return err },
			"option":          func() error { _, err := s.Reserve(ctx, handle, line, minute, nil); return err },
			"long note": func() error {
				_, err := s.Reserve(ctx, handle, line, minute, stock.Note(strings.Repeat("é", 1001)))
				return err
			},
			"note with NUL": func() error { _, err := s.Reserve(ctx, handle, line, minute, stock.Note("a\x00b")); return err },
			"bytes as note": func() error { _, err := s.Reserve(ctx, handle, line, minute, stock.Note("\xff")); return err },
			"nil handle":    func() error { _, err := s.Reserve(ctx, nil, line, minute); return err },
			"no ID":         func() error { return s.Confirm(ctx, handle, "") },
			"half an ID":    func() error { return s.Cancel(ctx, handle, "ABC") },
			"ID with NUL":   func() error { return s.Cancel(ctx, handle, "A.B\x00") },
			"long ID":       func() error { return s.Confirm(ctx, handle, strings.Repeat("A", 60)+".B") },
			"nil, confirm":  func() error { return s.Confirm(ctx, nil, "A.B") },
			"nil, cancel":   func() error { return s.Cancel(ctx, (*sqldb.Tx)(nil), "A.B") },
			"nil, sweep":    func() error { _, err := s.Sweep(ctx, (*sqldb.DB)(nil)); return err },
			"a pool as tx":  func() error { _, err := s.Reserve(ctx, handle.Tx(db.SQL), line, minute); return err },
		} {
			if err := f(); !errors.Is(err, stock.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if q := counter.Take(); len(q) != 0 {
			t.Errorf("statements were run: %q", q)
		}
	})
}

// Without the tables Reserve says what to do, and takes nothing.
func TestReserveNotMigrated(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := goods(t, db, 1)
		if _, err := s.Reserve(t.Context(), db.DB, []stock.Line{{1, 1}}, minute); !errors.Is(err, stock.ErrNotMigrated) || !strings.Contains(err.Error(), "sqllock-migrate up") {
			t.Errorf("%v", err)
		}
		tx := begin(t, db, "")
		if _, err := s.Reserve(t.Context(), tx.tx, []stock.Line{{1, 1}}, minute); err == nil {
			t.Error("reserved without tables")
		}
		_ = tx.commit() // PostgreSQL has aborted it
		wantCounts(t, db, 100)
	})
}

// Ids are what the row says they are, whichever of several equal spellings was given,
// and whatever type they have.
func TestReserveKeys(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		if err := migrations.Up(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		binary := map[sqldb.Kind]string{sqldb.Postgres: "BYTEA", sqldb.SQLite: "BLOB"}[db.Kind()]
		if binary == "" {
			binary = "VARBINARY(16)"
		}
		db.MustExec(t, "CREATE TABLE names (id VARCHAR(50) PRIMARY KEY, n INT NOT NULL)", "INSERT INTO names VALUES ('Jób', 10), ('x', 10)",
			"CREATE TABLE bytes (id "+binary+" PRIMARY KEY, n INT NOT NULL)")
		names := open(t, db.DB, stock.Table{Name: "names", ID: "id", Count: "n"})
		bytes := open(t, db.DB, stock.Table{Name: "bytes", ID: "id", Count: "n"})
		id := []byte{0xff, 0x10, 0xfe, 'a'}
		insert := "INSERT INTO bytes VALUES (" + map[bool]string{true: "$1", false: "?"}[db.Kind() == sqldb.Postgres] + ", 10)"
		if _, err := db.Exec(t.Context(), insert, id); err != nil {
			t.Fatal(err)
		}
		other := "Jób"
		if db.Kind().InnoDB() {
			other = "JOB" // equal under the default collation
		}
		for _, c := range []struct {
			s       *stock.Stock
			a, b    any
			perHold int64
		}{{names, "Jób", other, 10}, {bytes, id, id, 10}} {
			ctx := t.Context()
			hold, err := c.s.Reserve(ctx, db.DB, []stock.Line{{c.a, 4}, {c.b, 6}}, minute)
			if err != nil || !slices.Equal(hold.Lefts, []int64{0, 0}) {
				t.Fatalf("%+v, %v", hold, err)
			}
			if err := c.s.Cancel(ctx, db.DB, hold.ID); err != nil {
				t.Errorf("cancel: %v", err)
			}
			for _, sweep := range []bool{true, false} {
				hold, err = c.s.Reserve(ctx, db.DB, []stock.Line{{c.a, 10}}, minute)
				if err != nil {
					t.Fatal(err)
				}
				expire(t, db, hold)
				if sweep {
					if n, err := c.s.Sweep(ctx, db.DB); err != nil || n != 1 {
						t.Errorf("swept %d, %v", n, err)
					}
				} else if left, err := c.s.Take(ctx, db.DB, c.b, 10); err != nil || left != 0 {
					t.Errorf("%v: %d, %v", c.b, left, err)
				}
			}
		}
	})
}
