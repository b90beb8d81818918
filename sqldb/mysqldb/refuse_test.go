package mysqldb_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
)

var innodb = []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}

// A session in which a lock would not be one is refused, and the reason is told.
func TestNewRefusesSessions(t *testing.T) {
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		for name, c := range map[string]struct {
			edit func(*mysql.Config)
			text string
		}{
			"autocommit=0":            {param("autocommit", "0"), "autocommit"},
			"transaction_read_only=1": {param("transaction_read_only", "1"), "transaction_read_only"},
			"no database":             {func(c *mysql.Config) { c.DBName = "" }, "names no database"},
		} {
			pool := db.OpenSQL(t, c.edit)
			if _, err := mysqldb.New(t.Context(), pool); err == nil || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%s: %v", name, err)
			}
			c.edit = func(*mysql.Config) {}
			if _, err := mysqldb.New(t.Context(), db.OpenSQL(t, c.edit)); err != nil {
				t.Errorf("the control: %v", err)
			}
		}
		none := db.OpenSQL(t, func(c *mysql.Config) { c.DBName = "" })
		got, err := mysqldb.New(t.Context(), none, sqldb.Schema(db.Schema()))
		if err != nil || got.Schema() != db.Schema() {
			t.Errorf("with Schema, no database is needed in the DSN: %v", err)
		}
	})
}

func param(name, value string) func(*mysql.Config) {
	return func(c *mysql.Config) {
		if c.Params == nil {
			c.Params = map[string]string{}
		}
		c.Params[name] = value
	}
}

func TestAccept(t *testing.T) {
	for _, c := range []struct {
		version, comment string
		kind             sqldb.Kind
		number           int
		text             string // of the refusal
		other            bool
	}{
		{"8.0.36-0ubuntu0.22.04.1", "(Ubuntu)", sqldb.MySQL, 80036, "", false},
		{"8.0.11", "MySQL Community Server - GPL", sqldb.MySQL, 80011, "", false},
		{"8.4.3", "", sqldb.MySQL, 80403, "", false},
		{"9.7.4-cloud", "", sqldb.MySQL, 90704, "", false},
		{"8.0.mysql_aurora.3.04.0", "MySQL Community Server", sqldb.MySQL, 80000, "", false},
		{"8.0.35-27.1", "Percona Server (GPL), Release 27", sqldb.MySQL, 80035, "", false},
		{"5.7.44-log", "", sqldb.MySQL, 50744, "MySQL 8.0 is the oldest", true},
		{"5.7.mysql_aurora.2.11.2", "", sqldb.MySQL, 50700, "MySQL 8.0 is the oldest", true},
		{"", "", sqldb.MySQL, 0, "too old", true},
		{"nonsense", "", sqldb.MySQL, 0, "too old", true},
		{"11.8.9-MariaDB-1~deb", "mariadb.org binary distribution", sqldb.MariaDB, 110809, "", false},
		{"10.6.0-MariaDB", "", sqldb.MariaDB, 100600, "", false},
		{"5.5.5-10.11.6-MariaDB-log", "", sqldb.MariaDB, 101106, "", false},
		{"10.5.29-MariaDB", "", sqldb.MariaDB, 100529, "MariaDB 10.6 is the oldest", true},
		{"5.5.5-10.3.39-MariaDB", "", sqldb.MariaDB, 100339, "MariaDB 10.6 is the oldest", true},
		{"5.5.5-MariaDB", "", sqldb.MariaDB, 0, "MariaDB 10.6 is the oldest", true},
		{"8.0.11-TiDB-v7.5.0", "TiDB Server", sqldb.MySQL, 80011, "neither MySQL nor MariaDB", true},
		{"8.0.30-Vitess", "Version: 18", sqldb.MySQL, 80030, "neither MySQL nor MariaDB", true},
		{"8.0.33", "Dolt", sqldb.MySQL, 80033, "neither MySQL nor MariaDB", true},
	} {
		kind, number := mysqldb.ParseVersion(c.version)
		if kind != c.kind || number != c.number {
			t.Errorf("%q is %v %d, want %v %d", c.version, kind, number, c.kind, c.number)
		}
		err := mysqldb.Accept(sqldb.Server{Kind: kind, Number: number, Version: c.version}, c.comment, true, "OFF", "OFF")
		if c.text == "" && err != nil || c.text != "" && (err == nil || !strings.Contains(err.Error(), c.text)) || errors.Is(err, errors.ErrUnsupported) != c.other {
			t.Errorf("%q: %v", c.version, err)
		}
	}
	good := sqldb.Server{Kind: sqldb.MySQL, Number: 80036, Version: "8.0.36"}
	for _, off := range []string{"0", "OFF"} {
		if err := mysqldb.Accept(good, "", true, off, off); err != nil {
			t.Errorf("read_only=%s: %v", off, err)
		}
	}
	for _, on := range []string{"1", "ON", "NO_LOCK", "NO_LOCK_NO_ADMIN"} {
		if err := mysqldb.Accept(good, "", true, on, "OFF"); err == nil || !strings.Contains(err.Error(), "connect to the primary") {
			t.Errorf("read_only=%s: %v", on, err)
		}
		if err := mysqldb.Accept(good, "", true, "OFF", on); err == nil || !strings.Contains(err.Error(), "innodb_read_only") {
			t.Errorf("innodb_read_only=%s: %v", on, err)
		}
	}
	if err := mysqldb.Accept(good, "", false, "OFF", "OFF"); err == nil || !strings.Contains(err.Error(), "autocommit") {
		t.Errorf("autocommit off: %v", err)
	}
}

