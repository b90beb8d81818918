package stock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
)

var goodsTable = stock.Table{Name: "goods", ID: "id", Count: "n", Version: "version"}

// goods makes a table of goods with the ids 1 to rows, 100 of each, and its Stock.
// The columns have the names that a careless statement would take for its own.
func goods(t testing.TB, db *dbtest.DB, rows int) *stock.Stock {
	t.Helper()
	db.MustExec(t, "CREATE TABLE goods (id BIGINT PRIMARY KEY, n INT NOT NULL, k INT, version BIGINT DEFAULT 0)")
	fillGoods(t, db, rows)
	return open(t, db.DB, goodsTable)
}

func fillGoods(t testing.TB, db *dbtest.DB, rows int) {
	t.Helper()
	values := make([]string, rows)
	for i := range values {
		values[i] = fmt.Sprintf("(%d, 100)", i+1)
	}
	db.MustExec(t, "INSERT INTO goods (id, n) VALUES "+strings.Join(values, ", "))
}

// counts reads the goods by hand, in the order of their ids, with the versions.
func counts(t testing.TB, db *dbtest.DB) (n, versions []int64) {
	t.Helper()
	rows, err := db.SQL.Query("SELECT n, COALESCE(version, -1) FROM goods ORDER BY id")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var count, version int64
		if err := rows.Scan(&count, &version); err != nil {
			t.Fatal(err)
		}
		n, versions = append(n, count), append(versions, version)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return n, versions
}

func wantCounts(t testing.TB, db *dbtest.DB, want ...int64) {
	t.Helper()
	if n, _ := counts(t, db); !slices.Equal(n, want) {
		t.Errorf("the rows hold %v, want %v", n, want)
	}
}

// callers is a caller's transaction in the driver's own form.
type callers struct {
	tx               *sqldb.Tx
	commit, rollback func() error
}

// begin begins a caller's transaction, of the server's own isolation level if level
// is "". It is rolled back at the end of the test.
func begin(t testing.TB, db *dbtest.DB, level string) *callers {
	t.Helper()
	ctx := context.Background() // a ctx that ends would roll it back
	var c *callers
	if db.Pool != nil {
		tx, err := db.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(level)})
		if err != nil {
			t.Fatal(err)
		}
		c = &callers{db.Tx(tx), func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) }}
	} else {
		opts := &sql.TxOptions{Isolation: map[string]sql.IsolationLevel{"read committed": sql.LevelReadCommitted, "repeatable read": sql.LevelRepeatableRead, "serializable": sql.LevelSerializable}[level]}
		if db.Kind() == sqldb.SQLite {
			opts = nil
		}
		tx, err := db.SQL.BeginTx(ctx, opts)
		if err != nil {
			t.Fatal(err)
		}
		c = &callers{db.Tx(tx), tx.Commit, tx.Rollback}
	}
	t.Cleanup(func() { _ = c.rollback() })
	return c
}

func TestTakeAll(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := goods(t, db, 4)
		left := int64(100)
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			left -= 10
			lefts, err := s.TakeAll(t.Context(), h, []stock.Line{{ID: 3, N: 4}, {ID: 1, N: 10}, {ID: uint8(3), N: 6}})
			if want := []int64{left, left, left}; err != nil || !slices.Equal(lefts, want) {
				t.Errorf("%v, %v; want %v", lefts, err, want)
			}
		})
		n, versions := counts(t, db)
		if !slices.Equal(n, []int64{80, 100, 80, 100}) || !slices.Equal(versions, []int64{2, 0, 2, 0}) {
			t.Errorf("the rows hold %v, versions %v", n, versions)
		}
	})
}

func TestTakeAllWithoutVersion(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		goods(t, db, 2)
		s := open(t, db.DB, stock.Table{Name: db.Schema() + ".goods", ID: "id", Count: "n"})
		if lefts, err := s.TakeAll(t.Context(), db.DB, []stock.Line{{2, 100}, {1, 1}}); err != nil || !slices.Equal(lefts, []int64{0, 99}) {
			t.Errorf("%v, %v", lefts, err)
		}
		wantCounts(t, db, 99, 0)
	})
}

