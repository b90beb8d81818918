package optimistic_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/goleak"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}

var (
	articles = optimistic.Table{Name: "article", Key: []string{"id"}, Version: "version"}
	seven    = optimistic.Key(7)
	title    = optimistic.Set{"title": "new"}
)

// article makes the table with one row, id 7, version 0, state 1, title 'old'.
func article(t testing.TB, db *dbtest.DB) *optimistic.Table {
	t.Helper()
	db.MustExec(t, "CREATE TABLE article (id BIGINT PRIMARY KEY, title VARCHAR(20), state INT, version BIGINT)",
		"INSERT INTO article VALUES (7, 'old', 1, 0)")
	return open(t, db.DB, articles)
}

func open(t testing.TB, db *sqldb.DB, table optimistic.Table) *optimistic.Table {
	t.Helper()
	made, err := optimistic.New(db, table)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// is fails the test unless the article is like that.
func is(t testing.TB, db *dbtest.DB, title string, version int64) {
	t.Helper()
	var gotTitle string
	var gotVersion int64
	err := db.SQL.QueryRow("SELECT title, version FROM article WHERE id = 7").Scan(&gotTitle, &gotVersion)
	if err != nil || gotTitle != title || gotVersion != version {
		t.Errorf("the article is %q, version %d (%v); want %q, %d", gotTitle, gotVersion, err, title, version)
	}
}

// conflict fails the test unless err is a conflict of that kind.
func conflict(t testing.TB, err error, kind optimistic.Conflict) *optimistic.ConflictError {
	t.Helper()
	var c *optimistic.ConflictError
	if !errors.As(err, &c) || !errors.Is(err, optimistic.ErrConflict) || c.Kind != kind {
		t.Fatalf("the answer is %v, want a conflict: %v", err, kind)
	}
	return c
}

// both runs f in autocommit, and in a transaction of the driver's own form, which is
// then rolled back: f finds the same in both.
func both(t *testing.T, db *dbtest.DB, f func(t *testing.T, h sqldb.Handle)) {
	t.Helper()
	t.Run("tx", func(t *testing.T) {
		ctx := context.Background()
		if db.Pool != nil {
			rolledBack := errors.New("rolled back")
			if err := pgx.BeginFunc(ctx, db.Pool, func(tx pgx.Tx) error { f(t, db.Tx(tx)); return rolledBack }); !errors.Is(err, rolledBack) {
				t.Error(err)
			}
			return
		}
		tx, err := db.SQL.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		f(t, db.Tx(tx))
		if err := tx.Rollback(); err != nil {
			t.Error(err)
		}
	})
	t.Run("db", func(t *testing.T) { f(t, db.DB) })
}

// pools runs f on every database, and on MySQL and MariaDB once more with a pool that
// counts found rows in place of changed ones, and one without any sql_mode.
func pools(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	dbtest.Flavours(t, f)
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		with(t, db, func(c *mysql.Config) { c.ClientFoundRows = true })
		f(t, db)
	})
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		with(t, db, func(c *mysql.Config) { c.Params = map[string]string{"sql_mode": "''"} })
		f(t, db)
	})
}

// with puts a pool with other settings in place of the one of MySQL and MariaDB.
func with(t testing.TB, db *dbtest.DB, edit func(*mysql.Config)) {
	t.Helper()
	db.SQL = db.OpenSQL(t, edit)
	var err error
	if db.DB, err = mysqldb.New(t.Context(), db.SQL); err != nil {
		t.Fatal(err)
	}
}

// parameter is with for one setting, on PostgreSQL too.
func parameter(t testing.TB, db *dbtest.DB, name, value string) {
	t.Helper()
	if db.Kind() != sqldb.Postgres {
		with(t, db, func(c *mysql.Config) { c.Params = map[string]string{name: value} })
		return
	}
	cfg := db.Pool.Config()
	cfg.ConnConfig.RuntimeParams[name] = value
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if db.DB, err = pgdb.New(t.Context(), pool); err != nil {
		t.Fatal(err)
	}
}

var repeatable = sqldb.TxOptions{Isolation: sql.LevelRepeatableRead}

// waitBlocked waits until a session of the test's database waits for a row lock.
func waitBlocked(t testing.TB, db *dbtest.DB) {
	t.Helper()
	// Of the sessions of this test only: the servers are shared.
	query := "SELECT COUNT(*) FROM performance_schema.data_lock_waits w JOIN performance_schema.data_locks l" +
		" ON l.ENGINE_LOCK_ID = w.REQUESTING_ENGINE_LOCK_ID WHERE l.OBJECT_SCHEMA = DATABASE()"
	switch db.Kind() {
	case sqldb.Postgres:
		query = "SELECT COUNT(*) FROM pg_stat_activity a JOIN pg_locks l ON l.pid = a.pid WHERE NOT l.granted AND a.query LIKE '%article%'" +
			" AND EXISTS (SELECT FROM pg_locks k JOIN pg_class c ON c.oid = k.relation JOIN pg_namespace n ON n.oid = c.relnamespace" +
			" WHERE k.pid = a.pid AND n.nspname = current_schema())"
	case sqldb.MariaDB:
		// innodb_trx is made anew only after nobody has read it for 100 ms. No statement
		// of these tests takes that long unless it waits.
		query = "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND command = 'Query' AND id <> CONNECTION_ID() AND time_ms > 100"
	}
	deadline := time.Now().Add(30 * time.Second)
	for {
		var n int
		if err := db.SQL.QueryRow(query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		if n > 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody waits for a lock")
		}
		time.Sleep(time.Millisecond)
	}
}

// reopen makes a handle of a pool on an SQLite file.
func reopen(t testing.TB, pool *sql.DB) *sqldb.DB {
	t.Helper()
	db, err := sqlitedb.New(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return db
}
