package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

// wrappings are the ways in which an error arrives.
var wrappings = map[string]func(error) error{
	"bare":     func(err error) error { return err },
	"wrapped":  func(err error) error { return fmt.Errorf("order 7: %w", err) },
	"deep":     func(err error) error { return fmt.Errorf("a: %w", fmt.Errorf("b: %w", fmt.Errorf("c: %w", err))) },
	"joined":   func(err error) error { return errors.Join(errors.New("cleaning up"), err) },
	"joined 2": func(err error) error { return fmt.Errorf("x: %w, %w", errors.New("first"), fmt.Errorf("y: %w", err)) },
	"gave up":  func(err error) error { return &sqldb.RetryError{Attempts: 3, Err: err} },
}

func TestClassOf(t *testing.T) {
	var all []coded
	for _, kind := range []sqldb.Kind{sqldb.Postgres, sqldb.MySQL, sqldb.SQLite} {
		for _, c := range serverErrors(kind) {
			c.name = kind.String() + "/" + c.name
			all = append(all, c)
		}
	}
	neverSent, lost := driverErrors()
	for _, c := range append(append(all, neverSent...), lost...) {
		for how, wrap := range wrappings {
			err := wrap(c.err)
			if got := sqldb.ClassOf(err); got != c.class {
				t.Errorf("%s %s: class %v, want %v", c.name, how, got, c.class)
			}
			if got := sqldb.Retryable(err); got != c.retry {
				t.Errorf("%s %s: Retryable %v", c.name, how, got)
			}
			if got := sqldb.Uncertain(err); got != c.uncertain {
				t.Errorf("%s %s: Uncertain %v", c.name, how, got)
			}
		}
	}
}

// SQLite tells some classes in its text only.
func TestClassOfSQLiteText(t *testing.T) {
	for text, want := range map[string]sqldb.Class{
		"SQL logic error: no such table: t (1)":             sqldb.NoTable,
		"SQL logic error: no such column: c (1)":            sqldb.NoColumn,
		"SQL logic error: table t has no column named c":    sqldb.NoColumn,
		"SQL logic error: near \"SELEC\": syntax error (1)": sqldb.Unknown,
	} {
		if got := sqldb.ClassOf(sqliteError(1, text)); got != want {
			t.Errorf("%s: %v", text, got)
		}
	}
	if got := sqldb.ClassOf(sqliteError(19, "UNIQUE constraint failed: t.id")); got != sqldb.Duplicate {
		t.Errorf("a driver with primary codes only: %v", got)
	}
}

// MySQLError is no error of go-sql-driver, though it looks like one.
type MySQLError struct{ Number uint16 }

func (MySQLError) Error() string { return "no MySQL" }

// statusError has a Code, as SQLite's errors have.
type statusError struct{ code int }

func (statusError) Error() string { return "HTTP 5" }
func (e statusError) Code() int   { return e.code }

type silent struct{}

func (silent) Error() string    { return "no state" }
func (silent) SQLState() string { return "" }

// What only looks like a database's error is none, and a nil one does not panic.
func TestClassOfForeign(t *testing.T) {
	_, notThere := os.Open("/no/such/file")
	_, web := (&url.URL{}).Parse(":")
	for name, err := range map[string]error{
		"nil":              nil,
		"typed nil":        (*pgconn.PgError)(nil),
		"MySQLError":       MySQLError{1213},
		"*MySQLError":      &MySQLError{1213},
		"Code()":           statusError{5},
		"empty SQLState":   silent{},
		"a file":           notThere,
		"a URL":            web,
		"an HTTP client":   &url.Error{Op: "Get", URL: "http://x", Err: dialed()},
		"a text":           errors.New("Error 1213 (40001): Deadlock found"),
		"canceled":         context.Canceled,
		"deadline":         context.DeadlineExceeded,
		"no rows":          sql.ErrNoRows,
		"wrapped canceled": fmt.Errorf("x: %w", context.Canceled),
	} {
		if got := sqldb.ClassOf(err); got != sqldb.Unknown {
			t.Errorf("%s: %v", name, got)
		}
		if sqldb.Retryable(err) || sqldb.Uncertain(err) {
			t.Errorf("%s: retryable %v, uncertain %v", name, sqldb.Retryable(err), sqldb.Uncertain(err))
		}
	}
}

func dialed() error {
	_, lost := driverErrors()
	return lost[3].err
}

func TestClassString(t *testing.T) {
	seen := map[string]bool{}
	for c := sqldb.Unknown; c <= sqldb.ConnLost; c++ {
		s := c.String()
		if s == "" || strings.Contains(s, "Class(") || seen[s] {
			t.Errorf("class %d is called %q", c, s)
		}
		seen[s] = true
	}
	if got := (sqldb.ConnLost + 1).String(); got != "sqldb.Class(21)" {
		t.Error(got)
	}
}

// Real errors of SQLite's driver, not made ones.
func TestClassOfRealSQLite(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	db.MustExec(t, "CREATE TABLE t (id INTEGER PRIMARY KEY, n INTEGER NOT NULL CHECK (n >= 0), u TEXT UNIQUE)", "INSERT INTO t VALUES (1, 1, 'a')")
	ctx := t.Context()
	other, err := sql.Open("sqlite", strings.Replace(db.DSN, "busy_timeout(5000)", "busy_timeout(0)", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Close() }()
	run := func(query string) error {
		_, err := db.Exec(ctx, query)
		return err
	}
	want := func(what string, err error, class sqldb.Class) {
		t.Helper()
		if got := sqldb.ClassOf(err); got != class {
			t.Errorf("%s: %v of %v", what, got, err)
		}
	}
	want("duplicate key", run("INSERT INTO t VALUES (1, 1, 'b')"), sqldb.Duplicate)
	want("unique", run("INSERT INTO t VALUES (2, 1, 'a')"), sqldb.Duplicate)
	want("check", run("INSERT INTO t VALUES (2, -1, 'b')"), sqldb.Constraint)
	want("not null", run("INSERT INTO t VALUES (2, NULL, 'b')"), sqldb.Constraint)
	want("table", run("SELECT * FROM absent"), sqldb.NoTable)
	want("column", run("SELECT absent FROM t"), sqldb.NoColumn)
	want("column to write", run("INSERT INTO t (absent) VALUES (1)"), sqldb.NoColumn)

	err = db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
		_, busy := other.ExecContext(ctx, "UPDATE t SET n = n + 1")
		want("busy", busy, sqldb.LockTimeout)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}

	conn, err := other.Conn(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	on := func(query string) error {
		_, err := conn.ExecContext(ctx, query)
		return err
	}
	if err := errors.Join(on("BEGIN"), conn.QueryRowContext(ctx, "SELECT n FROM t").Scan(new(int)), run("UPDATE t SET n = n + 1")); err != nil {
		t.Fatal(err)
	}
	want("busy snapshot", on("UPDATE t SET n = n + 1"), sqldb.Serialization)
	if err := errors.Join(on("ROLLBACK"), on("PRAGMA query_only = 1")); err != nil {
		t.Fatal(err)
	}
	want("read-only", on("UPDATE t SET n = n + 1"), sqldb.ReadOnly)
}
