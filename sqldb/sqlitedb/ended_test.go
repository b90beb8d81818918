package sqlitedb_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

// interrupt runs a change that takes for ever under a ctx that ends.
func interrupt(t *testing.T, tx *sqldb.Tx) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	_, err := tx.Exec(ctx, "INSERT INTO t WITH RECURSIVE n(i) AS (SELECT 10 UNION ALL SELECT i + 1 FROM n) SELECT i FROM n")
	if err == nil {
		t.Fatal("it ended by itself")
	}
}

// SQLite rolls back the whole transaction when a change in it is interrupted; what
// fn runs afterwards must not be committed on its own.
func TestInterruptEndsTransaction(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	db.MustExec(t, "CREATE TABLE t (n INTEGER)")
	undo := errors.New("undo")
	err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO t VALUES (1)"); err != nil {
			return err
		}
		interrupt(t, tx)
		_, _ = tx.Exec(ctx, "INSERT INTO t VALUES (2)")
		return undo
	})
	var n int
	if e := db.QueryRow(t.Context(), "SELECT COUNT(*) FROM t").Scan(&n); e != nil || n != 0 || !errors.Is(err, undo) {
		t.Errorf("%d rows are there after %v", n, err)
	}
	err = db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO t VALUES (1)"); err != nil {
			return err
		}
		interrupt(t, tx)
		_, err := tx.Exec(ctx, "INSERT INTO t VALUES (2)")
		return err
	})
	if e := db.QueryRow(t.Context(), "SELECT COUNT(*) FROM t").Scan(&n); e != nil || err == nil && n != 2 || err != nil && n != 0 {
		t.Errorf("%d rows are there after %v", n, err)
	}

	raw, err := db.SQL.Begin()
	if err != nil {
		t.Fatal(err)
	}
	tx := db.Tx(raw)
	if _, err := tx.Exec(t.Context(), "INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	interrupt(t, tx)
	if _, err := raw.Exec("INSERT INTO t VALUES (3)"); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("through the *sql.Tx: %v", err)
	}
	_ = raw.Rollback()
	if e := db.QueryRow(t.Context(), "SELECT COUNT(*) FROM t WHERE n = 3").Scan(&n); e != nil || n != 0 {
		t.Errorf("%d rows were written outside of any transaction", n)
	}
}

// So may it when the disk is full: what was begun before is not committed behind that
// error, neither by InTx nor through the caller's *sql.Tx.
func TestFullDiskEndsTransaction(t *testing.T) {
	fresh := dbtest.New(t, sqldb.SQLite)
	fresh.MustExec(t, "CREATE TABLE t (s TEXT)")
	pool, err := sql.Open("sqlite", fresh.DSN+"&_pragma=max_page_count(40)")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	db, err := sqlitedb.New(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	fill := func(ctx context.Context, tx *sqldb.Tx) error {
		if _, err := tx.Exec(ctx, "INSERT INTO t VALUES ('first')"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "INSERT INTO t VALUES (?)", strings.Repeat("x", 1<<20))
		if sqldb.ClassOf(err) != sqldb.Exhausted {
			t.Errorf("the disk is not full: %v", err)
		}
		if _, next := tx.Exec(ctx, "INSERT INTO t VALUES ('behind')"); sqldb.ClassOf(next) != sqldb.Exhausted || tx.Err() == nil {
			t.Errorf("the next statement: %v", next)
		}
		return nil // swallowed
	}
	if err := db.InTx(t.Context(), sqldb.TxOptions{}, fill); sqldb.ClassOf(err) != sqldb.Exhausted || sqldb.Uncertain(err) {
		t.Errorf("InTx: %v", err)
	}
	raw, err := pool.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := fill(t.Context(), db.Tx(raw)); err != nil {
		t.Error(err)
	}
	if _, err := raw.Exec("INSERT INTO t VALUES ('behind')"); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("through the *sql.Tx: %v", err)
	}
	if err := raw.Commit(); !errors.Is(err, sql.ErrTxDone) {
		t.Errorf("its Commit: %v", err)
	}
	c := sqldb.Change{Op: "fill", Query: "INSERT INTO t VALUES (?)", Args: []any{strings.Repeat("x", 1<<20)}}
	if _, err := db.Change(t.Context(), c); sqldb.ClassOf(err) != sqldb.Exhausted || sqldb.Uncertain(err) {
		t.Errorf("Change: %v", err)
	}
	var n int
	if err := fresh.QueryRow(t.Context(), "SELECT COUNT(*) FROM t").Scan(&n); err != nil || n != 0 {
		t.Errorf("%d rows are there, %v", n, err)
	}
}
