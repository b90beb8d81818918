package advisory_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/integration/pooler"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// Through PgBouncer in session mode a client has a session of the server to itself: everything works. In transaction
// mode a lock would stay behind in a session that is not ours: New refuses it.
func TestPgBouncer(t *testing.T) {
	fresh := dbtest.New(t, sqldb.Postgres)
	schema := sqldb.Schema(fresh.Schema()) // PgBouncer does not hand search_path on
	ways := []struct {
		name string
		flavour
		suffix string
	}{
		{"pgxpool exec", flavour{"", sqldb.Postgres, ""}, "&default_query_exec_mode=exec"},
		{"pgx stdlib simple protocol", flavour{"", sqldb.Postgres, "pgx"}, "&default_query_exec_mode=simple_protocol&client_encoding=UTF8"},
		{"lib pq", flavour{"", sqldb.Postgres, "postgres"}, "&binary_parameters=yes"},
	}
	t.Run("session", func(t *testing.T) {
		dsn := pooler.Start(t, fresh.DSN, "session")
		for _, way := range ways {
			t.Run(way.name, func(t *testing.T) {
				const ttl = 600 * time.Millisecond
				a, b := locker(t, way.open(t, dsn+way.suffix, schema), lock.TTL(ttl)), locker(t, fresh.DB)
				got := acquire(t, a, "job")
				time.Sleep(3 * ttl)
				if err := got.Err(); err != nil {
					t.Error(err)
				}
				if _, err := b.Acquire(t.Context(), "job", lock.Try()); !errors.Is(err, lock.ErrHeld) {
					t.Errorf("past the pooler: %v", err)
				}
				release(t, got)
				next := acquire(t, b, "job")
				if _, err := a.Acquire(t.Context(), "job", lock.Wait(300*time.Millisecond)); !errors.Is(err, lock.ErrHeld) {
					t.Errorf("through the pooler: %v", err)
				}
				release(t, next)
			})
		}
	})
	t.Run("transaction", func(t *testing.T) {
		dsn := pooler.Start(t, fresh.DSN, "transaction")
		for _, way := range ways {
			t.Run(way.name, func(t *testing.T) {
				db := way.open(t, dsn+way.suffix, schema)
				l, err := advisory.New(t.Context(), db)
				if err == nil {
					_ = l.Close()
				}
				if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "PgBouncer") {
					t.Errorf("New: %v", err)
				}
			})
		}
	})
}
