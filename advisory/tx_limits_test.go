package advisory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// A transaction object whose transaction is over: the lock would be gone at once.
func TestAcquireTxOutside(t *testing.T) {
	inBoth(t, func(t *testing.T, db *dbtest.DB, begin func(sql.IsolationLevel) aTx) {
		for name, f := range map[string]func(context.Context, *sqldb.Tx, string, ...lock.Option) error{"AcquireTx": advisory.AcquireTx, "TryAcquireTx": advisory.TryAcquireTx} {
			tx := begin(0)
			if _, err := tx.Exec(t.Context(), "COMMIT"); err != nil {
				t.Fatal(err)
			}
			if err := f(t.Context(), tx.Tx, "job"); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("%s after COMMIT: %v", name, err)
			}
			_ = tx.rollback()
			tx = begin(0)
			if err := tx.commit(); err != nil {
				t.Fatal(err)
			}
			if err := f(t.Context(), tx.Tx, "job"); err == nil {
				t.Errorf("%s after Commit is granted", name)
			}
		}
		// The fact: it is gone at once.
		c := connOf(t, db.SQL)
		if _, err := c.ExecContext(t.Context(), "SELECT pg_advisory_xact_lock("+keyOf(t, db, "job").String()+")"); err != nil {
			t.Fatal(err)
		}
		if !isFree(t, db, keyOf(t, db, "job")) {
			t.Error("a transaction lock outlives its statement")
		}
	})
}

// A snapshot is made by the statement that waits: whoever reads later would see what
// was there before the lock was had. The second half shows it.
func TestAcquireTxIsolation(t *testing.T) {
	inBoth(t, func(t *testing.T, db *dbtest.DB, begin func(sql.IsolationLevel) aTx) {
		for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
			tx := begin(level)
			if err := advisory.AcquireTx(t.Context(), tx.Tx, "job"); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "sqllock.AcquireTx") {
				t.Errorf("%s: %v", level, err)
			}
			if !isFree(t, db, keyOf(t, db, "job")) {
				t.Errorf("%s: refused, and taken", level)
			}
			_ = tx.rollback()
		}
		if err := advisory.AcquireTx(t.Context(), begin(sql.LevelReadUncommitted).Tx, "another job"); err != nil {
			t.Errorf("READ UNCOMMITTED: %v", err)
		}

		db.MustExec(t, "DROP TABLE IF EXISTS t", "CREATE TABLE t (n BIGINT)", "INSERT INTO t VALUES (0)")
		holder, waiting := begin(0), begin(sql.LevelRepeatableRead)
		key := keyOf(t, db, "job")
		if err := advisory.AcquireTx(t.Context(), holder.Tx, "job"); err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			_, err := waiting.Exec(context.Background(), "SELECT pg_advisory_xact_lock("+key.String()+")")
			got <- err
		}()
		comesTrue(t, "it waits in the server", func() bool { return waiters(t, db, key) == 1 })
		if _, err := holder.Exec(t.Context(), "UPDATE t SET n = 1"); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(holder.commit(), <-got); err != nil {
			t.Fatal(err)
		}
		var n int64
		if err := waiting.QueryRow(t.Context(), "SELECT n FROM t").Scan(&n); err != nil || n != 0 {
			t.Errorf("the server has changed: under REPEATABLE READ n is %d, %v", n, err)
		}
	})
}

