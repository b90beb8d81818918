package stock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock/locktest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
)

func TestMain(m *testing.M) {
	// database/sql keeps one goroutine for a pool, and ends it soon after Close.
	goleak.VerifyTestMain(dbtest.Run(func() int {
		return locktest.Main(m, map[string]locktest.Child{"mix": mixChild, "combine": combineChild, "slots": slotChild})
	}))
}

var table = stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"}

// bonus makes the red-packet table with one row, id 10001, and its Stock.
func bonus(t testing.TB, db *dbtest.DB, left string) *stock.Stock {
	t.Helper()
	db.MustExec(t, "CREATE TABLE t_bonus (id BIGINT PRIMARY KEY, left_count INT, version BIGINT DEFAULT 0)",
		"INSERT INTO t_bonus (id, left_count) VALUES (10001, "+left+")")
	return open(t, db.DB, table)
}

func open(t testing.TB, db *sqldb.DB, table stock.Table) *stock.Stock {
	t.Helper()
	s, err := stock.New(db, table)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// row reads the row by hand.
func row(t testing.TB, db *dbtest.DB) (left, version int64) {
	t.Helper()
	if err := db.SQL.QueryRow("SELECT left_count, version FROM t_bonus WHERE id = 10001").Scan(&left, &version); err != nil {
		t.Fatal(err)
	}
	return left, version
}

// inTx runs f with a Tx of the caller's transaction in the driver's own form, and
// commits.
func inTx(t testing.TB, db *dbtest.DB, f func(h sqldb.Handle)) {
	t.Helper()
	ctx := context.Background()
	if db.Pool != nil {
		if err := pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error { f(db.Tx(tx)); return nil }); err != nil {
			t.Fatal(err)
		}
		return
	}
	tx, err := db.SQL.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	f(db.Tx(tx))
	if err := tx.Commit(); err != nil {
		t.Fatal(err)
	}
}

// both runs f in autocommit and in a transaction.
func both(t *testing.T, db *dbtest.DB, f func(t *testing.T, h sqldb.Handle)) {
	t.Helper()
	t.Run("db", func(t *testing.T) { f(t, db.DB) })
	t.Run("tx", func(t *testing.T) { inTx(t, db, func(h sqldb.Handle) { f(t, h) }) })
}

func TestTakePutLeft(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := bonus(t, db, "100")
		wantVersion := int64(0)
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			ctx := t.Context()
			if left, err := s.Take(ctx, h, 10001, 30); err != nil || left != 70 {
				t.Errorf("Take: %d, %v", left, err)
			}
			if left, err := s.Put(ctx, h, 10001, 20); err != nil || left != 90 {
				t.Errorf("Put: %d, %v", left, err)
			}
			if left, err := s.Take(ctx, h, 10001, 90); err != nil || left != 0 {
				t.Errorf("Take to zero: %d, %v", left, err)
			}
			if left, err := s.Put(ctx, h, 10001, 100); err != nil || left != 100 {
				t.Errorf("Put: %d, %v", left, err)
			}
			if left, err := s.Left(ctx, h, 10001); err != nil || left != 100 {
				t.Errorf("Left: %d, %v", left, err)
			}
			wantVersion += 4
		})
		if left, version := row(t, db); left != 100 || version != wantVersion {
			t.Errorf("the row is %d, version %d; want 100 and %d", left, version, wantVersion)
		}
	})
}

func TestSoldOut(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := bonus(t, db, "3")
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			for range 3 { // also when the row is known to be dry
				_, err := s.Take(t.Context(), h, 10001, 4)
				var short *stock.ShortError
				if !errors.Is(err, stock.ErrSoldOut) || !errors.As(err, &short) || len(short.Lines) != 1 {
					t.Fatalf("the answer is %v", err)
				}
				if l := short.Lines[0]; l.ID != int64(10001) || l.Wanted != 4 || l.Left != 3 || short.Table != "t_bonus" {
					t.Errorf("%+v", short)
				}
				if want := "stock: t_bonus: sold out: id 10001: 4 wanted, 3 left"; err.Error() != want {
					t.Errorf("%q, want %q", err, want)
				}
			}
			// A refusal leaves a transaction usable.
			if _, err := s.Put(t.Context(), h, 10001, 1); err != nil {
				t.Error(err)
			}
			if left, err := s.Take(t.Context(), h, 10001, 1); err != nil || left != 3 {
				t.Errorf("after a refusal: %d, %v", left, err)
			}
			// More than the column can hold is still only more than there is.
			if _, err := s.Take(t.Context(), h, 10001, math.MaxInt64); !errors.Is(err, stock.ErrSoldOut) {
				t.Errorf("MaxInt64: %v", err)
			}
		})
		if left, version := row(t, db); left != 3 || version != 4 {
			t.Errorf("the row is %d, version %d", left, version)
		}
	})
}

