package migrations_test

import (
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
)

func TestUpDown(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		before := objects(t, db)
		for range 2 {
			up(t, db.DB)
			wantVersion(t, db.DB, latest)
			wantClean(t, db.DB)
			up(t, db.DB) // nothing to do
			down(t, db.DB)
			wantVersion(t, db.DB, latest-1)
			down(t, db.DB, migrations.To(2))
			wantVersion(t, db.DB, 2)
			up(t, db.DB, migrations.To(4))
			wantVersion(t, db.DB, 4)
			up(t, db.DB, migrations.To(3)) // it is there already
			wantVersion(t, db.DB, 4)
			up(t, db.DB)
			wantClean(t, db.DB)
			down(t, db.DB, migrations.To(0))
			wantVersion(t, db.DB, 0)
			if after := objects(t, db); !slices.Equal(before, after) {
				t.Fatalf("left behind: %v", after)
			}
			down(t, db.DB) // nothing to undo
			down(t, db.DB, migrations.To(0))
		}
	})
}

func TestPrefixAndSchema(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		up(t, db.DB)
		for _, n := range objects(t, db) {
			if !strings.HasPrefix(n, "Two_") && !strings.HasPrefix(n, "two_") {
				t.Errorf("%s lacks the prefix", n)
			}
		}
		// Another installation, beside it.
		other := db.Another(t)
		wantVersion(t, other.DB, 0)
		up(t, other.DB)
		down(t, db.DB, migrations.To(0))
		wantClean(t, other.DB)
	}, sqldb.TablePrefix("Two_"))
}

func TestNewSchema(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		name := db.Schema() + "_made"
		t.Cleanup(func() { db.MustExec(t, "DROP SCHEMA IF EXISTS "+name+" CASCADE") })
		there, err := pgdb.New(t.Context(), db.Pool, sqldb.Schema(name))
		if err != nil {
			t.Fatal(err)
		}
		wantVersion(t, there, 0)
		up(t, there)
		wantClean(t, there)
	})
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		there := db.Another(t, sqldb.Schema(db.Schema()+"_no"))
		wantVersion(t, there.DB, 0)
		if err := migrations.Up(t.Context(), there.DB); sqldb.ClassOf(err) != sqldb.NoSchema {
			t.Fatalf("Up into a database that is not there: %v", err)
		}
	})
}

// TestOneConnection: what goose does is done on one connection at a time.
func TestOneConnection(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		pool := db.Another(t).SQL
		pool.SetMaxOpenConns(1)
		one := mustSQL(t, db.Kind(), pool)
		setting := map[sqldb.Kind]string{
			sqldb.Postgres: "SELECT current_setting('lock_timeout')",
			sqldb.MySQL:    "SELECT @@SESSION.lock_wait_timeout",
			sqldb.MariaDB:  "SELECT @@SESSION.lock_wait_timeout",
			sqldb.SQLite:   "PRAGMA busy_timeout",
		}[db.Kind()]
		var before, after string
		if err := one.QueryRow(t.Context(), setting).Scan(&before); err != nil {
			t.Fatal(err)
		}
		up(t, one)
		wantClean(t, one)
		down(t, one, migrations.To(0))
		if err := one.QueryRow(t.Context(), setting).Scan(&after); err != nil {
			t.Fatal(err)
		}
		if before != after {
			t.Errorf("%s: %s before, %s after", setting, before, after)
		}
		// The pool is the caller's, and in use: Up does not wait for ever.
		tx, err := pool.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		err = migrations.Up(t.Context(), one, migrations.LockTimeout(50*time.Millisecond))
		if !errors.Is(err, migrations.ErrLockTimeout) || !strings.Contains(err.Error(), "pool") {
			t.Errorf("Up on an exhausted pool: %v", err)
		}
	})
}

