package handle_test

import (
	"database/sql"
	"fmt"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	_ "github.com/lib/pq"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

// flavour is one way to make a handle.
type flavour struct {
	name string
	kind sqldb.Kind
	// latin1: what the server answers is converted to that character set.
	latin1 bool
	// edit changes the DSN of MySQL and MariaDB; nil: the plain pool.
	edit func(*mysql.Config)
	// fresh makes the database; nil: dbtest does.
	fresh func(t *testing.T) *dbtest.DB
	// open makes the handle anew; nil: the one of dbtest is it.
	open func(t *testing.T, db *dbtest.DB) (*sql.DB, *sqldb.DB)
}

func set(name, value string) func(*mysql.Config) {
	return func(c *mysql.Config) {
		if c.Params == nil {
			c.Params = map[string]string{}
		}
		c.Params[name] = value
	}
}

func location(name string) func(*mysql.Config) {
	return func(c *mysql.Config) {
		c.ParseTime = true
		c.Params = map[string]string{"loc": name}
	}
}

// settings are what a DSN of MySQL and MariaDB may say, and what must not matter.
var settings = map[string]func(*mysql.Config){
	"parseTime":            func(c *mysql.Config) { c.ParseTime = true },
	"loc":                  location("Asia/Tokyo"),
	"clientFoundRows":      func(c *mysql.Config) { c.ClientFoundRows = true },
	"interpolateParams":    func(c *mysql.Config) { c.InterpolateParams = true },
	"multiStatements":      func(c *mysql.Config) { c.MultiStatements = true },
	"time_zone +09:00":     set("time_zone", "'+09:00'"),
	"time_zone SYSTEM":     set("time_zone", "'SYSTEM'"),
	"no sql_mode":          set("sql_mode", "''"),
	"ANSI_QUOTES":          set("sql_mode", "'ANSI_QUOTES'"),
	"NO_BACKSLASH_ESCAPES": set("sql_mode", "'NO_BACKSLASH_ESCAPES'"),
	"PIPES_AS_CONCAT":      set("sql_mode", "'PIPES_AS_CONCAT'"),
	"latin1":               set("charset", "latin1"),
	"compress":             set("compress", "true"),
	"all at once": func(c *mysql.Config) {
		c.ParseTime, c.ClientFoundRows, c.InterpolateParams, c.MultiStatements = true, true, true, true
		c.Params = map[string]string{"loc": "Asia/Tokyo", "time_zone": "'-03:30'", "sql_mode": "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES'"}
	},
}

func flavours() []flavour {
	list := []flavour{
		{name: "pgxpool", kind: sqldb.Postgres},
		{name: "pgx stdlib", kind: sqldb.Postgres, open: func(t *testing.T, db *dbtest.DB) (*sql.DB, *sqldb.DB) { return openSQL(t, db, "pgx", db.DSN) }},
		{name: "lib/pq", kind: sqldb.Postgres, open: func(t *testing.T, db *dbtest.DB) (*sql.DB, *sqldb.DB) { return openSQL(t, db, "postgres", pqDSN(db)) }},
		{name: "modernc", kind: sqldb.SQLite},
		{name: "ncruces", kind: sqldb.SQLite, fresh: ncruces},
	}
	for _, kind := range []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB} {
		list = append(list, flavour{name: kind.String(), kind: kind})
		for name, edit := range settings {
			list = append(list, flavour{name: kind.String() + " " + name, kind: kind, edit: edit, latin1: name == "latin1", open: func(t *testing.T, db *dbtest.DB) (*sql.DB, *sqldb.DB) {
				pool := db.OpenSQL(t, edit)
				handle, err := mysqldb.New(t.Context(), pool)
				if err != nil {
					t.Fatal(err)
				}
				return pool, handle
			}})
		}
	}
	return list
}

// ncruces makes a database with that driver alone: two SQLite libraries in one process
// do not share a file in WAL mode ("locking protocol").
func ncruces(t *testing.T) *dbtest.DB {
	t.Helper()
	dsn := dbtest.Fresh(t, sqldb.SQLite)
	pool := open(t, "sqlite3", dsn)
	handle, err := sqlitedb.New(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return &dbtest.DB{DB: handle, SQL: pool, DSN: dsn}
}

// pqDSN: lib/pq wants to be told that there is no TLS.
func pqDSN(db *dbtest.DB) string {
	if strings.Contains(db.DSN, "sslmode=") {
		return db.DSN
	}
	return db.DSN + "&sslmode=disable"
}

// open opens a pool, which has all its connections when the test ends.
func open(t *testing.T, driver, dsn string) *sql.DB {
	t.Helper()
	pool, err := sql.Open(driver, dsn)
	if err != nil {
		t.Fatal("the DSN is none of the driver's")
	}
	t.Cleanup(func() {
		if n := pool.Stats().InUse; n != 0 {
			t.Errorf("%d connections were left out of the pool", n)
		}
		_ = pool.Close()
	})
	return pool
}

func openSQL(t *testing.T, _ *dbtest.DB, driver, dsn string) (*sql.DB, *sqldb.DB) {
	t.Helper()
	pool := open(t, driver, dsn)
	handle, err := pgdb.SQL(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return pool, handle
}

// test is what runs with one flavour, on a fresh database.
type test func(t *testing.T, fl flavour, db *dbtest.DB, pool *sql.DB, handle *sqldb.DB)

// each runs f with every flavour.
func each(t *testing.T, f test) {
	t.Helper()
	on(t, func(flavour) bool { return true }, f)
}

// plain runs f with every driver, without further settings.
func plain(t *testing.T, f test) {
	t.Helper()
	on(t, func(fl flavour) bool { return fl.edit == nil }, f)
}

// servers is plain without SQLite.
func servers(t *testing.T, f test) {
	t.Helper()
	on(t, func(fl flavour) bool { return fl.edit == nil && fl.kind != sqldb.SQLite }, f)
}

func on(t *testing.T, wanted func(flavour) bool, f test) {
	t.Helper()
	for _, fl := range flavours() {
		if !wanted(fl) {
			continue
		}
		t.Run(fl.name, func(t *testing.T) {
			t.Parallel()
			var db *dbtest.DB
			if fl.fresh != nil {
				db = fl.fresh(t)
			} else {
				db = dbtest.New(t, fl.kind)
			}
			pool, handle := db.SQL, db.DB
			if fl.open != nil {
				pool, handle = fl.open(t, db)
			}
			f(t, fl, db, pool, handle)
		})
	}
}

// holes writes the placeholders of one kind of database for the '?' of a
// statement.
func holes(kind sqldb.Kind, query string) string {
	if kind != sqldb.Postgres {
		return query
	}
	for n := 1; strings.Contains(query, "?"); n++ {
		query = strings.Replace(query, "?", fmt.Sprintf("$%d", n), 1)
	}
	return query
}