// After a refusal the next takes read first, and what another process puts back is
// seen at once.
func TestSoldOutReadsFirst(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		bonus(t, db, "0")
		handle, counter := dbtest.Count(db.DB)
		s := open(t, handle, table)
		other := open(t, db.Another(t).DB, table)
		take := func() error { _, err := s.Take(t.Context(), handle, 10001, 1); return err }

		if err := take(); !errors.Is(err, stock.ErrSoldOut) {
			t.Fatal(err)
		}
		if q := counter.Take(); len(q) != 2 || !strings.Contains(q[0], "UPDATE") || !strings.HasPrefix(q[1], "SELECT") {
			t.Errorf("the first refusal was %q", q)
		}
		if err := take(); !errors.Is(err, stock.ErrSoldOut) {
			t.Fatal(err)
		}
		if q := counter.Take(); len(q) != 1 || !strings.HasPrefix(q[0], "SELECT") {
			t.Errorf("the second refusal was %q", q)
		}
		if _, err := other.Put(t.Context(), db.DB, 10001, 5); err != nil {
			t.Fatal(err)
		}
		if err := take(); err != nil {
			t.Errorf("refused from memory: %v", err)
		}
		counter.Take()
		if err := take(); err != nil {
			t.Error(err)
		}
		if q := counter.Take(); len(q) != 1 {
			t.Errorf("a take is one round trip, and was %q", q)
		}
	})
}

// In a transaction a take is one statement where the server can RETURN, two where
// the count has to be read back, and the session's LAST_INSERT_ID stays the
// caller's.
func TestTakeInTxStatements(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		bonus(t, db, "10")
		handle, counter := dbtest.Count(db.DB)
		s := open(t, handle, table)
		want := 1
		if db.Kind().InnoDB() {
			want = 2
		}
		err := handle.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := s.Take(ctx, tx, 10001, 1)
			if q := counter.Take(); len(q) != want {
				t.Errorf("%d statements, want %d: %q", len(q), want, q)
			}
			if err == nil && db.Kind().InnoDB() {
				var id int64
				err = tx.QueryRow(ctx, "SELECT LAST_INSERT_ID()").Scan(&id)
				if id != 0 {
					t.Errorf("LAST_INSERT_ID() is %d", id)
				}
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

func TestNotFound(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := bonus(t, db, "3")
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			for name, f := range map[string]func(context.Context, sqldb.Handle, any, int64) (int64, error){
				"Take": s.Take, "Put": s.Put,
				"Left": func(ctx context.Context, h sqldb.Handle, id any, _ int64) (int64, error) { return s.Left(ctx, h, id) },
			} {
				if _, err := f(t.Context(), h, 4711, 1); !errors.Is(err, stock.ErrNotFound) || errors.Is(err, stock.ErrSoldOut) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	})
}

// What does not fit is an error, and changes nothing, also where the session would
// let it saturate.
func TestOverflow(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		column := "SMALLINT"
		if db.Kind() == sqldb.SQLite {
			column = "INTEGER"
		}
		handles := map[string]*sqldb.DB{"": db.DB}
		if db.Kind().InnoDB() {
			lax := db.OpenSQL(t, func(c *mysql.Config) { c.Params = map[string]string{"sql_mode": "''"} })
			h, err := mysqldb.New(t.Context(), lax)
			if err != nil {
				t.Fatal(err)
			}
			handles["sql_mode empty"] = h
		}
		db.MustExec(t, "CREATE TABLE t_bonus (id BIGINT PRIMARY KEY, left_count "+column+" NOT NULL, version BIGINT NOT NULL DEFAULT 0)",
			"INSERT INTO t_bonus (id, left_count) VALUES (10001, 32000)")
		if db.Kind() == sqldb.SQLite {
			db.MustExec(t, "UPDATE t_bonus SET left_count = 9223372036854775000")
		}
		before, _ := row(t, db)
		for name, h := range handles {
			s := open(t, h, table)
			if _, err := s.Put(t.Context(), h, 10001, 1000); !errors.Is(err, stock.ErrOverflow) {
				t.Errorf("%s: %v", name, err)
			}
			err := h.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				_, err := s.Put(ctx, tx, 10001, 1000)
				return err
			})
			if !errors.Is(err, stock.ErrOverflow) {
				t.Errorf("%s, in a transaction: %v", name, err)
			}
		}
		if left, version := row(t, db); left != before || version != 0 {
			t.Errorf("the row is %d, version %d", left, version)
		}
		if lax := handles["sql_mode empty"]; lax != nil { // the control: the same by hand saturates
			if _, err := lax.Exec(t.Context(), "UPDATE t_bonus SET left_count = left_count + 1000"); err != nil {
				t.Error(err)
			}
			if left, _ := row(t, db); left != 32767 {
				t.Errorf("by hand the row is %d: this server no longer saturates", left)
			}
		}
	})
}

