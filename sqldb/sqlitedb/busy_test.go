package sqlitedb_test

import (
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

// New does not wait for whoever writes: that the file can be written is what it
// wanted to know.
func TestNewBesideWriter(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	db.MustExec(t, "CREATE TABLE t (n INTEGER)")
	tx, err := db.SQL.Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec("INSERT INTO t VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	begun := time.Now()
	if _, err := sqlitedb.New(t.Context(), db.SQL); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took > 3*time.Second { // busy_timeout is 5 s
		t.Errorf("it took %v", took)
	}
}