// ROLLBACK TO SAVEPOINT frees what was locked since; so does the rollback of a
// nested transaction of pgx. Its commit keeps it.
func TestAcquireTxSavepoint(t *testing.T) {
	inBoth(t, func(t *testing.T, db *dbtest.DB, begin func(sql.IsolationLevel) aTx) {
		tx := begin(0)
		exec := func(query string) {
			if _, err := tx.Exec(t.Context(), query); err != nil {
				t.Fatal(err)
			}
		}
		if err := advisory.AcquireTx(t.Context(), tx.Tx, "before"); err != nil {
			t.Fatal(err)
		}
		exec("SAVEPOINT s")
		if err := advisory.AcquireTx(t.Context(), tx.Tx, "since"); err != nil {
			t.Fatal(err)
		}
		exec("ROLLBACK TO SAVEPOINT s")
		if isFree(t, db, keyOf(t, db, "before")) || !isFree(t, db, keyOf(t, db, "since")) {
			t.Error("what was locked before the savepoint is free, or what was locked since is not")
		}
	})
	dbtest.On(t, postgresOnly, func(t *testing.T, db *dbtest.DB) {
		outer, err := db.Pool.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = outer.Rollback(context.Background()) }()
		for _, commit := range []bool{true, false} {
			nested, err := outer.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			name := fmt.Sprint("job ", commit)
			if err := advisory.AcquireTx(t.Context(), db.Tx(nested), name); err != nil {
				t.Fatal(err)
			}
			end := nested.Rollback
			if commit {
				end = nested.Commit
			}
			if err := end(t.Context()); err != nil {
				t.Fatal(err)
			}
			if isFree(t, db, keyOf(t, db, name)) == commit {
				t.Errorf("nested, commit is %v: it is free: %v", commit, !commit)
			}
		}
	})
}

func TestAcquireTxUnsupported(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB, sqldb.SQLite}, func(t *testing.T, db *dbtest.DB) {
		counting, c := dbtest.Count(db.DB)
		raw, err := db.SQL.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = raw.Rollback() }()
		for name, err := range map[string]error{
			"AcquireTx":       advisory.AcquireTx(t.Context(), counting.Tx(raw), "job"),
			"TryAcquireTx":    advisory.TryAcquireTx(t.Context(), counting.Tx(raw), "job"),
			"AcquireKeyTx":    advisory.AcquireKeyTx(t.Context(), counting.Tx(raw), advisory.Raw("job")),
			"TryAcquireKeyTx": advisory.TryAcquireKeyTx(t.Context(), counting.Tx(raw), advisory.Int64(1)),
		} {
			if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "sqllock.AcquireTx") {
				t.Errorf("%s: %v", name, err)
			}
		}
		if q := c.Take(); len(q) != 0 {
			t.Errorf("statements were run: %q", q)
		}
	})
}

func TestAcquireTxBadInput(t *testing.T) {
	inBoth(t, func(t *testing.T, db *dbtest.DB, begin func(sql.IsolationLevel) aTx) {
		counting, c := dbtest.Count(db.DB)
		raw, err := db.SQL.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = raw.Rollback() }()
		tx := counting.Tx(raw)
		refused := 0
		trace := lock.WithTrace(&lock.Trace{Refused: func(lock.Event) { refused++ }})
		for what, err := range map[string]error{
			"no name":   advisory.AcquireTx(t.Context(), tx, ""),
			"too long":  advisory.AcquireTx(t.Context(), tx, strings.Repeat("x", 256)),
			"nil":       advisory.AcquireTx(t.Context(), nil, "job"),
			"a pool":    advisory.AcquireTx(t.Context(), counting.Tx(db.SQL), "job"),
			"no key":    advisory.AcquireKeyTx(t.Context(), tx, advisory.Key{}),
			"Raw":       advisory.AcquireKeyTx(t.Context(), tx, advisory.Raw("job")),
			"TTL":       advisory.AcquireTx(t.Context(), tx, "job", lock.TTL(time.Second)),
			"Try":       advisory.AcquireTx(t.Context(), tx, "job", lock.Try()),
			"Label":     advisory.AcquireTx(t.Context(), tx, "job", lock.Label("me")),
			"Reentrant": advisory.TryAcquireTx(t.Context(), tx, "job", lock.Reentrant()),
			"AtMost":    advisory.TryAcquireTx(t.Context(), tx, "job", lock.AtMost(time.Second)),
		} {
			if !errors.Is(err, lock.ErrInvalid) && !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if q := c.Take(); len(q) != 0 {
			t.Errorf("statements were run: %q", q)
		}

		acquired := 0
		seen := lock.WithTrace(&lock.Trace{Acquired: func(lock.Event) { acquired++ }})
		if err := advisory.AcquireTx(t.Context(), tx, "job", trace, seen); err != nil {
			t.Error(err)
		}
		_ = advisory.TryAcquireTx(t.Context(), begin(0).Tx, "job", trace, seen)
		if acquired != 1 || refused != 1 {
			t.Errorf("the Trace was told of %d and %d", acquired, refused)
		}
	})
}
