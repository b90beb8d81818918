package mysqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
)

// run is one statement in a caller's transaction.
type run func(ctx context.Context, query string) error

// wounds are the ways in which the server ends a transaction: each makes one whose
// next statement, run by f, meets the error.
var wounds = map[string]struct {
	number uint16
	kinds  []sqldb.Kind
	meet   func(t *testing.T, pool *sql.DB, tx *sql.Tx, f run) error
}{
	"1213": {1213, innodb, deadlock},
	"1020": {1020, []sqldb.Kind{sqldb.MariaDB}, changedSnapshot},
}

// deadlock: the transaction that has changed less is the victim.
func deadlock(t *testing.T, pool *sql.DB, tx *sql.Tx, f run) error {
	ctx := t.Context()
	other, err := pool.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Rollback() }()
	must(t, other, "UPDATE t SET n = n + 10 WHERE id >= 2")
	must(t, tx, "UPDATE t SET n = n + 1 WHERE id = 1")
	done := make(chan error, 1)
	go func() { done <- f(ctx, "UPDATE t SET n = n + 1 WHERE id = 2") }()
	must(t, other, "UPDATE t SET n = n + 10 WHERE id = 1")
	return <-done
}

// changedSnapshot: what the transaction has read has been changed since.
func changedSnapshot(t *testing.T, pool *sql.DB, tx *sql.Tx, f run) error {
	must(t, tx, "INSERT INTO t VALUES (1000, 1)")
	var n int
	if err := tx.QueryRow("SELECT n FROM t WHERE id = 2").Scan(&n); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec("UPDATE t SET n = n + 10 WHERE id = 2"); err != nil {
		t.Fatal(err)
	}
	return f(t.Context(), "UPDATE t SET n = n + 1 WHERE id = 2")
}

func must(t *testing.T, tx *sql.Tx, query string) {
	t.Helper()
	if _, err := tx.Exec(query); err != nil {
		t.Fatalf("%s: %v", query, err)
	}
}

// wounded runs f with a fresh table for every wound.
func wounded(t *testing.T, f func(t *testing.T, db *sqldb.DB, pool *sql.DB, number uint16, meet func(*sql.Tx, run) error)) {
	for name, w := range wounds {
		t.Run(name, func(t *testing.T) {
			dbtest.On(t, w.kinds, func(t *testing.T, db *dbtest.DB) {
				pool := db.SQL
				if w.number == 1020 {
					pool = db.OpenSQL(t, param("innodb_snapshot_isolation", "ON"))
				}
				d, err := mysqldb.New(t.Context(), pool)
				if err != nil {
					t.Fatal(err)
				}
				db.MustExec(t, "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)")
				for i := range 20 {
					db.MustExec(t, fmt.Sprintf("INSERT INTO t VALUES (%d, 0)", i+1))
				}
				f(t, d, pool, w.number, func(tx *sql.Tx, r run) error { return w.meet(t, pool, tx, r) })
			})
		})
	}
}

