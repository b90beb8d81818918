package stock_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
)

var slotTable = stock.Table{Name: "t_bonus_slots", ID: "id", Slot: "slot", Count: "left_count", Version: "version"}

func slotted(t testing.TB, db *sqldb.DB) *stock.Slotted {
	t.Helper()
	s, err := stock.NewSlotted(db, slotTable)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// makeSlots makes the table, with the id 10001 in slots of these counts; beside it are
// the ids 10000 and 10002, which nobody may touch.
func makeSlots(t testing.TB, db *dbtest.DB, counts ...int64) *stock.Slotted {
	t.Helper()
	db.MustExec(t, "CREATE TABLE t_bonus_slots (id BIGINT NOT NULL, slot INT NOT NULL, left_count BIGINT, version BIGINT DEFAULT 0, PRIMARY KEY (id, slot))",
		"INSERT INTO t_bonus_slots (id, slot, left_count) VALUES (10000, 0, 7), (10000, 1, 7), (10002, 0, 7), (10002, 1, 7)")
	setSlots(t, db, counts...)
	t.Cleanup(func() {
		var n int64
		if err := db.SQL.QueryRow("SELECT COUNT(*) FROM t_bonus_slots WHERE id <> 10001 AND left_count = 7 AND version = 0").Scan(&n); err != nil || n != 4 {
			t.Errorf("%d of the 4 slots of other ids are as they were, %v", n, err)
		}
	})
	return slotted(t, db.DB)
}

func setSlots(t testing.TB, db *dbtest.DB, counts ...int64) {
	t.Helper()
	db.MustExec(t, "DELETE FROM t_bonus_slots WHERE id = 10001")
	for i, n := range counts {
		db.MustExec(t, fmt.Sprintf("INSERT INTO t_bonus_slots (id, slot, left_count) VALUES (10001, %d, %d)", i, n))
	}
}

// slots reads the counts and the versions by hand.
func slots(t testing.TB, db *dbtest.DB) (counts, versions []int64) {
	t.Helper()
	rows, err := db.SQL.Query("SELECT slot, left_count, version FROM t_bonus_slots WHERE id = 10001 ORDER BY slot")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var slot int
		var n, v int64
		if err := rows.Scan(&slot, &n, &v); err != nil {
			t.Fatal(err)
		}
		if slot != len(counts) {
			t.Errorf("slot %d is in the place of slot %d", slot, len(counts))
		}
		counts, versions = append(counts, n), append(versions, v)
	}
	return counts, versions
}

func sum(numbers []int64) (sum int64) {
	for _, n := range numbers {
		sum += n
	}
	return sum
}

func TestSlotted(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := makeSlots(t, db, 100)
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			ctx := t.Context()
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			left := func(want int64) {
				t.Helper()
				if got, err := s.Total(ctx, h, 10001); err != nil || got != want {
					t.Fatalf("%d, %v; want %d", got, err, want)
				}
			}
			must(s.Take(ctx, h, 10001, 3))
			must(s.Split(ctx, h, 10001, 16))
			left(97)
			for range 40 {
				must(s.Take(ctx, h, 10001, 1))
			}
			must(s.Put(ctx, h, 10001, 5))
			left(62)
			must(s.Take(ctx, h, 10001, 50)) // more than any slot has
			left(12)
			must(s.Rebalance(ctx, h, 10001))
			for range 12 {
				must(s.Take(ctx, h, 10001, 1))
			}
			for range 3 { // also when the id is known to be dry
				err := s.Take(ctx, h, 10001, 1)
				var short *stock.ShortError
				if !errors.Is(err, stock.ErrSoldOut) || !errors.As(err, &short) || short.Lines[0] != (stock.Short{ID: int64(10001), Wanted: 1, Left: 0}) {
					t.Fatalf("the answer is %v", err)
				}
			}
			must(s.Put(ctx, h, 10001, 100)) // a refusal leaves a transaction usable
			left(100)
			must(s.Take(ctx, h, 10001, 1))
			must(s.Put(ctx, h, 10001, 1))
			must(s.Merge(ctx, h, 10001))
			left(100)
		})
		if counts, _ := slots(t, db); len(counts) != 1 || counts[0] != 100 {
			t.Errorf("%v", counts)
		}
	})
}

