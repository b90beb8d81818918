package migrations_test

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// TestResume fails before every statement in turn, and between the last one of
// every migration and the record of it, upwards and downwards.
func TestResume(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		broken := errors.New("broken")
		empty := objects(t, db)
		resume := func(run func(...migrations.Option) error) {
			type place struct {
				version   int64
				statement int
			}
			failed := map[place]bool{}
			fail := migrations.Before(func(s migrations.Step, statement int) error {
				if p := (place{s.Version, statement}); !failed[p] {
					failed[p] = true
					return broken
				}
				return nil
			})
			for tries := 0; ; tries++ {
				err := run(fail)
				if err == nil {
					if tries < 2*int(latest) {
						t.Fatalf("only %d failures", tries)
					}
					return
				}
				if !errors.Is(err, broken) {
					t.Fatal(err)
				}
			}
		}
		resume(func(o ...migrations.Option) error { return migrations.Up(t.Context(), db.DB, o...) })
		wantClean(t, db.DB)
		resume(func(o ...migrations.Option) error {
			return migrations.Down(t.Context(), db.DB, append(o, migrations.To(0))...)
		})
		if left := objects(t, db); !slices.Equal(left, empty) {
			t.Errorf("left behind: %v", left)
		}
	})
}

// TestHalfRecorded: a Down that died on MySQL before its last statement.
func TestHalfRecorded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		empty := objects(t, db)
		up(t, db.DB, migrations.To(1))
		db.MustExec(t, "DROP TABLE "+db.Table("locks"), "DELETE FROM "+db.Table("schema_version"))
		down(t, db.DB)
		if left := objects(t, db); !slices.Equal(left, empty) {
			t.Errorf("left behind: %v", left)
		}
	})
}

// TestMySQLRepeats: DDL that has no IF NOT EXISTS, carried out and not recorded.
func TestMySQLRepeats(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		next := append(schema.Migrations(db.Kind()), schema.Migration{
			Version: latest + 1, Name: "later", Compatible: 1,
			Up: []string{
				"ALTER TABLE ${table.locks} ADD COLUMN later BIGINT NULL",
				"ALTER TABLE ${table.locks} ADD KEY later (later)",
			},
			Down: []string{"ALTER TABLE ${table.locks} DROP COLUMN later"},
		})
		up(t, db.DB)
		db.MustExec(t, "ALTER TABLE "+db.Table("locks")+" ADD COLUMN later BIGINT NULL, ADD KEY later (later)")
		up(t, db.DB, migrations.With(next...))
		wantVersion(t, db.DB, latest+1)
		db.MustExec(t, "ALTER TABLE "+db.Table("locks")+" DROP COLUMN later")
		down(t, db.DB, migrations.With(next...))
		wantVersion(t, db.DB, latest)
	})
}

// TestDDLTimeout: a table that a reader's transaction has used is waited for, but
// not for long at a time, and other readers are let through.
func TestDDLTimeout(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel() // it waits
		up(t, db.DB)
		read := "SELECT count(*) FROM " + db.Table("job_runs")
		reader, err := db.SQL.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = reader.Rollback() }()
		var n int
		if err := reader.QueryRowContext(t.Context(), read).Scan(&n); err != nil {
			t.Fatal(err)
		}
		short := migrations.DDLTimeout(200 * time.Millisecond)
		tries := 0
		err = migrations.Down(t.Context(), db.DB, short, migrations.LockTimeout(4*time.Second), migrations.Progress(func(migrations.Step) { tries++ }))
		if !errors.Is(err, migrations.ErrDDLTimeout) || sqldb.ClassOf(err) != sqldb.LockTimeout || tries < 2 {
			t.Fatalf("Down beside a reader, after %d tries: %v", tries, err)
		}
		wantClean(t, db.DB)

		// Another reader queues behind the DDL, and gets through when it gives up.
		tries = 0
		var second error
		var wait chan struct{}
		down(t, db.DB, short, migrations.Progress(func(migrations.Step) {
			tries++
			switch tries {
			case 1:
				wait = make(chan struct{})
				go func() {
					defer close(wait)
					second = db.QueryRow(context.Background(), read).Scan(&n)
				}()
			case 2:
				<-wait
				_ = reader.Rollback()
			}
		}))
		if second != nil || tries != 2 {
			t.Errorf("the second reader: %v; %d tries", second, tries)
		}
		wantVersion(t, db.DB, latest-1)
	})
}