func begin(t *testing.T, pool *sql.DB) *sql.Tx {
	t.Helper()
	tx, err := pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// marks counts the rows that only the victim's next statement can have written.
func marks(t *testing.T, pool *sql.DB) (n int) {
	t.Helper()
	if err := pool.QueryRow("SELECT COUNT(*) FROM t WHERE id >= 1000").Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

const mark = "INSERT INTO t VALUES (1001, 1)"

// After the server has ended a caller's transaction, nothing more runs in it: not
// through sqldb, and not through the *sql.Tx itself.
func TestServerEndsTransaction(t *testing.T) {
	ways := map[string]func(tx *sqldb.Tx) run{
		"Exec": func(tx *sqldb.Tx) run {
			return func(ctx context.Context, q string) error {
				_, err := tx.Exec(ctx, q)
				return err
			}
		},
		"QueryRow": func(tx *sqldb.Tx) run {
			return func(ctx context.Context, _ string) error {
				return tx.QueryRow(ctx, "SELECT n FROM t WHERE id = ? FOR UPDATE", 2).Scan(new(int))
			}
		},
		"Query, never asked for its error": func(tx *sqldb.Tx) run {
			return func(ctx context.Context, _ string) error {
				rows, err := tx.Query(ctx, "SELECT n FROM t WHERE id = ? FOR UPDATE", 2)
				if err != nil {
					return err
				}
				for rows.Next() {
				}
				return rows.Err()
			}
		},
	}
	for way, through := range ways {
		t.Run(way, func(t *testing.T) {
			wounded(t, func(t *testing.T, db *sqldb.DB, pool *sql.DB, number uint16, meet func(*sql.Tx, run) error) {
				raw := begin(t, pool)
				tx := db.Tx(raw)
				err := meet(raw, through(tx))
				var m *mysql.MySQLError
				if !errors.As(err, &m) || m.Number != number || !sqldb.Retryable(err) {
					t.Fatalf("the error is %v", err)
				}
				if _, err := raw.Exec(mark); !errors.Is(err, sql.ErrTxDone) {
					t.Errorf("through the *sql.Tx: %v", err)
				}
				if _, err := tx.Exec(t.Context(), mark); err == nil || sqldb.ClassOf(err) != sqldb.ClassOf(m) {
					t.Errorf("through the Tx: %v", err)
				}
				if _, err := db.Tx(raw).Exec(t.Context(), mark); !errors.Is(err, sql.ErrTxDone) {
					t.Errorf("through another Tx of it: %v", err)
				}
				if err := raw.Commit(); !errors.Is(err, sql.ErrTxDone) {
					t.Errorf("Commit: %v", err)
				}
				if got := marks(t, pool); got != 0 {
					t.Errorf("%d rows were written outside of any transaction", got)
				}
			})
		})
	}
}

// The control: without sqldb, the next statement is committed on its own, whatever
// Rollback says.
func TestServerEndsTransactionControl(t *testing.T) {
	wounded(t, func(t *testing.T, _ *sqldb.DB, pool *sql.DB, number uint16, meet func(*sql.Tx, run) error) {
		raw := begin(t, pool)
		err := meet(raw, func(ctx context.Context, q string) error {
			_, err := raw.ExecContext(ctx, q)
			return err
		})
		var m *mysql.MySQLError
		if !errors.As(err, &m) || m.Number != number {
			t.Fatalf("the error is %v", err)
		}
		must(t, raw, mark)
		if err := raw.Rollback(); err != nil {
			t.Error(err)
		}
		if got := marks(t, pool); got != 1 {
			t.Errorf("%d rows: the driver has learned what the server does", got)
		}
	})
}

// In a transaction of InTx, a swallowed deadlock is not committed, and Retry sees it.
func TestServerEndsOwnTransaction(t *testing.T) {
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		db.MustExec(t, "CREATE TABLE t (id BIGINT PRIMARY KEY, n BIGINT NOT NULL)", "INSERT INTO t VALUES (1, 0), (2, 0), (3, 0), (4, 0)")
		tries := 0
		err := sqldb.Retry(t.Context(), sqldb.Policy{}, func(ctx context.Context) error {
			return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				if tries++; tries > 1 {
					_, err := tx.Exec(ctx, "UPDATE t SET n = n + 1 WHERE id = 1")
					return err
				}
				if _, err := tx.Exec(ctx, "UPDATE t SET n = n + 1 WHERE id = 1"); err != nil {
					return err
				}
				other := begin(t, db.SQL)
				defer func() { _ = other.Rollback() }()
				must(t, other, "UPDATE t SET n = n + 10 WHERE id >= 2")
				done := make(chan error, 1)
				go func() {
					_, err := tx.Exec(ctx, "UPDATE t SET n = n + 1 WHERE id = 2")
					done <- err
				}()
				must(t, other, "UPDATE t SET n = n + 10 WHERE id = 1")
				if err := <-done; sqldb.ClassOf(err) != sqldb.Deadlock {
					t.Errorf("the error is %v", err)
				}
				_, _ = tx.Exec(ctx, "INSERT INTO t VALUES (1001, 1)")
				return nil // swallowed
			})
		})
		var n int
		if e := db.QueryRow(t.Context(), "SELECT n FROM t WHERE id = 1").Scan(&n); err != nil || e != nil || n != 1 || tries != 2 || marks(t, db.SQL) != 0 {
			t.Errorf("%v, %v: n is %d after %d tries, %d marks", err, e, n, tries, marks(t, db.SQL))
		}
	})
}