func TestBadRow(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := bonus(t, db, "NULL")
		check := func(what string) {
			t.Helper()
			both(t, db, func(t *testing.T, h sqldb.Handle) {
				if _, err := s.Take(t.Context(), h, 10001, 1); !errors.Is(err, stock.ErrBadRow) {
					t.Errorf("Take, %s: %v", what, err)
				}
				if _, err := s.Put(t.Context(), h, 10001, 1); !errors.Is(err, stock.ErrBadRow) {
					t.Errorf("Put, %s: %v", what, err)
				}
			})
		}
		check("count NULL")
		db.MustExec(t, "UPDATE t_bonus SET left_count = 5, version = NULL")
		check("version NULL")
		if db.Kind() == sqldb.SQLite {
			db.MustExec(t, "UPDATE t_bonus SET left_count = 'abc', version = 0")
			check("a text") // 'abc' >= 1 is true there
			db.MustExec(t, "UPDATE t_bonus SET left_count = 5, version = 9223372036854775807")
			check("no next version")
		}
	})
}

func TestAmbiguousID(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		db.MustExec(t, "CREATE TABLE t_bonus (id BIGINT, left_count BIGINT, version BIGINT)",
			"INSERT INTO t_bonus VALUES (1, 5, 0), (1, 5, 0)")
		// MySQL and MariaDB see it too late, and must say so.
		late := db.Kind().InnoDB()
		s := open(t, db.DB, table)
		if _, err := s.Take(t.Context(), db.DB, 1, 1); !errors.Is(err, stock.ErrBadRow) || sqldb.Uncertain(err) != late {
			t.Errorf("Take: %v", err)
		}
		if _, err := s.Put(t.Context(), db.DB, 1, 1); !errors.Is(err, stock.ErrBadRow) || sqldb.Uncertain(err) != late {
			t.Errorf("Put: %v", err)
		}
		err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := s.Take(ctx, tx, 1, 1)
			return err
		})
		if !errors.Is(err, stock.ErrBadRow) {
			t.Errorf("in a transaction: %v", err)
		}
		var sum int64 // both rows, after one Take, one Put and a transaction rolled back
		if err := db.SQL.QueryRow("SELECT SUM(left_count) FROM t_bonus").Scan(&sum); err != nil || sum != 10 {
			t.Errorf("the rows hold %d, %v", sum, err)
		}
	})
}

// A count that is no integer is left alone: rounding would give away what is not
// there.
func TestNoInteger(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		columns := []string{"DECIMAL(10,2)", "DOUBLE PRECISION"}
		for i, column := range columns {
			name := fmt.Sprintf("half%d", i)
			db.MustExec(t, "CREATE TABLE "+name+" (id BIGINT PRIMARY KEY, n "+column+" NOT NULL)", "INSERT INTO "+name+" VALUES (1, 1.5), (2, 3)")
			s := open(t, db.DB, stock.Table{Name: name, ID: "id", Count: "n"})
			both(t, db, func(t *testing.T, h sqldb.Handle) {
				for _, f := range []func(context.Context, sqldb.Handle, any, int64) (int64, error){s.Take, s.Put} {
					if _, err := f(t.Context(), h, 1, 1); !errors.Is(err, stock.ErrBadRow) {
						t.Errorf("%s: %v", column, err)
					}
				}
			})
			if db.Kind() != sqldb.SQLite || i == 0 { // there, 3 in a DOUBLE column is a REAL
				if left, err := s.Take(t.Context(), db.DB, 2, 1); err != nil || left != 2 {
					t.Errorf("%s, a whole number: %d, %v", column, left, err)
				}
			}
		}
	})
}

// What no signed 64-bit integer can hold is refused, and does not come back as
// something negative.
func TestUnsigned(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		db.MustExec(t, "CREATE TABLE big (id INT PRIMARY KEY, n BIGINT UNSIGNED NOT NULL)", "INSERT INTO big VALUES (1, 9223372036854775800), (2, 18446744073709551615)")
		s := open(t, db.DB, stock.Table{Name: "big", ID: "id", Count: "n"})
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			if left, err := s.Put(t.Context(), h, 1, 100); !errors.Is(err, stock.ErrOverflow) {
				t.Errorf("Put: %d, %v", left, err)
			}
			if left, err := s.Take(t.Context(), h, 2, 1); !errors.Is(err, stock.ErrBadRow) {
				t.Errorf("Take: %d, %v", left, err)
			}
			if left, err := s.Left(t.Context(), h, 2); !errors.Is(err, stock.ErrBadRow) {
				t.Errorf("Left: %d, %v", left, err)
			}
		})
	})
}

