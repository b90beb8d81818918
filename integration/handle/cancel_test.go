package handle_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
)

// counters makes a table with one row that can be decremented.
func counters(t *testing.T, fresh *dbtest.DB) {
	t.Helper()
	fresh.MustExec(t, "CREATE TABLE counter (id BIGINT PRIMARY KEY, left_count BIGINT NOT NULL)", "INSERT INTO counter VALUES (1, 100)")
}

func left(t *testing.T, fresh *dbtest.DB) (n int64) {
	t.Helper()
	if err := fresh.QueryRow(t.Context(), "SELECT left_count FROM counter WHERE id = 1").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

var decrement = sqldb.Change{Op: "decrement", Query: "UPDATE counter SET left_count = left_count - 1 WHERE id = 1"}

// waiting returns when a statement waits for a lock.
func waiting(t *testing.T, fresh *dbtest.DB) {
	t.Helper()
	query, pause := `SELECT COUNT(*) FROM pg_locks w JOIN pg_locks t ON t.pid = w.pid
		WHERE NOT w.granted AND t.relation = 'counter'::regclass`, time.Millisecond
	if fresh.Kind().InnoDB() {
		// The table is kept for 100 ms after every reading.
		query, pause = `SELECT COUNT(*) FROM information_schema.innodb_trx JOIN information_schema.processlist ON id = trx_mysql_thread_id
			WHERE trx_state = 'LOCK WAIT' AND db = DATABASE()`, 120*time.Millisecond
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for n := 0; n == 0; time.Sleep(pause) {
		if err := fresh.QueryRow(ctx, query).Scan(&n); err != nil {
			t.Fatal(err)
		}
	}
}

// A Change whose ctx ends behind a row lock is ended on the server: by pgx's cancel
// key, or, with a driver that keeps it to itself, by the mark in its text.
func TestChangeIsCancelled(t *testing.T) {
	servers(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
		counters(t, fresh)
		holder, err := fresh.SQL.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = holder.Rollback() }()
		if _, err := holder.Exec("UPDATE counter SET left_count = left_count WHERE id = 1"); err != nil {
			t.Fatal(err)
		}
		for range 5 {
			ctx, cancel := context.WithCancel(t.Context())
			done := make(chan error, 1)
			go func() {
				_, err := db.Change(ctx, decrement)
				done <- err
			}()
			waiting(t, fresh)
			begun := time.Now()
			cancel()
			err := <-done
			if !errors.Is(err, context.Canceled) || sqldb.Uncertain(err) {
				t.Errorf("the answer is %v", err)
			}
			if took := time.Since(begun); took > sqldb.Bound/2 {
				t.Errorf("it took %v", took)
			}
		}
		if err := holder.Rollback(); err != nil {
			t.Error(err)
		}
		if _, err := db.Change(t.Context(), decrement); err != nil {
			t.Error(err)
		}
		if got := left(t, fresh); got != 99 {
			t.Errorf("left_count is %d: a cancelled change was applied", got)
		}
	})
}

// An interrupt ends the statement that it is meant for, and no other of the session
// nor of the pool.
func TestInterruptMeetsItsOwn(t *testing.T) {
	servers(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
		counters(t, fresh)
		ctx := t.Context()
		holder, err := fresh.SQL.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = holder.Rollback() }()
		if _, err := holder.Exec("UPDATE counter SET left_count = left_count WHERE id = 1"); err != nil {
			t.Fatal(err)
		}
		bystander := make(chan error, 1)
		go func() {
			_, err := db.Change(ctx, decrement)
			bystander <- err
		}()
		waiting(t, fresh)
		for range 20 {
			conn, err := db.Driver().Conn(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.Interrupt(ctx); err != nil {
				t.Error(err)
			}
			if err := conn.Close(true); err != nil {
				t.Error(err)
			}
		}
		if err := holder.Rollback(); err != nil {
			t.Error(err)
		}
		if err := <-bystander; err != nil {
			t.Errorf("another's statement was ended: %v", err)
		}
	})
}

// What COMMIT of an aborted transaction means is known, whatever the driver calls it.
func TestCommitOfAborted(t *testing.T) {
	on(t, func(fl flavour) bool { return fl.kind == sqldb.Postgres }, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
		counters(t, fresh)
		err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			if _, err := tx.Exec(ctx, decrement.Query); err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, "INSERT INTO counter VALUES (1, 1)"); sqldb.ClassOf(err) != sqldb.Duplicate {
				t.Errorf("the error is %v", err)
			}
			return nil // swallowed
		})
		if err == nil || sqldb.Uncertain(err) {
			t.Errorf("the answer is %v", err)
		}
		if got := left(t, fresh); got != 100 {
			t.Errorf("left_count is %d", got)
		}
	})
}

// A pool of one connection has none to interrupt with. pgx tells its cancel key, and
// lib/pq uses its own when the bound has passed; go-sql-driver drops the connection,
// and the caller learns that the outcome is unknown.
func TestChangeWithOneConnection(t *testing.T) {
	if testing.Short() {
		t.Skip("takes sqldb.Bound")
	}
	t.Parallel()
	servers(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
		if fl.name == "pgxpool" {
			t.Skip("its pool is not this one")
		}
		counters(t, fresh)
		if fl.kind.InnoDB() {
			var err error
			pool = fresh.OpenSQL(t, func(*mysql.Config) {})
			if db, err = mysqldb.New(t.Context(), pool); err != nil {
				t.Fatal(err)
			}
		}
		pool.SetMaxOpenConns(1)
		holder, err := fresh.Another(t).SQL.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = holder.Rollback() }()
		if _, err := holder.Exec("UPDATE counter SET left_count = left_count WHERE id = 1"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := db.Change(ctx, decrement)
			done <- err
		}()
		waiting(t, fresh)
		cancel()
		err = <-done
		if err == nil || sqldb.Uncertain(err) != fl.kind.InnoDB() {
			t.Errorf("the answer is %v", err)
		}
		if got := left(t, fresh); got != 100 {
			t.Errorf("left_count is %d", got)
		}
	})
}
