package handle_test

import (
	"context"
	"database/sql"
	"encoding/hex"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
)

var columns = map[sqldb.Kind]string{
	sqldb.Postgres: "id BIGINT PRIMARY KEY, n BIGINT, s TEXT, b BYTEA, f DOUBLE PRECISION, flag BOOLEAN, at TIMESTAMPTZ",
	sqldb.MySQL:    "id BIGINT PRIMARY KEY, n BIGINT, s LONGTEXT CHARACTER SET utf8mb4, b LONGBLOB, f DOUBLE, flag BOOLEAN, at DATETIME(6)",
	sqldb.MariaDB:  "id BIGINT PRIMARY KEY, n BIGINT, s LONGTEXT CHARACTER SET utf8mb4, b LONGBLOB, f DOUBLE, flag BOOLEAN, at DATETIME(6)",
	sqldb.SQLite:   "id INTEGER PRIMARY KEY, n INTEGER, s TEXT, b BLOB, f REAL, flag INTEGER, at INTEGER",
}

// record is one row of values.
type record struct {
	n    int64
	s    string
	b    []byte
	f    float64
	flag bool
	at   time.Time
}

func everyByte() []byte {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return b
}

func records() []record {
	utc := func(y int, m time.Month, d, h, mi, s, us int) time.Time {
		return time.Date(y, m, d, h, mi, s, us*1000, time.UTC)
	}
	return []record{
		{0, "", []byte{}, 0, false, utc(1970, 1, 1, 0, 0, 0, 0)},
		{math.MaxInt64, "plain", everyByte(), math.MaxFloat64, true, utc(2024, 2, 29, 23, 59, 59, 999999)},
		{math.MinInt64, "Zürich, 東京, 😀", []byte{0}, -math.MaxFloat64, true, utc(1969, 12, 31, 23, 59, 59, 999999)},
		{-1, `it's "quoted" ` + "`so`", []byte("'"), -0.1, false, utc(1900, 3, 1, 12, 0, 0, 1)},
		{1 << 53, `C:\new\table\0`, []byte(`\`), 1.0 / 3, true, utc(2024, 3, 10, 2, 30, 0, 123456)},       // in no clock of New York
		{42, "?, ?? $1 :name -- # /* */ ;", []byte("?;--"), 5e-324, false, utc(2024, 11, 3, 1, 30, 0, 0)}, // twice there
		{7, "line\nline\r\n\ttab \x1a\x01", []byte("\r\n\x1a"), 1e15, true, utc(9999, 12, 31, 23, 59, 59, 0)},
		{8, strings.Repeat("long 😀 ", 20_000), []byte(strings.Repeat("\x00\xff", 50_000)), 12345.678, true, utc(2038, 1, 19, 3, 14, 8, 500000)},
	}
}

// ways are the paths that a statement takes to the server.
func ways(pool *sql.DB, db *sqldb.DB) map[string]func(ctx context.Context, query string, args ...any) (sqldb.Result, error) {
	return map[string]func(ctx context.Context, query string, args ...any) (sqldb.Result, error){
		"DB": db.Exec,
		"Change": func(ctx context.Context, query string, args ...any) (sqldb.Result, error) {
			c, err := db.Change(ctx, sqldb.Change{Op: "test", Query: query, Args: args})
			if err != nil {
				return sqldb.Result{}, err
			}
			return c.Result, nil
		},
		"InTx": func(ctx context.Context, query string, args ...any) (res sqldb.Result, err error) {
			err = db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				res, err = tx.Exec(ctx, query, args...)
				return err
			})
			return res, err
		},
		"Tx": func(ctx context.Context, query string, args ...any) (res sqldb.Result, err error) {
			tx, err := pool.BeginTx(ctx, nil)
			if err != nil {
				return res, err
			}
			if res, err = db.Tx(tx).Exec(ctx, query, args...); err != nil {
				return res, errors.Join(err, tx.Rollback())
			}
			return res, tx.Commit()
		},
	}
}

// A value means the same through every driver and every setting of it.
func TestValues(t *testing.T) {
	each(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
		fresh.MustExec(t, "CREATE TABLE v ("+columns[fl.kind]+")")
		ctx := t.Context()
		id := int64(0)
		for way, exec := range ways(pool, db) {
			for _, r := range records() {
				id++
				tokyo := r.at.In(time.FixedZone("JST", 9*3600))
				if _, err := exec(ctx, holes(fl.kind, "INSERT INTO v VALUES (?, ?, ?, ?, ?, ?, ?)"), id, r.n, r.s, r.b, r.f, r.flag, tokyo); err != nil {
					t.Fatalf("%s: %.40q: %v", way, r.s, err)
				}
				read(t, fl, db, way, id, r)
			}
			id++
			var noTime *time.Time
			if _, err := exec(ctx, holes(fl.kind, "INSERT INTO v VALUES (?, ?, ?, ?, ?, ?, ?)"), id, nil, (*string)(nil), []byte(nil), sql.NullFloat64{}, sql.NullBool{}, noTime); err != nil {
				t.Fatalf("%s: NULLs: %v", way, err)
			}
			nulls(t, db, way, id)
		}
	})
}

const selected = "SELECT n, s, b, f, flag, at FROM v WHERE id = ?"

func read(t *testing.T, fl flavour, db *sqldb.DB, way string, id int64, want record) {
	t.Helper()
	query := holes(fl.kind, selected)
	if fl.latin1 {
		query = strings.Replace(query, " s,", " CAST(s AS BINARY),", 1) // or the server makes latin1 of it
	}
	// What the server has, by its own word.
	var stored string
	encode := map[sqldb.Kind]string{sqldb.Postgres: "encode(convert_to(s, 'UTF8'), 'hex')", sqldb.SQLite: "hex(s)", sqldb.MySQL: "HEX(s)", sqldb.MariaDB: "HEX(s)"}[fl.kind]
	if err := db.QueryRow(t.Context(), holes(fl.kind, "SELECT "+encode+" FROM v WHERE id = ?"), id).Scan(&stored); err != nil || !strings.EqualFold(stored, hex.EncodeToString([]byte(want.s))) {
		t.Errorf("%s: %.40q is stored as %.40s, %v", way, want.s, stored, err)
	}
	var got record
	if err := db.QueryRow(t.Context(), query, id).Scan(&got.n, &got.s, &got.b, &got.f, &got.flag, &got.at); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v is not %v, %v", way, brief(got), brief(want), err)
	}
	var p struct {
		n    *int64
		s    *string
		b    *[]byte
		f    *float64
		flag *bool
		at   *time.Time
	}
	if err := db.QueryRow(t.Context(), query, id).Scan(&p.n, &p.s, &p.b, &p.f, &p.flag, &p.at); err != nil {
		t.Errorf("%s: into pointers: %v", way, err)
	} else if got := (record{*p.n, *p.s, *p.b, *p.f, *p.flag, *p.at}); !reflect.DeepEqual(got, want) {
		t.Errorf("%s: through pointers %v is not %v", way, brief(got), brief(want))
	}
	var v struct {
		n    sql.NullInt64
		s    sql.NullString
		b    sql.Null[[]byte]
		f    sql.NullFloat64
		flag sql.NullBool
		at   sql.NullTime
	}
	if err := db.QueryRow(t.Context(), query, id).Scan(&v.n, &v.s, &v.b, &v.f, &v.flag, &v.at); err != nil {
		t.Errorf("%s: into Scanners: %v", way, err)
	} else if got := (record{v.n.Int64, v.s.String, v.b.V, v.f.Float64, v.flag.Bool, v.at.Time}); !reflect.DeepEqual(got, want) {
		t.Errorf("%s: through Scanners %v is not %v", way, brief(got), brief(want))
	}
	var bytesOfText []byte
	var textOfBytes string
	var nAsText, nAsBytes string
	var a any
	if err := db.QueryRow(t.Context(), holes(fl.kind, strings.Replace(query, "n, ", "n, n, n, ", 1)), id).Scan(&nAsText, &a, &nAsBytes, &bytesOfText, &textOfBytes, new(any), new(any), new(any)); err != nil || string(bytesOfText) != want.s || textOfBytes != string(want.b) || nAsText != nAsBytes || a != want.n {
		t.Errorf("%s: into others: %v, %v", way, err, a)
	}
}

// brief keeps long values out of an error's text.
func brief(r record) record {
	if len(r.s) > 60 {
		r.s = r.s[:60]
	}
	if len(r.b) > 60 {
		r.b = r.b[:60]
	}
	return r
}

func nulls(t *testing.T, db *sqldb.DB, way string, id int64) {
	t.Helper()
	query := holes(db.Kind(), selected)
	n, s, f, flag, at := new(int64), new(string), new(float64), new(bool), new(time.Time)
	b := []byte("x")
	if err := db.QueryRow(t.Context(), query, id).Scan(&n, &s, &b, &f, &flag, &at); err != nil || n != nil || s != nil || b != nil || f != nil || flag != nil || at != nil {
		t.Errorf("%s: NULLs came back as %v %v %v %v %v %v, %v", way, n, s, b, f, flag, at, err)
	}
	var a any = 1
	var st sql.NullTime
	if err := db.QueryRow(t.Context(), query, id).Scan(&a, new(any), new(any), new(any), new(any), &st); err != nil || a != nil || st.Valid {
		t.Errorf("%s: NULLs: %v %v, %v", way, a, st, err)
	}
	for i := range 6 {
		if i == 2 {
			continue
		}
		dest := []any{new(any), new(any), new(any), new(any), new(any), new(any)}
		dest[i] = []any{new(int64), new(string), nil, new(float64), new(bool), new(time.Time)}[i]
		if err := db.QueryRow(t.Context(), query, id).Scan(dest...); err == nil || !strings.Contains(err.Error(), "NULL") {
			t.Errorf("%s: a NULL went into a %T: %v", way, dest[i], err)
		}
	}
}

// The count of affected rows means the same where a statement changes a column.
func TestAffectedRows(t *testing.T) {
	each(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
		fresh.MustExec(t, "CREATE TABLE r (id BIGINT PRIMARY KEY, n BIGINT)")
		for way, exec := range ways(pool, db) {
			for _, c := range []struct {
				query string
				args  []any
				want  int64
			}{
				{"DELETE FROM r", nil, -1},
				{"INSERT INTO r VALUES (?, ?), (?, ?), (3, 0)", []any{1, 0, 2, 0}, 3},
				{"UPDATE r SET n = n + 1 WHERE id = ?", []any{1}, 1},
				{"UPDATE r SET n = n + 1 WHERE id <= ?", []any{2}, 2},
				{"UPDATE r SET n = n + 1", nil, 3},
				{"UPDATE r SET n = n + 1 WHERE id = ?", []any{9}, 0},
				{"UPDATE r SET n = n - 5 WHERE id = ? AND n >= 5", []any{1}, 0},
				{"DELETE FROM r WHERE id = ?", []any{1}, 1},
				{"DELETE FROM r WHERE id = ?", []any{1}, 0},
			} {
				res, err := exec(t.Context(), holes(fl.kind, c.query), c.args...)
				if err != nil || c.want >= 0 && res.RowsAffected != c.want {
					t.Errorf("%s: %s: %d rows, want %d, %v", way, c.query, res.RowsAffected, c.want, err)
				}
			}
		}
	})
}

// What go-sql-driver hides from everybody: with parseTime and a loc that has summer
// time, an hour of UTC that this loc skips is moved. As text it arrives.
func TestTimeInTheGapOfLoc(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, fresh *dbtest.DB) {
		pool := fresh.OpenSQL(t, location("America/New_York"))
		db, err := mysqldb.New(t.Context(), pool)
		if err != nil {
			t.Fatal(err)
		}
		fresh.MustExec(t, "CREATE TABLE v ("+columns[fresh.Kind()]+")")
		want := time.Date(2024, 3, 10, 2, 30, 0, 0, time.UTC)
		if _, err := db.Exec(t.Context(), "INSERT INTO v (id, at) VALUES (1, ?)", want); err != nil {
			t.Fatal(err)
		}
		var direct, text time.Time
		if err := db.QueryRow(t.Context(), "SELECT at, CAST(at AS CHAR) FROM v").Scan(&direct, &text); err != nil || text != want {
			t.Errorf("%v, %v", text, err)
		}
		if direct == want {
			t.Error("it arrives as a time too: say so in the documentation of Rows.Scan")
		}
	})
}

// A BIGINT UNSIGNED goes into a uint64, and into nothing that cannot hold it.
func TestUnsigned(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, fresh *dbtest.DB) {
		fresh.MustExec(t, "CREATE TABLE u (n BIGINT UNSIGNED)", "INSERT INTO u VALUES (18446744073709551615)")
		for name, edit := range settings {
			db, err := mysqldb.New(t.Context(), fresh.OpenSQL(t, edit))
			if err != nil {
				t.Fatal(err)
			}
			for _, query := range []string{"SELECT n FROM u", "SELECT n FROM u WHERE 'prepared\\\\' <> ?"} {
				args := []any{int64(1)}[:strings.Count(query, "?")]
				var n uint64
				var s string
				if err := db.QueryRow(t.Context(), query, args...).Scan(&n); err != nil || n != math.MaxUint64 {
					t.Errorf("%s: %d, %v", name, n, err)
				}
				if err := db.QueryRow(t.Context(), query, args...).Scan(&s); err != nil || s != "18446744073709551615" {
					t.Errorf("%s: %s, %v", name, s, err)
				}
				if err := db.QueryRow(t.Context(), query, args...).Scan(new(int64)); err == nil {
					t.Errorf("%s: it went into an int64", name)
				}
			}
		}
		if _, err := fresh.Exec(t.Context(), "INSERT INTO u VALUES (?)", uint64(math.MaxUint64)); err == nil || !strings.Contains(err.Error(), "argument 1") {
			t.Errorf("as an argument: %v", err)
		}
	})
}
