package sqlitedb_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

func open(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	db, err := sql.Open("sqlite", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if n := db.Stats().InUse; n != 0 {
			t.Errorf("%d connections were left out of the pool", n)
		}
		_ = db.Close()
	})
	return db
}

func TestNewRefuses(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	path := filepath.Join(t.TempDir(), "x.db")
	good := open(t, "file:"+path)
	if _, err := sqlitedb.New(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	if _, err := good.Exec("CREATE TABLE t (n INTEGER)"); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct{ dsn, text string }{
		"mode=ro":         {"file:" + path + "?mode=ro", "read-only"},
		"immutable":       {"file:" + path + "?immutable=1", "read-only"},
		"query_only":      {"file:" + path + "?_pragma=query_only(1)", "query_only"},
		":memory:":        {":memory:", "SetMaxOpenConns(1)"},
		"mode=memory":     {"file:x?mode=memory", "SetMaxOpenConns(1)"},
		"a temporary one": {"", "SetMaxOpenConns(1)"},
		"no folder":       {"file:" + filepath.Join(t.TempDir(), "none", "x.db"), "sqlitedb: "},
		"a folder":        {"file:" + t.TempDir(), "sqlitedb: "},
	} {
		if _, err := sqlitedb.New(t.Context(), open(t, c.dsn)); err == nil || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for name, dsn := range map[string]string{":memory:": ":memory:", "mode=memory": "file:x?mode=memory"} {
		pool := open(t, dsn)
		pool.SetMaxOpenConns(1)
		if _, err := sqlitedb.New(t.Context(), pool); err != nil {
			t.Errorf("%s with one connection: %v", name, err)
		}
	}
	if err := os.WriteFile(path+".txt", []byte(strings.Repeat("no database ", 100)), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlitedb.New(t.Context(), open(t, "file:"+path+".txt")); err == nil {
		t.Error("a file that is no database was taken")
	}
	if _, err := sqlitedb.New(t.Context(), db.SQL, sqldb.Schema("other")); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("a schema: %v", err)
	}
	if got, err := sqlitedb.New(t.Context(), db.SQL, sqldb.Schema("main"), sqldb.TablePrefix("")); err != nil || got.Table("locks") != `"main"."locks"` {
		t.Errorf("main: %v", err)
	}
}

// What New tries, it leaves no trace of, and a file that is busy is no error.
func TestNewLeavesNothing(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	var tables, changes int
	if err := db.SQL.QueryRow("SELECT COUNT(*), total_changes() FROM sqlite_schema").Scan(&tables, &changes); err != nil || tables != 0 || changes != 0 {
		t.Errorf("%d tables, %d changes, %v", tables, changes, err)
	}
	err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, _ *sqldb.Tx) error {
		impatient := open(t, strings.Replace(db.DSN, "busy_timeout(5000)", "busy_timeout(0)", 1))
		_, err := sqlitedb.New(ctx, impatient)
		return err
	})
	if err != nil {
		t.Errorf("a busy file: %v", err)
	}
}

func TestParseVersion(t *testing.T) {
	for v, want := range map[string]int{"3.42.0": 34200, "3.54.1": 35401, "3.8.11.1": 30811, "3.50": 35000, "": 0, "x": 0} {
		if got := sqlitedb.ParseVersion(v); got != want {
			t.Errorf("%q: %d, want %d", v, got, want)
		}
	}
}

// old is a driver of a SQLite that is too old.
type old struct{ version string }

func (o old) Connect(context.Context) (driver.Conn, error) { return o, nil }
func (o old) Driver() driver.Driver                        { return nil }
func (old) Prepare(string) (driver.Stmt, error)            { return nil, errors.New("was run") }
func (old) Close() error                                   { return nil }
func (old) Begin() (driver.Tx, error)                      { return nil, errors.New("was run") }

func (o old) QueryContext(_ context.Context, q string, _ []driver.NamedValue) (driver.Rows, error) {
	if !strings.Contains(q, "sqlite_version") {
		return nil, fmt.Errorf("%s was run", q)
	}
	return &one{o.version, false}, nil
}

type one struct {
	value string
	read  bool
}

func (*one) Columns() []string { return []string{"v"} }
func (*one) Close() error      { return nil }
func (r *one) Next(dest []driver.Value) error {
	if r.read {
		return io.EOF
	}
	r.read, dest[0] = true, r.value
	return nil
}

func TestNewTooOld(t *testing.T) {
	for _, v := range []string{"3.41.2", "3.40.1", "2.8.17", "nonsense"} {
		pool := sql.OpenDB(old{v})
		defer func() { _ = pool.Close() }()
		if _, err := sqlitedb.New(t.Context(), pool); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "3.42") {
			t.Errorf("%s: %v", v, err)
		}
	}
}

// untouched is a pool that may not be used.
type untouched struct{ t *testing.T }

func (u untouched) Connect(context.Context) (driver.Conn, error) {
	u.t.Error("a connection was made")
	return nil, errors.New("not to be used")
}
func (u untouched) Driver() driver.Driver { return nil }

func TestNewBadInput(t *testing.T) {
	if _, err := sqlitedb.New(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "sqlitedb: the *sql.DB is nil") {
		t.Error(err)
	}
	pool := sql.OpenDB(untouched{t})
	defer func() { _ = pool.Close() }()
	for name, opt := range map[string]sqldb.Option{
		"schema": sqldb.Schema(`a"b`), "empty schema": sqldb.Schema(""), "prefix": sqldb.TablePrefix("x-"), "digit": sqldb.TablePrefix("1x"),
		"long prefix": sqldb.TablePrefix(strings.Repeat("x", 33)), "nil": nil,
	} {
		if _, err := sqlitedb.New(t.Context(), pool, opt); err == nil || !strings.HasPrefix(err.Error(), "sqldb: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	closed := open(t, "file:"+filepath.Join(t.TempDir(), "x.db"))
	_ = closed.Close()
	if _, err := sqlitedb.New(t.Context(), closed); err == nil || !strings.Contains(err.Error(), "closed") {
		t.Errorf("a closed pool: %v", err)
	}
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres, sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		if _, err := sqlitedb.New(t.Context(), db.SQL); err == nil || !strings.HasPrefix(err.Error(), "sqlitedb: ") {
			t.Error(err)
		}
	})
}
