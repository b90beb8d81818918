package mysqldb_test

import (
	"bytes"
	"database/sql"
	"math"
	"os"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb/mysqldb"
)

func TestInline(t *testing.T) {
	for _, c := range []struct {
		query string
		args  []any
		want  string // "": left as it is
	}{
		{"SELECT ?", []any{int64(1)}, "SELECT  1 "},
		{"SELECT a-?", []any{int64(-1)}, "SELECT a- -1 "},
		{"SELECT ?AND?", []any{true, false}, "SELECT  1 AND 0 "},
		{"LIMIT?", []any{int64(5)}, "LIMIT 5 "},
		{"VALUES (?,?)", []any{nil, []byte(nil)}, "VALUES ( NULL , NULL )"},
		{"SELECT ?", []any{int64(math.MinInt64)}, "SELECT  -9223372036854775808 "},
		{"SELECT ?", []any{1.5}, "SELECT  1.5e+00 "},
		{"SELECT ?", []any{"a'b"}, "SELECT  _utf8mb4 x'612762' "},
		{"SELECT ?", []any{""}, "SELECT  _utf8mb4 x'' "},
		{"SELECT ?", []any{[]byte{0, 255}}, "SELECT  _binary x'00ff' "},
		{"SELECT ?", []any{[]byte{}}, "SELECT  _binary x'' "},
		{"SELECT '?', ?", []any{int64(1)}, "SELECT '?',  1 "},
		{"SELECT 'it''s ?', ?", []any{int64(1)}, "SELECT 'it''s ?',  1 "},
		{"SELECT \"?\", `?`, ?", []any{int64(1)}, "SELECT \"?\", `?`,  1 "},
		{"SELECT /* ? ' */ ?", []any{int64(1)}, "SELECT /* ? ' */  1 "},
		{"SELECT /*+ SET_VAR(sql_mode='STRICT_ALL_TABLES') */ ?", []any{int64(1)}, "SELECT /*+ SET_VAR(sql_mode='STRICT_ALL_TABLES') */  1 "},
		{"SELECT 1/?", []any{int64(2)}, "SELECT 1/ 2 "},
		{"SELECT 1 - ?", []any{int64(2)}, "SELECT 1 -  2 "},
		{"SELECT 1", nil, "SELECT 1"},
		// Not understood, and so left to the server.
		{`SELECT 'a\'?', ?`, []any{int64(1)}, ""},
		{`SELECT ?, '\\'`, []any{int64(1)}, ""},
		{"SELECT ? -- really?", []any{int64(1)}, ""},
		{"SELECT ? # really?", []any{int64(1)}, ""},
		{"SELECT 1--?", []any{int64(1)}, ""},
		{"SELECT ? /* no end", []any{int64(1)}, ""},
		{"SELECT ?, 'no end", []any{int64(1)}, ""},
		{"SELECT ?", []any{int64(1), int64(2)}, ""},
		{"SELECT ?, ?", []any{int64(1)}, ""},
		{"SELECT /*! ? */ ?", []any{int64(1), int64(2)}, ""},
		{"SELECT ?", []any{math.NaN()}, ""},
		{"SELECT ?", []any{math.Inf(-1)}, ""},
		{"SELECT ?", []any{struct{}{}}, ""},
	} {
		got, rest := mysqldb.Inline(c.query, c.args)
		if c.want == "" {
			if got != c.query || len(rest) != len(c.args) {
				t.Errorf("%s became %s, with %v", c.query, got, rest)
			}
		} else if got != c.want || rest != nil {
			t.Errorf("%s became %s, with %v, and not %s", c.query, got, rest, c.want)
		}
	}
}

