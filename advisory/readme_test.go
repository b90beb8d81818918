package advisory_test

import (
	"context"
	"database/sql"
	"fmt"
	"log"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// What the README shows, as it is, on PostgreSQL.
func readmeLocks(ctx context.Context, db *sqldb.DB, deliver func(context.Context, *lock.Lock) error) error {
	// README
	locker, err := advisory.New(ctx, db, lock.TTL(10*time.Second))
	if err != nil {
		return err // the server is refused, with the reason
	}
	defer locker.Close()

	// The same *lock.Lock, lock.Do and lock.Wrap as with the lock table.
	err = lock.Do(ctx, locker, "order:42", deliver)
	if err != nil {
		return err
	}
	readers, err := locker.Acquire(ctx, "catalog", lock.Shared()) // PostgreSQL
	if err != nil {
		return err
	}
	defer readers.Release(ctx)
	theirs, err := locker.AcquireKey(ctx, advisory.Int64(42)) // shared with programs that call pg_advisory_lock(42)
	if err != nil {
		return err
	}
	return theirs.Release(ctx)
	// README
}

func readmeBeside(ctx context.Context, db *sqldb.DB, locker *advisory.Locker, sqlDB *sql.DB, tx *sql.Tx) error {
	dialect, files := goose.DialectPostgres, appMigrations
	// README
	err := advisory.AcquireTx(ctx, db.Tx(tx), "order:42") // PostgreSQL; gone with the transaction; READ COMMITTED only
	if err != nil {
		return err
	}
	all, err := locker.List(ctx, "order:42") // who holds, who waits: connection id, address, user
	if err != nil {
		return err
	}
	for _, s := range all {
		log.Println(s.Name, s.Key, s.Waits, s.Conn, s.Client, s.User)
	}

	sessions, err := advisory.GooseLocker(db, "migrations") // for a goose of your own: one process migrates at a time
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(dialect, sqlDB, files, goose.WithSessionLocker(sessions))
	if err != nil {
		return err
	}
	if _, err := provider.Status(ctx); err != nil { // goose's version table is made under the lock
		return err
	}
	_, err = provider.Up(ctx)
	return err
	// README
}

func TestReadme(t *testing.T) {
	read := func(name string) string {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	parts := strings.Split(read("readme_test.go"), "\t// README\n")
	for i := 1; i < len(parts)-1; i += 2 {
		code := strings.ReplaceAll("\n"+parts[i], "\n\t", "\n")
		if !strings.Contains(read("../README.md"), "```go"+code+"```") {
			t.Errorf("README.md does not hold\n%s", code)
		}
	}
}

func TestReadmeRuns(t *testing.T) {
	dbtest.On(t, postgresOnly, func(t *testing.T, db *dbtest.DB) {
		delivered := 0
		err := readmeLocks(t.Context(), db.DB, func(context.Context, *lock.Lock) error { delivered++; return nil })
		if err != nil || delivered != 1 {
			t.Errorf("it was delivered %d times, %v", delivered, err)
		}
		var said strings.Builder
		log.SetOutput(&said)
		defer log.SetOutput(os.Stderr)
		tx, err := db.SQL.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if err := readmeBeside(t.Context(), db.DB, locker(t, db.DB), db.SQL, tx); err != nil {
			t.Error(err)
		}
		if want := fmt.Sprint("order:42 ", keyOf(t, db, "order:42"), " false "); !strings.Contains(said.String(), want) {
			t.Errorf("%q does not hold %q", said.String(), want)
		}
	})
}