// A row that can be read and not be changed is no endless loop.
func TestUnmoved(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		bonus(t, db, "5")
		db.MustExec(t, "CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
			"CREATE TRIGGER stay BEFORE UPDATE ON t_bonus FOR EACH ROW EXECUTE FUNCTION stay()")
		handle, counter := dbtest.Count(db.DB)
		s := open(t, handle, table)
		if _, err := s.Take(t.Context(), handle, 10001, 1); !errors.Is(err, stock.ErrBadRow) {
			t.Errorf("the answer is %v", err)
		}
		if q := counter.Take(); len(q) > 20 {
			t.Errorf("%d statements", len(q))
		}
		err := handle.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := s.Take(ctx, tx, 10001, 1)
			return err
		})
		if !errors.Is(err, stock.ErrBadRow) {
			t.Errorf("in a transaction: %v", err)
		}
	})
}

// Under SERIALIZABLE as the database's default a crowd fails often, and is served
// all the same.
func TestSerializableCrowd(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		s := bonus(t, db, "1000")
		cfg := db.Pool.Config()
		cfg.ConnConfig.RuntimeParams["default_transaction_isolation"] = "serializable"
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		strict, err := pgdb.New(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range 5 {
					if _, err := s.Take(t.Context(), strict, 10001, 1); err != nil {
						t.Error(err)
					}
				}
			})
		}
		wg.Wait()
		if left, _ := row(t, db); left != 1000-5*goroutines {
			t.Errorf("%d left", left)
		}
	})
}

// Ids of other types, a table with a schema, a table without a version.
func TestTextIDAndSchema(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		db.MustExec(t, "CREATE TABLE coupon (code VARCHAR(40) PRIMARY KEY, n BIGINT NOT NULL)",
			"INSERT INTO coupon VALUES ('summer ''26', 2)")
		s := open(t, db.DB, stock.Table{Name: db.Schema() + ".coupon", ID: "code", Count: "n"})
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			_, err := s.Take(t.Context(), h, "summer '26", 1)
			if err != nil {
				t.Error(err)
			}
		})
		if _, err := s.Take(t.Context(), db.DB, "summer '26", 1); !errors.Is(err, stock.ErrSoldOut) {
			t.Errorf("the answer is %v", err)
		}
	})
}

// What can't be right is refused before any SQL runs: the driver is nil.
func TestRefusedBeforeSQL(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	none := db.Wrap(func(sqldb.Driver) sqldb.Driver { return nil })
	s := open(t, none, table)
	var nilDB *sqldb.DB
	var nilTx *sqldb.Tx
	other, err := sqldb.New(nil, sqldb.Server{Kind: sqldb.MySQL, Schema: "x"})
	if err != nil {
		t.Fatal(err)
	}
	cases := map[string]struct {
		h  sqldb.Handle
		id any
		n  int64
	}{
		"n 0": {none, 1, 0}, "n -5": {none, 1, -5}, "n MinInt64": {none, 1, math.MinInt64}, "nil id": {none, nil, 1},
		"float id": {none, 1.9, 1}, "bool id": {none, true, 1}, "time id": {none, time.Now(), 1}, "nil pointer": {none, (*int)(nil), 1},
		"NULL id": {none, sql.NullInt64{}, 1}, "huge id": {none, uint64(math.MaxUint64), 1}, "struct id": {none, struct{}{}, 1},
		"nil handle": {nil, 1, 1}, "nil DB": {nilDB, 1, 1}, "nil Tx": {nilTx, 1, 1}, "a pool": {db.Tx(db.SQL), 1, 1}, "another database": {other, 1, 1},
	}
	for name, c := range cases {
		if _, err := s.Take(t.Context(), c.h, c.id, c.n); !errors.Is(err, stock.ErrInvalid) {
			t.Errorf("Take, %s: %v", name, err)
		}
		if _, err := s.Put(t.Context(), c.h, c.id, c.n); !errors.Is(err, stock.ErrInvalid) {
			t.Errorf("Put, %s: %v", name, err)
		}
	}
	for name, bad := range map[string]stock.Table{
		"no table": {ID: "id", Count: "n"}, "no id": {Name: "t", Count: "n"}, "no count": {Name: "t", ID: "id"},
		"injection": {Name: "t; DROP TABLE t", ID: "id", Count: "n"}, "quote": {Name: "t", ID: `i"d`, Count: "n"}, "NUL": {Name: "t\x00", ID: "id", Count: "n"},
		"two dots": {Name: "a.b.c", ID: "id", Count: "n"}, "too long": {Name: strings.Repeat("t", 64), ID: "id", Count: "n"},
		"same column": {Name: "t", ID: "id", Count: "id"}, "bad version": {Name: "t", ID: "id", Count: "n", Version: "v v"},
	} {
		if _, err := stock.New(none, bad); !errors.Is(err, stock.ErrInvalid) {
			t.Errorf("New, %s: %v", name, err)
		}
	}
	if _, err := stock.New(nil, table); !errors.Is(err, stock.ErrInvalid) {
		t.Errorf("New(nil): %v", err)
	}
}

