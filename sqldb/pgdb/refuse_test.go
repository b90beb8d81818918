package pgdb_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
)

var postgres = []sqldb.Kind{sqldb.Postgres}

// with changes the DSN of a test database.
func with(t *testing.T, db *dbtest.DB, name, value string) string {
	t.Helper()
	u, err := url.Parse(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	q := u.Query()
	q.Set(name, value)
	u.RawQuery = q.Encode()
	return u.String()
}

// both makes a handle of pgx's pool and one of database/sql.
func both(t *testing.T, dsn string, opts ...sqldb.Option) (dbs [2]*sqldb.DB, errs [2]error) {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	std, err := sql.Open("pgx", dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = std.Close() })
	dbs[0], errs[0] = pgdb.New(t.Context(), pool, opts...)
	dbs[1], errs[1] = pgdb.SQL(t.Context(), std, opts...)
	return dbs, errs
}

func TestNewRefusesSessions(t *testing.T) {
	dbtest.On(t, postgres, func(t *testing.T, db *dbtest.DB) {
		for name, c := range map[string]struct{ param, value, text string }{
			"read-only":                 {"default_transaction_read_only", "on", "default_transaction_read_only"},
			"read-only through options": {"options", "-c default_transaction_read_only=on", "default_transaction_read_only"},
			"empty search_path":         {"search_path", "", "search_path"},
			"search_path to nowhere":    {"search_path", "sqllock_test_no_such_schema", "search_path"},
		} {
			_, errs := both(t, with(t, db, c.param, c.value))
			for _, err := range errs {
				if err == nil || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%s: %v", name, err)
				}
			}
		}
		for _, errs := range [][2]error{second(both(t, db.DSN)), second(both(t, with(t, db, "search_path", ""), sqldb.Schema(db.Schema())))} {
			if err := errors.Join(errs[:]...); err != nil {
				t.Errorf("the control: %v", err)
			}
		}
	})
}

func second(_ [2]*sqldb.DB, errs [2]error) [2]error { return errs }