// Each slot whose count changes has its version raised by one, and no other.
func TestSlottedVersions(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := makeSlots(t, db, 10, 4, 0, 1)
		ctx := t.Context()
		check := func(what string, err error, counts, versions []int64) {
			t.Helper()
			c, v := slots(t, db)
			if err != nil || !slices.Equal(c, counts) || !slices.Equal(v, versions) {
				t.Errorf("%s: %v; %v, versions %v; want %v, %v", what, err, c, v, counts, versions)
			}
		}
		check("Take", s.Take(ctx, db.DB, 10001, 5), []int64{5, 4, 0, 1}, []int64{1, 0, 0, 0})
		// No slot has 6: all of them together, and what is left is spread.
		check("larger than a slot", s.Take(ctx, db.DB, 10001, 6), []int64{1, 1, 1, 1}, []int64{2, 1, 1, 0})
		check("nothing to do", s.Rebalance(ctx, db.DB, 10001), []int64{1, 1, 1, 1}, []int64{2, 1, 1, 0})
		check("as many as there are", s.Split(ctx, db.DB, 10001, 4), []int64{1, 1, 1, 1}, []int64{2, 1, 1, 0})
		check("fewer than there are", s.Split(ctx, db.DB, 10001, 2), []int64{1, 1, 1, 1}, []int64{2, 1, 1, 0})
		// Slot 0 changes with the set of slots.
		check("Split", s.Split(ctx, db.DB, 10001, 6), []int64{0, 0, 1, 1, 1, 1}, []int64{3, 2, 1, 0, 3, 3})
		db.MustExec(t, "UPDATE t_bonus_slots SET version = 50 WHERE id = 10001 AND slot = 4")
		check("Merge", s.Merge(ctx, db.DB, 10001), []int64{4}, []int64{51})
		check("Merge of one", s.Merge(ctx, db.DB, 10001), []int64{4}, []int64{51})
		// No version comes again: that of slot 4 was 50.
		check("Split again", s.Split(ctx, db.DB, 10001, 5), []int64{0, 1, 1, 1, 1}, []int64{52, 52, 52, 52, 52})
	})
}

// One round trip for a take or a put, one more for the first of an id, and for a
// refusal; after a refusal, one read.
func TestSlottedStatements(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		makeSlots(t, db, 1, 1, 1, 1)
		handle, counter := dbtest.Count(db.DB)
		s := slotted(t, handle)
		ctx := t.Context()
		extra := 0
		if db.Kind() == sqldb.MariaDB { // one slot alone, before all of them
			extra = 1
		}
		check := func(what string, err error, want int) {
			t.Helper()
			q := counter.Take()
			if what != "the first" { // on a slow machine, 10 s may have passed
				q = slices.DeleteFunc(q, func(query string) bool { return strings.HasPrefix(strings.ToUpper(query), "SELECT COALESCE(MAX(") })
			}
			if err != nil || len(q) < want || len(q) > want+extra {
				t.Errorf("%s: %v, %d statements, want %d: %q", what, err, len(q), want, q)
			}
		}
		check("the first", s.Take(ctx, handle, 10001, 1), 2)
		check("Put", s.Put(ctx, handle, 10001, 1), 1)
		_, err := s.Total(ctx, handle, 10001)
		check("Total", err, 1)
		for range 4 {
			check("Take", s.Take(ctx, handle, 10001, 1), 1)
		}
		refused := func() error {
			if err := s.Take(ctx, handle, 10001, 1); !errors.Is(err, stock.ErrSoldOut) {
				return fmt.Errorf("not refused: %w", err)
			}
			return nil
		}
		check("a refusal", refused(), 2)
		extra = 0
		for range 3 {
			check("the next refusal", refused(), 1)
		}
	})
}