// TestSessions: whatever a DSN makes of sessions.
func TestSessions(t *testing.T) {
	loc, err := time.LoadLocation("Asia/Tokyo")
	if err != nil {
		loc = time.UTC // no time zones on this machine
	}
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		params := []map[string]string{
			{"sql_mode": "''"},
			{"sql_mode": "'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,STRICT_ALL_TABLES,NO_ZERO_DATE,NO_ZERO_IN_DATE'"},
			{"time_zone": "'-09:00'"},
			{"character_set_server": "latin1", "collation_server": "latin1_swedish_ci"},
			{"default_storage_engine": "MyISAM"},
		}
		if db.Kind() == sqldb.MySQL {
			params = append(params, map[string]string{"sql_require_primary_key": "ON"})
		}
		for _, p := range params {
			for _, parse := range []bool{true, false} {
				pool := db.OpenSQL(t, func(c *mysql.Config) {
					c.Params, c.ParseTime, c.Loc = p, parse, loc
					c.InterpolateParams, c.ClientFoundRows, c.MultiStatements = parse, parse, !parse
				})
				h := mustSQL(t, db.Kind(), pool)
				up(t, h)
				wantClean(t, h)
				states, err := migrations.Status(t.Context(), h)
				if err != nil {
					t.Fatal(err)
				}
				var now time.Time
				if err := h.QueryRow(t.Context(), "SELECT UTC_TIMESTAMP(6)").Scan(&now); err != nil {
					t.Fatal(err)
				}
				if d := now.Sub(states[0].AppliedAt); d < 0 || d > time.Minute {
					t.Errorf("%v: applied at %v, and now it is %v", p, states[0].AppliedAt, now)
				}
				down(t, h, migrations.To(0))
			}
		}
	})
}

// TestPostgresSessions: whatever the DSN, or ALTER ROLE, makes of sessions.
func TestPostgresSessions(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		for _, params := range []string{
			"&timezone=Asia/Tokyo&default_transaction_isolation=serializable&datestyle=SQL",
			"&default_query_exec_mode=simple_protocol&client_encoding=UTF8",
			"&lock_timeout=1&synchronous_commit=off",
		} {
			// search_path names nothing: every name has its schema in front.
			pool, err := pgxpool.New(t.Context(), strings.Replace(db.DSN, "search_path="+db.Schema(), "search_path=pg_catalog", 1)+params)
			if err != nil {
				t.Fatal(err)
			}
			h, err := pgdb.New(t.Context(), pool, sqldb.Schema(db.Schema()))
			if err != nil {
				t.Fatal(err)
			}
			up(t, h)
			wantClean(t, h)
			states, err := migrations.Status(t.Context(), h)
			if err != nil || time.Since(states[0].AppliedAt).Abs() > time.Hour {
				t.Errorf("%s: %v, %v", params, states, err)
			}
			down(t, h, migrations.To(0))
			pool.Close()
		}
	})
}

// TestMemory: a database in memory, in a pool of the one connection that has it.
func TestMemory(t *testing.T) {
	pool, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	pool.SetMaxOpenConns(1)
	h := mustSQL(t, sqldb.SQLite, pool)
	up(t, h)
	wantClean(t, h)
}

func TestNilDB(t *testing.T) {
	ctx := t.Context()
	_, status := migrations.Status(ctx, nil)
	_, version := migrations.Version(ctx, nil)
	_, check := migrations.Check(ctx, nil)
	for _, err := range []error{migrations.Up(ctx, nil), migrations.Down(ctx, nil), status, version, check} {
		if err == nil {
			t.Error("nil was taken for a database")
		}
	}
}