// A short line takes nothing of the others, also if the caller commits; the error
// names every one that is short.
func TestTakeAllShort(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := goods(t, db, 4)
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			lefts, err := s.TakeAll(t.Context(), h, []stock.Line{{4, 60}, {2, 1}, {3, 101}, {1, 100}, {4, 41}})
			var short *stock.ShortError
			if lefts != nil || !errors.Is(err, stock.ErrSoldOut) || !errors.As(err, &short) {
				t.Fatalf("%v, %v", lefts, err)
			}
			want := []stock.Short{{ID: int64(4), Wanted: 101, Left: 100}, {ID: int64(3), Wanted: 101, Left: 100}}
			if !slices.Equal(short.Lines, want) || err.Error() != "stock: goods: sold out: id 4: 101 wanted, 100 left; id 3: 101 wanted, 100 left" {
				t.Errorf("%v", err)
			}
			// A refusal leaves a transaction usable.
			if _, err := s.Put(t.Context(), h, 2, 1); err != nil {
				t.Error(err)
			}
		})
		wantCounts(t, db, 100, 102, 100, 100)
	})
}

func TestTakeAllNotFound(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := goods(t, db, 2)
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			_, err := s.TakeAll(t.Context(), h, []stock.Line{{1, 1}, {7, 1}, {2, 1000}, {8, 1}})
			if !errors.Is(err, stock.ErrNotFound) || !strings.Contains(err.Error(), "id 7, 8") {
				t.Errorf("%v", err)
			}
		})
		wantCounts(t, db, 100, 100)
	})
}

func TestTakeAllBadRow(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := goods(t, db, 2)
		bad := []string{"version = NULL"}
		if db.Kind() == sqldb.SQLite {
			bad = append(bad, "version = 0, n = 'abc'", "version = 9223372036854775807, n = 5")
		}
		for _, set := range bad {
			db.MustExec(t, "UPDATE goods SET "+set+" WHERE id = 2")
			both(t, db, func(t *testing.T, h sqldb.Handle) {
				if _, err := s.TakeAll(t.Context(), h, []stock.Line{{1, 1}, {2, 1}}); !errors.Is(err, stock.ErrBadRow) || !strings.Contains(err.Error(), "id 2") {
					t.Errorf("%s: %v", set, err)
				}
			})
		}
		n, _ := counts(t, db)
		if n[0] != 100 {
			t.Errorf("%d left", n[0])
		}
	})
}

func TestTakeAllAmbiguousID(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		db.MustExec(t, "CREATE TABLE goods (id BIGINT, n BIGINT, version BIGINT)", "INSERT INTO goods VALUES (1, 5, 0), (1, 5, 0), (2, 5, 0)")
		s := open(t, db.DB, goodsTable)
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			if _, err := s.TakeAll(t.Context(), h, []stock.Line{{2, 1}, {1, 1}}); !errors.Is(err, stock.ErrBadRow) || sqldb.Uncertain(err) {
				t.Errorf("%v", err)
			}
		})
		wantCounts(t, db, 5, 5, 5)
	})
}