func TestSlottedWrongCalls(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		makeSlots(t, db, 1)
		handle, counter := dbtest.Count(db.DB)
		s := slotted(t, handle)
		ctx := t.Context()
		edit := func(f func(*stock.Table)) stock.Table { x := slotTable; f(&x); return x }
		for name, x := range map[string]stock.Table{
			"no slot":        edit(func(x *stock.Table) { x.Slot = "" }),
			"slot no name":   edit(func(x *stock.Table) { x.Slot = "slot; --" }),
			"slot is the id": edit(func(x *stock.Table) { x.Slot = "id" }),
			"no id":          edit(func(x *stock.Table) { x.ID = "" }),
			"no table":       edit(func(x *stock.Table) { x.Name = "" }),
			"count no name":  edit(func(x *stock.Table) { x.Count = "a b" }),
		} {
			if _, err := stock.NewSlotted(handle, x); !errors.Is(err, stock.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if _, err := stock.NewSlotted(nil, slotTable); !errors.Is(err, stock.ErrInvalid) {
			t.Errorf("no database: %v", err)
		}
		if _, err := stock.New(handle, slotTable); !errors.Is(err, stock.ErrInvalid) || !strings.Contains(err.Error(), "NewSlotted") {
			t.Errorf("New with a slot: %v", err)
		}
		total := func(h sqldb.Handle, id any) error { _, err := s.Total(ctx, h, id); return err }
		for name, err := range map[string]error{
			"Take 0": s.Take(ctx, handle, 10001, 0), "Take -5": s.Take(ctx, handle, 10001, -5), "Take nil": s.Take(ctx, handle, nil, 1),
			"Put 0": s.Put(ctx, handle, 10001, 0), "Put -5": s.Put(ctx, handle, 10001, -5), "Put 1.5": s.Put(ctx, handle, 1.5, 1),
			"Total nil": total(handle, nil), "Total of no handle": total(nil, 1),
			"Split 0": s.Split(ctx, handle, 10001, 0), "Split -1": s.Split(ctx, handle, 10001, -1), "Split 1025": s.Split(ctx, handle, 10001, stock.MaxSlots+1),
			"Split nil": s.Split(ctx, handle, nil, 2), "Merge nil": s.Merge(ctx, handle, nil), "Rebalance nil": s.Rebalance(ctx, handle, nil),
			"Take of no handle": s.Take(ctx, nil, 10001, 1), "a pool as transaction": s.Take(ctx, handle.Tx(db.SQL), 10001, 1),
		} {
			if !errors.Is(err, stock.ErrInvalid) {
				t.Errorf("%s: %v", name, err)
			}
		}
		if q := counter.Take(); len(q) != 0 {
			t.Errorf("statements were run: %q", q)
		}
	})
}

// What is wrong with the rows is told, by name, in autocommit and in a transaction; a
// take that finds a slot does not look at the others.
func TestSlottedBadRows(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		ctx := t.Context()
		s := makeSlots(t, db, 5, 5, 5)
		const of = " WHERE id = 10001 AND slot = "
		all := map[string]func(h sqldb.Handle, id any) error{
			"Take":  func(h sqldb.Handle, id any) error { return s.Take(ctx, h, id, 16) },
			"Total": func(h sqldb.Handle, id any) error { _, err := s.Total(ctx, h, id); return err },
			"Split": func(h sqldb.Handle, id any) error { return s.Split(ctx, h, id, 8) },
			"Merge": func(h sqldb.Handle, id any) error { return s.Merge(ctx, h, id) },
			"Rebal": func(h sqldb.Handle, id any) error { return s.Rebalance(ctx, h, id) },
		}
		check := func(what string, id any, want error) {
			t.Helper()
			for name, f := range all {
				both(t, db, func(t *testing.T, h sqldb.Handle) {
					if err := f(h, id); !errors.Is(err, want) || errors.Is(err, stock.ErrSoldOut) {
						t.Errorf("%s, %s: %v", name, what, err)
					}
				})
			}
		}
		check("no such id", 4711, stock.ErrNotFound)
		if err := s.Put(ctx, db.DB, 4711, 1); !errors.Is(err, stock.ErrNotFound) {
			t.Errorf("Put: %v", err)
		}
		inTx(t, db, func(h sqldb.Handle) {
			if err := s.Put(ctx, h, 4711, 1); !errors.Is(err, stock.ErrNotFound) {
				t.Errorf("Put in a transaction: %v", err)
			}
		})
		for what, edit := range map[string][]string{
			"slot 0 is missing": {"DELETE FROM t_bonus_slots" + of + "0"},
			"a gap":             {"DELETE FROM t_bonus_slots" + of + "1"},
			"a slot below 0":    {"INSERT INTO t_bonus_slots (id, slot, left_count) VALUES (10001, -1, 5)"},
			"count NULL":        {"UPDATE t_bonus_slots SET left_count = NULL" + of + "1"},
			"version NULL":      {"UPDATE t_bonus_slots SET version = NULL" + of + "1"},
		} {
			if what == "a slot below 0" && db.Kind().InnoDB() {
				continue // only Total sees it: slots are locked by their numbers
			}
			setSlots(t, db, 5, 5, 5)
			db.MustExec(t, edit...)
			check(what, 10001, stock.ErrBadRow)
			if err := s.Take(ctx, db.DB, 10001, 5); err != nil { // a sound slot has as much
				t.Errorf("%s: %v", what, err)
			}
		}
		if db.Kind() == sqldb.SQLite {
			setSlots(t, db, 5, 5, 5)
			db.MustExec(t, "UPDATE t_bonus_slots SET left_count = 'abc'"+of+"1")
			check("a text", 10001, stock.ErrBadRow)
		}
		setSlots(t, db, 3)
		db.MustExec(t, "UPDATE t_bonus_slots SET left_count = NULL WHERE id = 10001")
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			for name, f := range map[string]func(context.Context, sqldb.Handle, any, int64) error{"Take": s.Take, "Put": s.Put} {
				if err := f(ctx, h, 10001, 1); !errors.Is(err, stock.ErrBadRow) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	})
}

