package migrations

import (
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

// TestPooler: behind a proxy that pools transactions, the lock is on one session of
// the server and the migration on another.
func TestPooler(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		o, err := collect(db.Kind(), "Up", nil)
		if err != nil {
			t.Fatal(err)
		}
		r := start(db.DB, o, false)
		r.ctx = t.Context()
		conn := func() *sql.Conn {
			c, err := db.SQL.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = c.Close() })
			return c
		}
		holder, other := conn(), conn()
		if err := r.lock.SessionLock(t.Context(), holder); err != nil {
			t.Fatal(err)
		}
		for c, want := range map[*sql.Conn]error{holder: nil, other: errPooler} {
			tx, err := c.BeginTx(t.Context(), nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := r.lock.begin(t.Context(), tx, Step{}); !errors.Is(err, want) {
				t.Errorf("begin: %v, want %v", err, want)
			}
			_ = tx.Rollback()
		}
		// An unlock that arrives at the wrong session ends that one.
		var pid int
		if err := other.QueryRowContext(t.Context(), "SELECT pg_backend_pid()").Scan(&pid); err != nil {
			t.Fatal(err)
		}
		if err := r.lock.SessionUnlock(t.Context(), other); err != nil {
			t.Error(err)
		}
		for begun, n := time.Now(), 1; n != 0; time.Sleep(10 * time.Millisecond) {
			if err := db.SQL.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE pid = $1", pid).Scan(&n); err != nil {
				t.Fatal(err)
			}
			if n != 0 && time.Since(begun) > 30*time.Second {
				t.Fatal("the session of the doubtful unlock goes on")
			}
		}
		if err := r.lock.SessionUnlock(t.Context(), holder); err != nil {
			t.Error(err)
		}
		if err := holder.PingContext(t.Context()); err != nil {
			t.Errorf("the session of the unlock: %v", err)
		}
	})
}