// What is written into the text and what is sent beside it mean the same. (Not so
// for "-?": MySQL makes a DOUBLE of a parameter there, and keeps a literal's type.)
func TestInlineMeansTheSame(t *testing.T) {
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		for _, query := range []string{
			"SELECT CONCAT(?, '|', ?)", "SELECT ? + 0, ?", "SELECT 10-?", "SELECT ?=?", "SELECT LENGTH(?), LENGTH(?)", "SELECT ?IN(?)",
			"SELECT '?', \"?\", ? /* ? */, ?", "SELECT /*+ SET_VAR(sql_mode='STRICT_ALL_TABLES') */ ?, ?", "SELECT ?, '--' , ?", "SELECT ?, 'a''?''b', ?",
			"SELECT ?, '\\'?', ? -- ?\n", "SELECT ?, ? # ?\n", "SELECT HEX(?), HEX(?)", "SELECT COALESCE(?, ?)",
		} {
			for _, arg := range []any{int64(0), int64(7), int64(-7), int64(math.MaxInt64), "", "31", "a'b\"c`d\\e--#/*?*/", "ü😀", []byte("31"), []byte{}, nil, true, 1.5, -2.25e-300} {
				var want, got []sql.NullString
				if err := row(db.SQL.QueryContext(t.Context(), query, arg, arg))(&want); err != nil {
					continue // beyond a BIGINT, and so in both ways
				}
				text, rest := mysqldb.Inline(query, []any{arg, arg})
				if err := row(db.SQL.QueryContext(t.Context(), text, rest...))(&got); err != nil || !reflect.DeepEqual(same(got), same(want)) {
					t.Errorf("%s with %T %v:\n  sent   %v\n  inline %v, %v", query, arg, arg, want, got, err)
				}
			}
		}
	})
}

// same makes NULLs and the ways to write a float comparable.
func same(row []sql.NullString) (out []string) {
	for _, v := range row {
		s := v.String
		if strings.HasSuffix(s, ".0") || strings.Contains(s, ".") && strings.HasSuffix(s, "0") && !strings.ContainsAny(s, "e|") {
			s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
		}
		if !v.Valid {
			s = "NULL"
		}
		out = append(out, s)
	}
	return out
}

// row reads the one row of an answer.
func row(rows *sql.Rows, err error) func(*[]sql.NullString) error {
	return func(out *[]sql.NullString) error {
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		cols, err := rows.Columns()
		if err != nil {
			return err
		}
		*out = make([]sql.NullString, len(cols))
		ptrs := make([]any, len(cols))
		for i := range ptrs {
			ptrs[i] = &(*out)[i]
		}
		rows.Next()
		if err := rows.Scan(ptrs...); err != nil {
			return err
		}
		return rows.Err()
	}
}

// Whatever text and bytes are given, the server gets the very same.
func FuzzInline(f *testing.F) {
	for _, s := range []string{"", "a", "'", `\`, "?", "ü😀", "--", "/*", "*/", "#", "\x00", "x'41'", "\xff\xfe", strings.Repeat("?'\\", 100)} {
		f.Add(s, []byte(s), int64(len(s))-5, 1.5)
	}
	var servers []*sql.DB
	for _, kind := range innodb {
		dsn := os.Getenv(dbtest.Env(kind))
		if dsn == "" {
			continue // the structure is tested all the same
		}
		db, err := sql.Open("mysql", dsn)
		if err != nil {
			f.Fatal(err)
		}
		f.Cleanup(func() { _ = db.Close() })
		servers = append(servers, db)
	}
	f.Fuzz(func(t *testing.T, s string, b []byte, n int64, x float64) {
		const query = "SELECT ?, '?', ?, ? - 0, HEX(?), ?AND 1"
		if math.IsNaN(x) || math.IsInf(x, 0) {
			x = 0
		}
		text, rest := mysqldb.Inline(query, []any{s, b, n, b, x})
		if rest != nil || strings.Count(text, "?") != 1 || strings.Count(text, "'") != 2+6 {
			t.Fatalf("%s with %v", text, rest)
		}
		for _, c := range text {
			if c > 126 || c < 32 {
				t.Fatalf("%q in %s", c, text)
			}
		}
		for _, db := range servers {
			if !utf8.ValidString(s) {
				continue // is no text: the server refuses it
			}
			var gotS, gotB, hex []byte
			var literal string
			var gotN int64
			var truth bool
			err := db.QueryRowContext(t.Context(), text).Scan(&gotS, &literal, &gotB, &gotN, &hex, &truth)
			if err != nil || string(gotS) != s || literal != "?" || !bytes.Equal(gotB, b) || gotN != n || truth != (x != 0) {
				t.Errorf("%s: %q %q %d, %v", text, gotS, gotB, gotN, err)
			}
		}
	})
}