func TestTakeAllRefusedBeforeSQL(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	none := db.Wrap(func(sqldb.Driver) sqldb.Driver { return nil })
	s := open(t, none, goodsTable)
	for name, lines := range map[string][]stock.Line{
		"none": nil, "n 0": {{1, 1}, {2, 0}}, "n < 0": {{1, -5}}, "no id": {{nil, 1}}, "a float": {{1, 1}, {1.5, 1}}, "too many": make([]stock.Line, stock.MaxLines+1),
	} {
		if _, err := s.TakeAll(t.Context(), none, lines); !errors.Is(err, stock.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	one := []stock.Line{{1, 1}}
	for name, h := range map[string]sqldb.Handle{"nil": nil, "a pool": db.Tx(db.SQL)} {
		if _, err := s.TakeAll(t.Context(), h, one); !errors.Is(err, stock.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What all lines of a row want together is one number, and has to be one.
func TestTakeAllSumOverflow(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := goods(t, db, 2)
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			if _, err := s.TakeAll(t.Context(), h, []stock.Line{{1, math.MaxInt64}, {2, 1}, {1, 1}}); !errors.Is(err, stock.ErrOverflow) {
				t.Errorf("%v", err)
			}
			if _, err := s.TakeAll(t.Context(), h, []stock.Line{{1, math.MaxInt64}, {2, 1}}); !errors.Is(err, stock.ErrSoldOut) {
				t.Errorf("%v", err)
			}
		})
		wantCounts(t, db, 100, 100)
	})
}

// As many lines as there may be, and of most of the table: nothing that a server
// might scan instead.
func TestTakeAllMaxLines(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := goods(t, db, stock.MaxLines)
		lines := make([]stock.Line, stock.MaxLines)
		for i := range lines {
			lines[i] = stock.Line{ID: stock.MaxLines - i, N: int64(i%50 + 1)}
		}
		lefts, err := s.TakeAll(t.Context(), db.DB, lines)
		if err != nil {
			t.Fatal(err)
		}
		n, _ := counts(t, db)
		for i, l := range lines {
			if want := 100 - l.N; lefts[i] != want || n[stock.MaxLines-1-i] != want {
				t.Fatalf("line %d: %d left, the row has %d, want %d", i, lefts[i], n[stock.MaxLines-1-i], want)
			}
		}
	})
}

// folds reports whether the ids of texts are compared without case: on PostgreSQL that
// takes a collation which a database of an encoding like SQL_ASCII does not have.
func folds(db *dbtest.DB) bool {
	if db.Kind() != sqldb.Postgres {
		return true
	}
	_, err := db.SQL.Exec("CREATE COLLATION IF NOT EXISTS nocase (provider = icu, locale = 'und-u-ks-level2', deterministic = false)")
	return err == nil
}

// texts makes goods whose ids are texts that the column compares without case.
func texts(t testing.TB, db *dbtest.DB, ids ...string) *stock.Stock {
	t.Helper()
	column := "VARCHAR(40) CHARACTER SET latin1 COLLATE latin1_swedish_ci" // not what the connection speaks
	switch db.Kind() {
	case sqldb.SQLite:
		column = "TEXT COLLATE NOCASE"
	case sqldb.Postgres:
		column = "TEXT"
		if folds(db) {
			column = "TEXT COLLATE nocase"
		}
	}
	// The key is not the primary one: a scan of that has another order.
	db.MustExec(t, "CREATE TABLE goods (pk INT PRIMARY KEY, id "+column+" NOT NULL UNIQUE, n INT NOT NULL, version BIGINT NOT NULL DEFAULT 0)")
	for i, id := range ids {
		db.MustExec(t, fmt.Sprintf("INSERT INTO goods (pk, id, n) VALUES (%d, '%s', 100)", len(ids)-i, id))
	}
	return open(t, db.DB, goodsTable)
}

// Whether two ids are one row is the database's to say, and so is their order.
func TestTakeAllCollation(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		if !folds(db) {
			t.Skip("this database has no collation without case")
		}
		s := texts(t, db, "abc", "Zoo", "mid")
		left := int64(100)
		both(t, db, func(t *testing.T, h sqldb.Handle) {
			lefts, err := s.TakeAll(t.Context(), h, []stock.Line{{"ABC", 10}, {"zoo", 1}, {"abc", 20}, {"Abc", 5}})
			left -= 35
			if err != nil || lefts[0] != left || lefts[2] != left || lefts[3] != left {
				t.Errorf("%v, %v", lefts, err)
			}
			_, err = s.TakeAll(t.Context(), h, []stock.Line{{"ABC", 20}, {"mid", 1}, {"abc", 20}, {"Abc", 35}})
			var short *stock.ShortError
			if !errors.As(err, &short) || len(short.Lines) != 1 || short.Lines[0] != (stock.Short{ID: "ABC", Wanted: 75, Left: left}) {
				t.Errorf("together they are short: %v", err)
			}
		})
		wantCounts(t, db, 30, 100, 98)
	})
}