func TestDryRun(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		var got []string
		dry := migrations.DryRun(func(s migrations.Step) {
			if len(s.Statements) == 0 {
				t.Errorf("%s has no statements", s)
			}
			got = append(got, s.String())
		})
		before := objects(t, db)
		up(t, db.DB, dry, migrations.To(2))
		if want := []string{"up 1 locks", "up 2 tickets"}; !slices.Equal(got, want) {
			t.Errorf("Up: %v", got)
		}
		if after := objects(t, db); !slices.Equal(before, after) {
			t.Fatalf("made: %v", after)
		}
		up(t, db.DB, migrations.To(3))
		got = nil
		down(t, db.DB, dry)
		down(t, db.DB, dry, migrations.To(0))
		if want := []string{"down 3 claims", "down 3 claims", "down 2 tickets", "down 1 locks"}; !slices.Equal(got, want) {
			t.Errorf("Down: %v", got)
		}
		got = nil
		progress := migrations.Progress(func(s migrations.Step) { got = append(got, s.String()) })
		down(t, db.DB, progress, migrations.To(1))
		up(t, db.DB, progress, migrations.To(2))
		if want := []string{"down 3 claims", "down 2 tickets", "up 2 tickets"}; !slices.Equal(got, want) {
			t.Errorf("progress: %v", got)
		}
	})
}

func TestOptionsRefused(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	before := objects(t, db)
	for name, opt := range map[string]migrations.Option{
		"nil":         nil,
		"to":          migrations.To(latest + 1),
		"to 0":        migrations.To(0),
		"negative":    migrations.To(-1),
		"dry":         migrations.DryRun(nil),
		"progress":    migrations.Progress(nil),
		"lock":        migrations.LockTimeout(0),
		"ddl":         migrations.DDLTimeout(-1),
		"schema":      migrations.Schema("x"),
		"tableprefix": migrations.TablePrefix("x"),
	} {
		if err := migrations.Up(t.Context(), db.DB, opt); err == nil {
			t.Errorf("%s: Up took it", name)
		}
	}
	if err := migrations.Down(t.Context(), db.DB, migrations.To(latest)); err == nil {
		t.Error("Down took To(latest)")
	}
	if after := objects(t, db); !slices.Equal(before, after) {
		t.Fatalf("made: %v", after)
	}
}

// TestLaterVersion: a later release has migrated.
func TestLaterVersion(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		later := func(compatible int64) []schema.Migration {
			return append(schema.Migrations(db.Kind()), schema.Migration{
				Version: latest + 1, Name: "later", Compatible: compatible,
				Up:   []string{"ALTER TABLE ${table.locks} ADD COLUMN later INTEGER"},
				Down: []string{"ALTER TABLE ${table.locks} DROP COLUMN later"},
			})
		}
		up(t, db.DB, migrations.With(later(1)...))
		// Compatible: the older program goes on.
		up(t, db.DB)
		wantVersion(t, db.DB, latest+1)
		wantClean(t, db.DB)
		if err := schema.Ready(t.Context(), db.DB); err != nil {
			t.Error(err)
		}
		states, err := migrations.Status(t.Context(), db.DB)
		if last := states[len(states)-1]; err != nil || last.Known || !last.Applied || last.Name != "later" {
			t.Errorf("Status: %+v, %v", last, err)
		}
		// But it cannot undo what it does not know.
		if err := migrations.Down(t.Context(), db.DB); !errors.Is(err, migrations.ErrTooNew) {
			t.Errorf("Down: %v", err)
		}
		down(t, db.DB, migrations.With(later(1)...))
		wantVersion(t, db.DB, latest)

		// Not compatible: it says so.
		up(t, db.DB, migrations.With(later(latest+1)...))
		if err := migrations.Up(t.Context(), db.DB); !errors.Is(err, migrations.ErrTooNew) {
			t.Errorf("Up: %v", err)
		}
		if err := schema.Ready(t.Context(), db.DB); !errors.Is(err, schema.ErrTooNew) {
			t.Errorf("Ready: %v", err)
		}
		if problems, err := migrations.Check(t.Context(), db.DB); err != nil || len(problems) != 1 {
			t.Errorf("Check: %v, %v", problems, err)
		}
	})
}