// Two rows with one id and slot.
func TestSlottedNoUniqueKey(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		db.MustExec(t, "CREATE TABLE t_bonus_slots (id BIGINT, slot INT, left_count BIGINT, version BIGINT)",
			"INSERT INTO t_bonus_slots VALUES (10001, 0, 5, 0), (10001, 0, 5, 0)")
		s := slotted(t, db.DB)
		ctx := t.Context()
		// A server has changed both when it is seen; SQLite rolls it back.
		if err := s.Take(ctx, db.DB, 10001, 1); !errors.Is(err, stock.ErrBadRow) || sqldb.Uncertain(err) != (db.Kind() != sqldb.SQLite) {
			t.Errorf("Take: %v", err)
		}
		db.MustExec(t, "UPDATE t_bonus_slots SET left_count = 5")
		err := db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			err := s.Take(ctx, tx, 10001, 1)
			if !errors.Is(err, stock.ErrBadRow) {
				t.Errorf("Take in a transaction: %v", err)
			}
			return nil // and yet it cannot commit
		})
		var n int
		if qerr := db.QueryRow(ctx, "SELECT SUM(left_count) FROM t_bonus_slots").Scan(&n); qerr != nil || n != 10 {
			t.Errorf("%d left, %v, %v", n, qerr, err)
		}
		for name, f := range map[string]func() error{
			"Split": func() error { return s.Split(ctx, db.DB, 10001, 4) }, "Merge": func() error { return s.Merge(ctx, db.DB, 10001) },
			"Total": func() error { _, err := s.Total(ctx, db.DB, 10001); return err },
		} {
			if err := f(); !errors.Is(err, stock.ErrBadRow) {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}

// What does not fit is an error, and changes nothing, also where the session would let
// it saturate.
func TestSlottedOverflow(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		ctx := t.Context()
		column, most := "SMALLINT", int64(math.MaxInt16)
		if db.Kind() == sqldb.SQLite {
			column, most = "INTEGER", math.MaxInt64
		}
		db.MustExec(t, "CREATE TABLE t_bonus_slots (id BIGINT, slot INT, left_count "+column+", version BIGINT DEFAULT 0, PRIMARY KEY (id, slot))")
		setSlots(t, db, most-10, most-11)
		handles := map[string]*sqldb.DB{"": db.DB}
		if db.Kind().InnoDB() {
			lax, err := mysqldb.New(ctx, db.OpenSQL(t, func(c *mysql.Config) { c.Params = map[string]string{"sql_mode": "''"} }))
			if err != nil {
				t.Fatal(err)
			}
			handles["sql_mode empty"] = lax
		}
		for name, h := range handles {
			s := slotted(t, h)
			for what, f := range map[string]func(ctx context.Context, h sqldb.Handle) error{
				"Put":   func(ctx context.Context, h sqldb.Handle) error { return s.Put(ctx, h, 10001, 100) },
				"Merge": func(ctx context.Context, h sqldb.Handle) error { return s.Merge(ctx, h, 10001) },
			} {
				if err := f(ctx, h); !errors.Is(err, stock.ErrOverflow) || sqldb.Uncertain(err) {
					t.Errorf("%s, %s: %v", name, what, err)
				}
				if err := h.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error { return f(ctx, tx) }); !errors.Is(err, stock.ErrOverflow) {
					t.Errorf("%s, %s in a transaction: %v", name, what, err)
				}
			}
			_, err := s.Total(ctx, h, 10001)
			if (err != nil) != (most == math.MaxInt64) || err != nil && !errors.Is(err, stock.ErrOverflow) {
				t.Errorf("%s: Total: %v", name, err)
			}
			if most == math.MaxInt64 { // nor can they be spread, but each can be taken from
				if err := s.Rebalance(ctx, h, 10001); !errors.Is(err, stock.ErrOverflow) {
					t.Errorf("Rebalance: %v", err)
				}
			}
		}
		if counts, versions := slots(t, db); !slices.Equal(counts, []int64{most - 10, most - 11}) || sum(versions) != 0 {
			t.Errorf("%v, versions %v", counts, versions)
		}
		s := slotted(t, db.DB)
		if err := s.Take(ctx, db.DB, 10001, most-10); err != nil {
			t.Error(err)
		}
	})
}