// An id that comes as text for a column of integers is compared as the column
// compares, on every server.
func TestTakeAllTextForInteger(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := goods(t, db, 12)
		lefts, err := s.TakeAll(t.Context(), db.DB, []stock.Line{{"10", 1}, {"9", 2}, {10, 3}})
		if err != nil || !slices.Equal(lefts, []int64{96, 98, 96}) {
			t.Errorf("%v, %v", lefts, err)
		}
	})
}

// Under an empty sql_mode as well.
func TestTakeAllLax(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		goods(t, db, 2)
		lax, err := mysqldb.New(t.Context(), db.OpenSQL(t, func(c *mysql.Config) {
			c.Params = map[string]string{"sql_mode": "''"}
			c.ClientFoundRows = true
		}))
		if err != nil {
			t.Fatal(err)
		}
		s := open(t, lax, goodsTable)
		if lefts, err := s.TakeAll(t.Context(), lax, []stock.Line{{2, 1}, {1, 2}}); err != nil || !slices.Equal(lefts, []int64{99, 98}) {
			t.Errorf("%v, %v", lefts, err)
		}
		db.MustExec(t, "UPDATE goods SET version = 9223372036854775807 WHERE id = 2")
		if _, err := s.TakeAll(t.Context(), lax, []stock.Line{{2, 1}, {1, 2}}); !errors.Is(err, stock.ErrOverflow) {
			t.Errorf("no next version: %v", err)
		}
		wantCounts(t, db, 98, 99)
	})
}

// What it costs in statements.
func TestTakeAllStatements(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		goods(t, db, 3)
		handle, counter := dbtest.Count(db.DB)
		s := open(t, handle, goodsTable)
		_, _ = s.Take(t.Context(), handle, 1, 1000) // the first refusal asks if there are reservations
		both(t, &dbtest.DB{DB: handle, SQL: db.SQL, Pool: db.Pool}, func(t *testing.T, h sqldb.Handle) {
			want := 2
			if _, callers := h.(*sqldb.Tx); callers && db.Kind() == sqldb.SQLite {
				want = 3 // it takes the write lock first
			}
			counter.Take()
			_, err := s.TakeAll(t.Context(), h, []stock.Line{{3, 1}, {1, 1}, {2, 1}})
			if q := counter.Take(); err != nil || len(q) != want {
				t.Errorf("%d statements, %v:\n%s", len(q), err, strings.Join(q, "\n"))
			}
			_, err = s.TakeAll(t.Context(), h, []stock.Line{{3, 1000}, {1, 1}, {2, 1}})
			if q := counter.Take(); !errors.Is(err, stock.ErrSoldOut) || len(q) != want-1 {
				t.Errorf("a refusal: %d statements, %v:\n%s", len(q), err, strings.Join(q, "\n"))
			}
		})
	})
}

// A row that the database does not change leaves the others as they are, whatever
// the caller does then.
func TestTakeAllUnmoved(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres, sqldb.SQLite}, func(t *testing.T, db *dbtest.DB) {
		s := goods(t, db, 2)
		if db.Kind() == sqldb.Postgres {
			db.MustExec(t, "CREATE FUNCTION stay() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
				"CREATE TRIGGER stay BEFORE UPDATE ON goods FOR EACH ROW WHEN (OLD.id = 2) EXECUTE FUNCTION stay()")
		} else {
			db.MustExec(t, "CREATE TRIGGER stay BEFORE UPDATE ON goods WHEN OLD.id = 2 BEGIN SELECT RAISE(IGNORE); END")
		}
		lines := []stock.Line{{1, 1}, {2, 1}}
		if _, err := s.TakeAll(t.Context(), db.DB, lines); !errors.Is(err, stock.ErrBadRow) {
			t.Errorf("%v", err)
		}
		tx := begin(t, db, "")
		if _, err := s.TakeAll(t.Context(), tx.tx, lines); !errors.Is(err, stock.ErrBadRow) {
			t.Errorf("in a transaction: %v", err)
		}
		if err := tx.commit(); err == nil {
			t.Error("half an order could be committed")
		}
		wantCounts(t, db, 100, 100)
	})
}
