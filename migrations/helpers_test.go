package migrations_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

// TestMain also is the other process of TestProcesses.
func TestMain(m *testing.M) {
	if dsn := os.Getenv("MIGRATIONS_TEST_DSN"); dsn != "" {
		if err := upInProcess(os.Getenv("MIGRATIONS_TEST_KIND"), dsn); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dbtest.Parallel(4)
	goleak.VerifyTestMain(m)
}

func upInProcess(kind, dsn string) error {
	ctx := context.Background()
	k, err := sqldb.ParseKind(kind)
	if err != nil {
		return err
	}
	pool, err := sql.Open(map[sqldb.Kind]string{sqldb.Postgres: "pgx", sqldb.MySQL: "mysql", sqldb.MariaDB: "mysql", sqldb.SQLite: "sqlite"}[k], dsn)
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	db, err := onSQL(ctx, k, pool)
	if err != nil {
		return err
	}
	return migrations.Up(ctx, db)
}

// onSQL makes a handle of a *sql.DB of any kind.
func onSQL(ctx context.Context, kind sqldb.Kind, pool *sql.DB) (*sqldb.DB, error) {
	switch kind {
	case sqldb.Postgres:
		return pgdb.SQL(ctx, pool)
	case sqldb.SQLite:
		return sqlitedb.New(ctx, pool)
	}
	return mysqldb.New(ctx, pool)
}

func mustSQL(t *testing.T, kind sqldb.Kind, pool *sql.DB) *sqldb.DB {
	t.Helper()
	db, err := onSQL(t.Context(), kind, pool)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func up(t *testing.T, db *sqldb.DB, opts ...migrations.Option) {
	t.Helper()
	if err := migrations.Up(t.Context(), db, opts...); err != nil {
		t.Fatal(err)
	}
}

func down(t *testing.T, db *sqldb.DB, opts ...migrations.Option) {
	t.Helper()
	if err := migrations.Down(t.Context(), db, opts...); err != nil {
		t.Fatal(err)
	}
}

func wantVersion(t *testing.T, db *sqldb.DB, want int64) {
	t.Helper()
	if v, err := migrations.Version(t.Context(), db); v != want || err != nil {
		t.Fatalf("Version: %d, %v; want %d", v, err, want)
	}
}

func wantClean(t *testing.T, db *sqldb.DB) {
	t.Helper()
	problems, err := migrations.Check(t.Context(), db)
	if err != nil || len(problems) > 0 {
		t.Fatalf("Check: %v, %v", problems, err)
	}
}

// objects lists tables, views, indexes and sequences of the test's schema.
func objects(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	query, args := "SELECT name FROM sqlite_schema WHERE name NOT LIKE 'sqlite_%'", []any(nil)
	switch {
	case db.Kind() == sqldb.Postgres:
		query, args = "SELECT relname::text FROM pg_class WHERE relnamespace = $1::regnamespace", []any{db.Schema()}
	case db.Kind().InnoDB():
		query, args = "SELECT table_name FROM information_schema.tables WHERE table_schema = ?", []any{db.Schema()}
	}
	rows, err := db.Query(t.Context(), query, args...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var names []string
	for rows.Next() {
		var n string
		if err := rows.Scan(&n); err != nil {
			t.Fatal(err)
		}
		names = append(names, n)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	slices.Sort(names)
	return names
}

// holder is an Up that stands in the middle of a migration, holding the lock.
type holder struct {
	release chan struct{}
	done    chan error
}

// hold begins an Up in another pool and returns when it stands before the first
// statement of a version.
func hold(t *testing.T, db *sqldb.DB, version int64) *holder {
	t.Helper()
	h := &holder{release: make(chan struct{}), done: make(chan error, 1)}
	there := make(chan struct{})
	go func() {
		h.done <- migrations.Up(context.Background(), db, migrations.Before(func(s migrations.Step, statement int) error {
			if s.Version == version && statement == 0 {
				close(there)
				<-h.release
			}
			return nil
		}))
	}()
	select {
	case <-there:
	case err := <-h.done:
		t.Fatalf("Up ended early: %v", err)
	}
	return h
}

// end lets it go on, and waits for its end.
func (h *holder) end(t *testing.T) {
	t.Helper()
	close(h.release)
	if err := <-h.done; err != nil {
		t.Fatal(err)
	}
}

// eventually waits for something that can only be seen by looking.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	if !comesAbout(ok) {
		t.Fatalf("it did not come about: %s", what)
	}
}

// comesAbout is eventually for goroutines other than the test's.
func comesAbout(ok func() bool) bool {
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	late := time.After(time.Minute)
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			return false
		}
	}
	return true
}

// inUse is how many connections of the handle's pool are out.
func inUse(db *dbtest.DB) int {
	if db.Pool != nil {
		return int(db.Pool.Stat().AcquiredConns())
	}
	return db.SQL.Stats().InUse
}

// statements cuts the text of SQL as somebody's own tool would.
func statements(text string) []string {
	var lines []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "--") {
			lines = append(lines, line)
		}
	}
	var all []string
	for _, s := range strings.Split(strings.Join(lines, ""), ";\n") {
		if strings.TrimSpace(s) != "" {
			all = append(all, s)
		}
	}
	return all
}

var latest = schema.Latest