// A table without a version, and one whose ids are texts and whose key is another.
func TestSlottedOtherTables(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		ctx := t.Context()
		serial := map[bool]string{true: "INTEGER PRIMARY KEY AUTO_INCREMENT", false: "INTEGER PRIMARY KEY"}[db.Kind().InnoDB()]
		if db.Kind() == sqldb.Postgres {
			serial = "SERIAL PRIMARY KEY"
		}
		db.MustExec(t, "CREATE TABLE seats (k "+serial+", show_id VARCHAR(40) NOT NULL, part BIGINT NOT NULL, n INT NOT NULL, note VARCHAR(10) DEFAULT 'x' NOT NULL, UNIQUE (show_id, part))",
			"INSERT INTO seats (show_id, part, n) VALUES ('a', 0, 20), ('b', 0, 20)")
		s, err := stock.NewSlotted(db.DB, stock.Table{Name: "seats", ID: "show_id", Slot: "part", Count: "n"})
		if err != nil {
			t.Fatal(err)
		}
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			steps := []func() error{
				func() error { return s.Split(ctx, h, "b", 3) },
				func() error { return s.Split(ctx, h, "a", 150) }, // most of them empty, and two statements lock them
				func() error { return s.Take(ctx, h, "a", 2) },
				func() error { return s.Rebalance(ctx, h, "a") },
				func() error { return s.Put(ctx, h, "a", 2) },
				func() error { return s.Merge(ctx, h, "a") },
				func() error { return s.Split(ctx, h, "a", 2) },
			}
			for i, step := range steps {
				if err := step(); err != nil {
					t.Errorf("step %d: %v", i, err)
				}
			}
			for id, want := range map[string]int64{"a": 20, "b": 20} {
				if left, err := s.Total(ctx, h, id); err != nil || left != want {
					t.Errorf("%s: %d, %v", id, left, err)
				}
			}
		})
		_, err = slotted(t, db.DB).Total(ctx, db.DB, 1)
		if err == nil || !strings.Contains(err.Error(), "t_bonus_slots") {
			t.Errorf("no table: %v", err)
		}
		x := stock.Table{Name: "seats", ID: "show_id", Slot: "slot", Count: "n"}
		if wrong, err := stock.NewSlotted(db.DB, x); err != nil {
			t.Error(err)
		} else if err := wrong.Take(ctx, db.DB, "a", 1); err == nil || !strings.Contains(err.Error(), "lacks one of the columns show_id, slot, n") {
			t.Errorf("no column: %v", err)
		}
	})
}

// Takes and puts go around the slots, though the first has enough.
func TestSlottedGoesAround(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := makeSlots(t, db)
		ctx := t.Context()
		for name, f := range map[string]func() error{
			"take": func() error { return s.Take(ctx, db.DB, 10001, 1) },
			"put":  func() error { return s.Put(ctx, db.DB, 10001, 1) },
			"take in a transaction": func() error {
				return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error { return s.Take(ctx, tx, 10001, 1) })
			},
			"put in a transaction": func() error {
				return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error { return s.Put(ctx, tx, 10001, 1) })
			},
		} {
			setSlots(t, db, 50, 50, 50, 50, 50, 50, 50, 50)
			if err := s.Rebalance(ctx, db.DB, 10001); err != nil { // it knows how many there are
				t.Fatal(err)
			}
			for range 8 {
				if err := f(); err != nil {
					t.Fatal(err)
				}
			}
			counts, _ := slots(t, db)
			if n := len(slices.DeleteFunc(counts, func(n int64) bool { return n == 50 })); n < 6 { // all of them, unless 10 s have passed
				t.Errorf("%s: 8 of them were at %d slots", name, n)
			}
		}
	})
}

// After a refusal the next take in a transaction locks all slots, also if it is served:
// only so the next refusal would be current. (On MySQL and MariaDB, where a plain read
// may be old.)
func TestSlottedDryInATransaction(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		s, other := makeSlots(t, db, 5, 5, 5, 5), slotted(t, db.DB)
		if err := s.Take(t.Context(), db.DB, 10001, 99); !errors.Is(err, stock.ErrSoldOut) {
			t.Fatal(err)
		}
		taken := make(chan error, 1)
		err := db.InTx(t.Context(), readCommitted, func(ctx context.Context, tx *sqldb.Tx) error {
			if err := s.Take(ctx, tx, 10001, 1); err != nil {
				return err
			}
			go func() { taken <- other.Take(context.Background(), db.DB, 10001, 1) }()
			awaitWaiting(t, db, 1)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := <-taken; err != nil {
			t.Error(err)
		}
	})
}
