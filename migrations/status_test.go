package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// onlyReads notes every statement of a handle, and that no connection is asked for.
type onlyReads struct {
	sqldb.Driver
	mu    sync.Mutex
	other []string
}

func (d *onlyReads) note(query string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !strings.HasPrefix(query, "SELECT") {
		d.other = append(d.other, query)
	}
}

func (d *onlyReads) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	d.note("Exec " + query)
	return d.Driver.Exec(ctx, query, args)
}

func (d *onlyReads) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	d.note(query)
	return d.Driver.Query(ctx, query, args)
}

func (d *onlyReads) Begin(ctx context.Context, opts sqldb.TxOptions) (sqldb.DriverTx, error) {
	d.note("Begin")
	return d.Driver.Begin(ctx, opts)
}

func (d *onlyReads) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	d.note("Conn")
	return d.Driver.Conn(ctx)
}

func (d *onlyReads) SQL() (*sql.DB, func()) {
	d.note("SQL")
	return d.Driver.SQL()
}

func TestStatusReads(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		var d *onlyReads
		h := db.Wrap(func(drv sqldb.Driver) sqldb.Driver { d = &onlyReads{Driver: drv}; return d })
		read := func(want int64) {
			t.Helper()
			states, err := migrations.Status(t.Context(), h)
			if err != nil || int64(len(states)) != latest {
				t.Fatalf("Status: %v, %v", states, err)
			}
			for i, s := range states {
				if !s.Known || s.Version != int64(i)+1 || s.Name == "" || s.Applied != (s.Version <= want) || s.Applied == s.AppliedAt.IsZero() {
					t.Errorf("%+v", s)
				}
			}
			wantVersion(t, h, want)
			if _, err := migrations.Check(t.Context(), h); err != nil {
				t.Error(err)
			}
			if err := schema.Ready(t.Context(), h); (want < latest) != errors.Is(err, schema.ErrNotMigrated) {
				t.Errorf("Ready: %v", err)
			}
		}
		before := objects(t, db)
		read(0)
		if after := objects(t, db); !slices.Equal(before, after) {
			t.Errorf("made: %v", after)
		}

		// Another session holds the lock, with a migration under way.
		holding := hold(t, db.Another(t).DB, 3)
		read(2)
		holding.end(t)
		read(latest)
		if len(d.other) > 0 {
			t.Errorf("not only read: %q", d.other)
		}
	})
}

func TestStatusReadOnlySession(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		one, pool, err := dbtest.Open(t.Context(), db.Kind().String(), db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = pool.Close() })
		pool.SetMaxOpenConns(1)
		set := map[sqldb.Kind]string{
			sqldb.Postgres: "SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY",
			sqldb.MySQL:    "SET SESSION TRANSACTION READ ONLY",
			sqldb.MariaDB:  "SET SESSION TRANSACTION READ ONLY",
			sqldb.SQLite:   "PRAGMA query_only = 1",
		}[db.Kind()]
		if _, err := pool.ExecContext(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		if _, err := migrations.Status(t.Context(), one); err != nil {
			t.Error(err)
		}
		up(t, db.DB)
		wantVersion(t, one, latest)
		wantClean(t, one)
		// And Up says why it cannot.
		down(t, db.DB)
		err = migrations.Up(t.Context(), one, migrations.LockTimeout(time.Minute))
		if sqldb.ClassOf(err) != sqldb.ReadOnly || !strings.Contains(err.Error(), "session that write") {
			t.Errorf("Up in a read-only session: %v", err)
		}
	})
}