// A missing table or column says so, and what to do.
func TestMissing(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := open(t, db.DB, table)
		if _, err := s.Take(t.Context(), db.DB, 1, 1); sqldb.ClassOf(err) != sqldb.NoTable || !strings.Contains(err.Error(), "t_bonus does not exist") {
			t.Errorf("no table: %v", err)
		}
		db.MustExec(t, "CREATE TABLE t_bonus (id BIGINT PRIMARY KEY, left_count INT)")
		if _, err := s.Take(t.Context(), db.DB, 1, 1); sqldb.ClassOf(err) != sqldb.NoColumn || !strings.Contains(err.Error(), "version-column") {
			t.Errorf("no column: %v", err)
		}
	})
}

// A column that is not there is told, whichever it is and whatever is called. (In double
// quotes SQLite would take its name for a text.)
func TestMissingColumn(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		shelf(t, db, 1)
		for column, missing := range map[string]stock.Table{
			"sku":      {Name: "goods", ID: "sku", Count: "n"},
			"quantity": {Name: "goods", ID: "id", Count: "quantity"},
			"revision": {Name: "goods", ID: "id", Count: "n", Version: "revision"},
		} {
			s := open(t, db.DB, missing)
			lines := []stock.Line{{ID: 1, N: 1}}
			both(t, db, func(t *testing.T, h sqldb.Handle) {
				calls := map[string]func() error{
					"Take":     func() error { _, err := s.Take(t.Context(), h, 1, 1); return err },
					"Put":      func() error { _, err := s.Put(t.Context(), h, 1, 1); return err },
					"TakeAll":  func() error { _, err := s.TakeAll(t.Context(), h, lines); return err },
					"TakeOnce": func() error { _, err := s.TakeOnce(t.Context(), h, 1, 1, "user"); return err },
					"Reserve":  func() error { _, err := s.Reserve(t.Context(), h, lines, minute); return err },
				}
				if column != "revision" {
					calls["Left"] = func() error { _, err := s.Left(t.Context(), h, 1); return err }
				}
				if _, inTx := h.(*sqldb.Tx); inTx && db.Kind() == sqldb.Postgres {
					return // after the first of them nothing more would run
				}
				for name, call := range calls {
					if err := call(); sqldb.ClassOf(err) != sqldb.NoColumn {
						t.Errorf("%s without %s: %v", name, column, err)
					}
				}
			})
		}
	})
}

// A snapshot that is too old is never taken for the truth: MySQL and MariaDB judge
// the current row, PostgreSQL says that the transaction has to begin anew.
func TestOldSnapshot(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		s := bonus(t, db, "0")
		opts := sqldb.TxOptions{Isolation: sql.LevelRepeatableRead}
		err := db.InTx(t.Context(), opts, func(ctx context.Context, tx *sqldb.Tx) error {
			if left, err := s.Left(ctx, tx, 10001); err != nil || left != 0 {
				t.Errorf("Left: %d, %v", left, err)
			}
			if _, err := s.Put(ctx, db.DB, 10001, 5); err != nil { // another transaction
				t.Error(err)
			}
			left, err := s.Take(ctx, tx, 10001, 2)
			if err == nil && left != 3 {
				t.Errorf("left: %d", left)
			}
			return err
		})
		switch {
		case errors.Is(err, stock.ErrSoldOut):
			t.Errorf("refused by an old snapshot: %v", err)
		case err != nil && !sqldb.Retryable(err):
			t.Errorf("the answer is %v", err)
		}
		want := []int64{5, 3} // begun anew, or taken
		if left, _ := row(t, db); !slices.Contains(want, left) || (err == nil) != (left == 3) {
			t.Errorf("left %d, error %v", left, err)
		}
	})
}
