package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// flavours runs f on every server, and once more on PostgreSQL through database/sql.
func flavours(t *testing.T, f func(t *testing.T, db *dbtest.DB)) {
	t.Helper()
	dbtest.Servers(t, f)
	dbtest.Stdlib(t, f)
}

// locker makes a Locker, which has to be closed without an error.
func locker(t testing.TB, db *sqldb.DB, opts ...lock.Option) *advisory.Locker {
	t.Helper()
	l, err := advisory.New(t.Context(), db, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

// must acquires, or ends the test.
func must(t testing.TB, l lock.Locker, name string, opts ...lock.Option) *lock.Lock {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	got, err := l.Acquire(ctx, name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func release(t testing.TB, l *lock.Lock) {
	t.Helper()
	if err := l.Release(t.Context()); err != nil {
		t.Errorf("release: %v", err)
	}
}

// refusedTry tries the lock, which has to be held.
func refusedTry(t testing.TB, l lock.Locker, name string, opts ...lock.Option) *lock.HeldError {
	t.Helper()
	got, err := l.Acquire(t.Context(), name, append(opts, lock.Try())...)
	var held *lock.HeldError
	if got != nil || !errors.As(err, &held) {
		t.Fatalf("a try of %q that is held: %v, %v", name, got, err)
	}
	return held
}

// eventually waits until f says so, and ends the test if that takes too long.
func eventually(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long until %s", what)
		}
	}
}

// serverKey is the key of a name, as it stands in SQL.
func serverKey(t testing.TB, db *dbtest.DB, name string) string {
	t.Helper()
	k, err := advisory.KeyOf(db.DB, name)
	if err != nil {
		t.Fatal(err)
	}
	return k.String()
}

// sessionOf is the id of the session that holds the name.
func sessionOf(t testing.TB, db *dbtest.DB, name string) (id int64) {
	t.Helper()
	key := serverKey(t, db, name)
	query := "SELECT COALESCE(IS_USED_LOCK('" + key + "'), 0)"
	if db.Kind() == sqldb.Postgres {
		query = fmt.Sprintf(`SELECT coalesce(max(pid), 0) FROM pg_locks WHERE locktype = 'advisory' AND granted AND objsubid = 1
			AND classid::bigint << 32 | objid::bigint = %s::bigint`, key)
	}
	if err := db.SQL.QueryRowContext(context.Background(), query).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// kill ends a session, as a DBA does, and waits until it is gone.
func kill(t testing.TB, db *dbtest.DB, id int64) {
	t.Helper()
	if id == 0 {
		t.Fatal("nobody holds it")
	}
	query, left := fmt.Sprintf("KILL %d", id), fmt.Sprintf("SELECT count(*) FROM information_schema.PROCESSLIST WHERE ID = %d", id)
	if db.Kind() == sqldb.Postgres {
		query, left = fmt.Sprintf("SELECT pg_terminate_backend(%d)", id), fmt.Sprintf("SELECT count(*) FROM pg_stat_activity WHERE pid = %d", id)
	}
	if _, err := db.SQL.ExecContext(context.Background(), query); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the session is gone", func() bool {
		var n int
		if err := db.SQL.QueryRowContext(context.Background(), left).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}