// untouched is a pool that may not be used.
type untouched struct{ t *testing.T }

func (u untouched) Connect(context.Context) (driver.Conn, error) {
	u.t.Error("a connection was made")
	return nil, errors.New("not to be used")
}
func (u untouched) Driver() driver.Driver { return mysql.MySQLDriver{} }

func TestNewBadInput(t *testing.T) {
	if _, err := mysqldb.New(t.Context(), nil); err == nil || !strings.Contains(err.Error(), "mysqldb: the *sql.DB is nil") {
		t.Error(err)
	}
	pool := sql.OpenDB(untouched{t})
	defer func() { _ = pool.Close() }()
	for name, opt := range map[string]sqldb.Option{
		"schema":       sqldb.Schema("a`b"),
		"empty schema": sqldb.Schema(""),
		"prefix":       sqldb.TablePrefix("x-"),
		"digit":        sqldb.TablePrefix("1x"),
		"long prefix":  sqldb.TablePrefix(strings.Repeat("x", 33)),
		"nil":          nil,
	} {
		if _, err := mysqldb.New(t.Context(), pool, opt); err == nil || !strings.HasPrefix(err.Error(), "sqldb: ") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNewWrongPool(t *testing.T) {
	lite := dbtest.New(t, sqldb.SQLite)
	if _, err := mysqldb.New(t.Context(), lite.SQL); err == nil || !strings.Contains(err.Error(), "use sqlitedb.New") {
		t.Errorf("SQLite: %v", err)
	}
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		if _, err := mysqldb.New(t.Context(), db.SQL); err == nil || !strings.HasPrefix(err.Error(), "mysqldb: ") {
			t.Error(err)
		}
	})
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		closed := db.OpenSQL(t, func(*mysql.Config) {})
		_ = closed.Close()
		if _, err := mysqldb.New(t.Context(), closed); err == nil || !strings.Contains(err.Error(), "closed") {
			t.Errorf("a closed pool: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := mysqldb.New(ctx, db.SQL); !errors.Is(err, context.Canceled) {
			t.Errorf("a done ctx: %v", err)
		}
	})
}

func TestBegin(t *testing.T) {
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		db.MustExec(t, "CREATE TABLE t (n BIGINT)", "INSERT INTO t VALUES (1)")
		other := func(n int) { db.MustExec(t, "UPDATE t SET n = n + 1") }
		for level, repeatable := range map[sql.IsolationLevel]bool{sql.LevelDefault: true, sql.LevelReadCommitted: false, sql.LevelRepeatableRead: true, sql.LevelReadUncommitted: false} {
			err := db.InTx(t.Context(), sqldb.TxOptions{Isolation: level, ReadOnly: true}, func(ctx context.Context, tx *sqldb.Tx) error {
				var a, b int
				err := tx.QueryRow(ctx, "SELECT n FROM t").Scan(&a)
				other(1)
				err = errors.Join(err, tx.QueryRow(ctx, "SELECT n FROM t").Scan(&b))
				if (a == b) != repeatable {
					t.Errorf("%v: %d, then %d", level, a, b)
				}
				if _, err := tx.Exec(ctx, "UPDATE t SET n = 0"); sqldb.ClassOf(err) != sqldb.ReadOnly {
					t.Errorf("a read-only transaction wrote: %v", err)
				}
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		if err := db.InTx(t.Context(), sqldb.TxOptions{Isolation: sql.LevelSnapshot}, nil); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("SNAPSHOT: %v", err)
		}
		// The level was that of one transaction only, on every connection.
		for range 20 {
			var level string
			if err := db.QueryRow(t.Context(), "SELECT @@transaction_isolation").Scan(&level); err != nil || level != "REPEATABLE-READ" {
				t.Fatalf("%s, %v", level, err)
			}
		}
	})
}