func TestAccept(t *testing.T) {
	for _, c := range []struct {
		version           string
		number            int
		standby, readOnly bool
		text              string
		other             bool
	}{
		{"PostgreSQL 17.2 (Debian 17.2-1.pgdg120+1) on x86_64-pc-linux-gnu, compiled by gcc", 170002, false, false, "", false},
		{"PostgreSQL 14.0", 140000, false, false, "", false},
		{"PostgreSQL 18beta1", 180000, false, false, "", false},
		{"PostgreSQL 13.20", 130020, false, false, "PostgreSQL 14 is the oldest", true},
		{"PostgreSQL 9.6.24", 90624, false, false, "PostgreSQL 14 is the oldest", true},
		{"", 0, false, false, "too old", true},
		{"PostgreSQL 17.2", 170002, true, true, "hot standby", false},
		{"PostgreSQL 17.2", 170002, true, false, "hot standby", false},
		{"PostgreSQL 17.2", 170002, false, true, "default_transaction_read_only", false},
		{"CockroachDB CCL v24.1.0 (x86_64-pc-linux-gnu)", 130000, false, false, "no PostgreSQL", true},
		{"PostgreSQL 15.2-YB-2.25.0.0-b0", 150002, false, false, "no PostgreSQL", true},
		{"PostgreSQL 8.0.2 on i686-pc-linux-gnu, compiled by GCC, Redshift 1.0.12103", 80002, false, false, "no PostgreSQL", true},
	} {
		err := pgdb.Accept(sqldb.Server{Kind: sqldb.Postgres, Version: c.version, Number: c.number}, c.standby, c.readOnly)
		if c.text == "" && err != nil || c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text)) || errors.Is(err, errors.ErrUnsupported) != c.other {
			t.Errorf("%q: %v", c.version, err)
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
	if _, err := pgdb.New(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "pgdb: the pool is nil") {
		t.Error(err)
	}
	if _, err := pgdb.SQL(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "pgdb: the *sql.DB is nil") {
		t.Error(err)
	}
	std := sql.OpenDB(untouched{t})
	defer func() { _ = std.Close() }()
	config, err := pgxpool.ParseConfig("postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	config.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
		t.Error("a connection was made")
		return errors.New("not to be used")
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for name, opt := range map[string]sqldb.Option{
		"schema": sqldb.Schema(`a"b`), "empty schema": sqldb.Schema(""), "prefix": sqldb.TablePrefix("x-"), "digit": sqldb.TablePrefix("1x"),
		"long prefix": sqldb.TablePrefix(strings.Repeat("x", 33)), "nil": nil,
	} {
		_, err := pgdb.New(t.Context(), pool, opt)
		_, sqlErr := pgdb.SQL(t.Context(), std, opt)
		for _, err := range []error{err, sqlErr} {
			if err == nil || !strings.HasPrefix(err.Error(), "sqldb: ") {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

func TestNewWrongPool(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB, sqldb.SQLite}, func(t *testing.T, db *dbtest.DB) {
		if _, err := pgdb.SQL(t.Context(), db.SQL); err == nil || !strings.HasPrefix(err.Error(), "pgdb: ") {
			t.Error(err)
		}
	})
	dbtest.On(t, postgres, func(t *testing.T, db *dbtest.DB) {
		other := db.Another(t)
		other.Pool.Close()
		_ = other.SQL.Close()
		_, err := pgdb.New(t.Context(), other.Pool)
		_, sqlErr := pgdb.SQL(t.Context(), other.SQL)
		for _, err := range []error{err, sqlErr} {
			if err == nil || !strings.Contains(err.Error(), "closed") {
				t.Errorf("a closed pool: %v", err)
			}
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := pgdb.New(ctx, db.Pool); !errors.Is(err, context.Canceled) {
			t.Errorf("a done ctx: %v", err)
		}
	})
}

// Where the tables are is asked for once, and the same through every driver; a
// search_path that changes later changes nothing.
func TestTableNames(t *testing.T) {
	dbtest.On(t, postgres, func(t *testing.T, db *dbtest.DB) {
		dbs, errs := both(t, db.DSN)
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		want := `"` + db.Schema() + `"."sqllock_locks"`
		for _, d := range dbs {
			if got := d.Table("locks"); got != want || !strings.HasPrefix(db.Schema(), "sqllock_test_") {
				t.Errorf("%s, want %s", got, want)
			}
		}
		elsewhere, errs := both(t, with(t, db, "search_path", "pg_catalog"), sqldb.Schema(db.Schema()), sqldb.TablePrefix("x_"))
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		db.MustExec(t, "CREATE TABLE x_locks (n BIGINT)")
		for i, d := range elsewhere {
			if d.TablePrefix() != "x_" || d.Schema() != db.Schema() {
				t.Errorf("%s, %s", d.Schema(), d.TablePrefix())
			}
			if _, err := d.Exec(t.Context(), "INSERT INTO "+d.Table("locks")+" VALUES ($1)", i); err != nil {
				t.Error(err)
			}
			if _, err := d.Exec(t.Context(), "INSERT INTO x_locks VALUES ($1)", i); sqldb.ClassOf(err) != sqldb.NoTable {
				t.Errorf("the control: %v", err)
			}
		}
	})
}

func TestIsolation(t *testing.T) {
	dbtest.On(t, postgres, func(t *testing.T, db *dbtest.DB) {
		dbs, errs := both(t, db.DSN)
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		for level, want := range map[sql.IsolationLevel]string{
			sql.LevelDefault: "read committed", sql.LevelReadUncommitted: "read committed", sql.LevelReadCommitted: "read committed",
			sql.LevelRepeatableRead: "repeatable read", sql.LevelSnapshot: "repeatable read", sql.LevelSerializable: "serializable",
		} {
			for i, d := range dbs {
				err := d.InTx(t.Context(), sqldb.TxOptions{Isolation: level, ReadOnly: true}, func(ctx context.Context, tx *sqldb.Tx) error {
					var got, readOnly string
					err := tx.QueryRow(ctx, "SELECT current_setting('transaction_isolation'), current_setting('transaction_read_only')").Scan(&got, &readOnly)
					if readOnly != "on" || got != want && !(i == 1 && level == sql.LevelReadUncommitted) {
						t.Errorf("driver %d, %v: %s, read-only %s", i, level, got, readOnly)
					}
					return err
				})
				if err != nil {
					t.Errorf("driver %d, %v: %v", i, level, err)
				}
			}
		}
	})
}
