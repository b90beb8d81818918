package handle_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

// errUndo is what a caller's function returns to have its transaction rolled back.
var errUndo = errors.New("undo")

// transact runs f with a transaction of some library, commits it if f returns nil
// and rolls it back otherwise.
type transact func(ctx context.Context, f func(x any) error) error

// conforms is what db.Tx has to make of any transaction.
func conforms(t *testing.T, fresh *dbtest.DB, db *sqldb.DB, run transact) {
	t.Helper()
	ctx := t.Context()
	kind := db.Kind()
	fresh.MustExec(t, "CREATE TABLE IF NOT EXISTS c (id BIGINT PRIMARY KEY, s VARCHAR(100))", "DELETE FROM c")
	rows := func() (n int) {
		t.Helper()
		if err := fresh.QueryRow(ctx, "SELECT COUNT(*) FROM c").Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	work := func(tx *sqldb.Tx) error {
		if err := tx.Err(); err != nil {
			return err
		}
		res, err := tx.Exec(ctx, holes(kind, "INSERT INTO c VALUES (?, ?), (?, ?)"), 1, "it's ? a \\ test", 2, nil)
		if err != nil || res.RowsAffected != 2 {
			t.Errorf("INSERT: %+v, %v", res, err)
			return errors.Join(err, errUndo)
		}
		var s string
		if err := tx.QueryRow(ctx, holes(kind, "SELECT s FROM c WHERE id = ?"), 1).Scan(&s); err != nil || s != "it's ? a \\ test" {
			t.Errorf("SELECT: %q, %v", s, err)
		}
		null := &s
		if err := tx.QueryRow(ctx, holes(kind, "SELECT s FROM c WHERE id = ?"), 2).Scan(&null); err != nil || null != nil {
			t.Errorf("a NULL came back as %v, %v", null, err)
		}
		if err := tx.QueryRow(ctx, holes(kind, "SELECT s FROM c WHERE id = ?"), 3).Scan(&s); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("no row: %v", err)
		}
		list, err := tx.Query(ctx, holes(kind, "SELECT id FROM c WHERE id < ? ORDER BY id"), 10)
		if err != nil {
			return err
		}
		var ids []int64
		for list.Next() {
			var id int64
			if err := list.Scan(&id); err != nil {
				t.Error(err)
			}
			ids = append(ids, id)
		}
		if err := errors.Join(list.Err(), list.Close()); err != nil || len(ids) != 2 || ids[0] != 1 || ids[1] != 2 {
			t.Errorf("rows: %v, %v", ids, err)
		}
		// Rows that nobody reads to their end leave the transaction usable.
		half, err := tx.Query(ctx, "SELECT id FROM c")
		if err != nil {
			return err
		}
		half.Next()
		if err := half.Close(); err != nil {
			t.Error(err)
		}
		res, err = tx.Exec(ctx, holes(kind, "UPDATE c SET s = ? WHERE id >= ?"), "new", 1)
		if err != nil || res.RowsAffected != 2 {
			t.Errorf("UPDATE: %+v, %v", res, err)
		}
		res, err = tx.Exec(ctx, holes(kind, "UPDATE c SET s = ? WHERE id = ?"), "none", 9)
		if err != nil || res.RowsAffected != 0 {
			t.Errorf("UPDATE of nothing: %+v, %v", res, err)
		}
		if kind != sqldb.SQLite {
			if got := rows(); got != 0 {
				t.Errorf("%d rows are seen outside of the transaction", got)
			}
		}
		return nil
	}
	if err := run(ctx, func(x any) error { return errors.Join(work(db.Tx(x)), errUndo) }); !errors.Is(err, errUndo) {
		t.Errorf("rolled back: %v", err)
	}
	if got := rows(); got != 0 {
		t.Errorf("%d rows are there after the rollback", got)
	}
	var kept *sqldb.Tx
	if err := run(ctx, func(x any) error { kept = db.Tx(x); return work(kept) }); err != nil {
		t.Errorf("committed: %v", err)
	}
	if got := rows(); got != 2 {
		t.Errorf("%d rows are there after the commit", got)
	}
	// What has ended runs nothing more.
	if _, err := kept.Exec(ctx, "DELETE FROM c"); err == nil || rows() != 2 {
		t.Errorf("a statement ran after the end: %v", err)
	}
	// The error of a statement arrives with its class.
	err := run(ctx, func(x any) error {
		_, err := db.Tx(x).Exec(ctx, holes(kind, "INSERT INTO c VALUES (?, ?)"), 1, "twice")
		return err
	})
	if sqldb.ClassOf(err) != sqldb.Duplicate {
		t.Errorf("a duplicate: %v", err)
	}
}