// TestLockTimeoutIsTotal: it bounds the waiting for a table, too, and the last try
// goes up to it.
func TestLockTimeoutIsTotal(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel() // it waits
		up(t, db.DB)
		reader, err := db.SQL.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = reader.Rollback() }()
		if _, err := reader.ExecContext(t.Context(), "SELECT * FROM "+db.Table("job_runs")); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		err = migrations.Down(t.Context(), db.DB, migrations.LockTimeout(2*time.Second))
		took := time.Since(begun)
		if !errors.Is(err, migrations.ErrDDLTimeout) || !strings.Contains(err.Error(), "for all of 2s") || took < 1900*time.Millisecond || took > 20*time.Second {
			t.Errorf("after %v: %v", took, err)
		}
	})
}

// TestSQLiteReader: with a rollback journal a reader keeps COMMIT from the file,
// and what database/sql takes for ended is still open.
func TestSQLiteReader(t *testing.T) {
	t.Parallel()
	for _, lock := range []string{"immediate", "deferred"} {
		t.Run(lock, func(t *testing.T) {
			dsn := dbtest.Fresh(t, sqldb.SQLite)
			dsn = strings.NewReplacer("journal_mode(WAL)", "journal_mode(DELETE)", "_txlock=immediate", "_txlock="+lock).Replace(dsn)
			open := func() *sql.DB {
				pool, err := sql.Open("sqlite", dsn)
				if err != nil {
					t.Fatal(err)
				}
				pool.SetMaxOpenConns(1)
				t.Cleanup(func() { _ = pool.Close() })
				return pool
			}
			readers, pool := open(), open()
			one := mustSQL(t, sqldb.SQLite, pool)
			if _, err := readers.ExecContext(t.Context(), "CREATE TABLE mine (x)"); err != nil {
				t.Fatal(err)
			}
			rows, err := readers.QueryContext(t.Context(), "SELECT 1 FROM sqlite_schema UNION ALL SELECT 2")
			if err != nil || !rows.Next() {
				t.Fatal(err)
			}
			defer func() { _ = rows.Close() }()
			err = migrations.Up(t.Context(), one, migrations.DDLTimeout(20*time.Millisecond), migrations.LockTimeout(300*time.Millisecond))
			if !errors.Is(err, migrations.ErrDDLTimeout) && !errors.Is(err, migrations.ErrLockTimeout) {
				t.Errorf("Up beside a reader: %v", err)
			}
			if err := errors.Join(rows.Err(), rows.Close()); err != nil {
				t.Fatal(err)
			}
			for _, q := range []string{"BEGIN IMMEDIATE", "ROLLBACK"} { // nothing was left open on the one connection
				if _, err := pool.ExecContext(t.Context(), q); err != nil {
					t.Fatal(err)
				}
			}
			up(t, one, migrations.To(3))

			// In the middle of it.
			rows, err = readers.QueryContext(t.Context(), "SELECT 1 FROM sqlite_schema UNION ALL SELECT 2")
			if err != nil || !rows.Next() {
				t.Fatal(err)
			}
			err = migrations.Up(t.Context(), one, migrations.DDLTimeout(20*time.Millisecond), migrations.LockTimeout(time.Second))
			if !errors.Is(err, migrations.ErrDDLTimeout) {
				t.Errorf("Up beside a reader: %v", err)
			}
			if err := errors.Join(rows.Err(), rows.Close()); err != nil {
				t.Fatal(err)
			}
			up(t, one)
			wantClean(t, one)
		})
	}
}
