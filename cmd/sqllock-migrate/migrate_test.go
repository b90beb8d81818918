package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

// use makes every command of the test work on db.
func use(t *testing.T, db *dbtest.DB) { t.Setenv(envDSN, db.DSN) }

// plain is db's DSN without a busy_timeout of its own.
func plain(db *dbtest.DB) string {
	s, _, _ := strings.Cut(db.DSN, "?")
	if db.Kind() != sqldb.SQLite {
		s = db.DSN
	}
	return s
}

func TestLifecycle(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		use(t, db)
		here := place{Database: db.Kind().String(), Schema: db.Schema(), TablePrefix: "sqllock_"}

		st := wantJSON[statusResult](t, cli.Pending, "status", "--exit-code")
		if st.place != here || st.Version != 0 || st.Latest != latest || st.Pending != int(latest) || len(st.Migrations) != int(latest) || st.Migrations[0].AppliedAt != nil {
			t.Errorf("status: %+v", st)
		}
		dry := wantJSON[stepsResult](t, cli.Done, "up", "--dry-run")
		if dry.place != here || !dry.DryRun || dry.From != 0 || dry.To != latest || len(dry.Steps) != int(latest) || len(dry.Steps[0].Statements) == 0 {
			t.Errorf("up --dry-run: %+v", dry)
		}
		if v := wantJSON[versionResult](t, cli.Done, "version"); v.place != here || v.Version != 0 || v.Latest != latest {
			t.Errorf("version after a dry run: %+v", v)
		}
		if c := wantJSON[checkResult](t, cli.Failed, "check"); c.OK || len(c.Problems) == 0 {
			t.Errorf("check: %+v", c)
		}

		before := time.Now().Add(-time.Minute)
		stdout, stderr := want(t, cli.Done, "up", "--to", "2")
		if stdout != "version 2 (was 0)\n" || !strings.Contains(stderr, "sqllock-migrate: up 1 locks\n") {
			t.Errorf("up --to 2: %q %q", stdout, stderr)
		}
		up := wantJSON[stepsResult](t, cli.Done, "up")
		if up.DryRun || up.From != 2 || up.To != latest || len(up.Steps) != int(latest)-2 || up.Steps[0].Version != 3 || up.Steps[0].Direction != "up" {
			t.Errorf("up: %+v", up)
		}
		if stdout, _ := want(t, cli.Done, "up"); stdout != fmt.Sprintf("version %d: nothing to do\n", latest) {
			t.Errorf("up again: %q", stdout)
		}
		st = wantJSON[statusResult](t, cli.Done, "status", "--exit-code")
		if st.Version != latest || st.Pending != 0 || st.Migrations[0].AppliedAt.Before(before) || st.Migrations[0].AppliedAt.After(time.Now().Add(time.Minute)) {
			t.Errorf("status after up: %+v", st)
		}
		stdout, stderr = want(t, cli.Done, "status")
		if !strings.HasPrefix(stdout, "VERSION  NAME") || strings.Count(stdout, "applied") != int(latest) || stderr != "" {
			t.Errorf("status: %s%s", stdout, stderr)
		}

		if c := wantJSON[checkResult](t, cli.Done, "check"); !c.OK || len(c.Problems) != 0 {
			t.Errorf("check: %+v", c)
		}
		db.MustExec(t, "DROP TABLE "+db.Table("tickets"))
		c := wantJSON[checkResult](t, cli.Failed, "check")
		if c.OK || len(c.Problems) != 1 || c.Problems[0].Table != "sqllock_tickets" || c.Problems[0].Problem == "" || c.Problems[0].Fix == "" {
			t.Errorf("check: %+v", c)
		}
		if stdout, stderr := want(t, cli.Failed, "check"); !strings.Contains(stdout, "sqllock_tickets: ") || !strings.Contains(stderr, "problems: 1") {
			t.Errorf("check: %s%s", stdout, stderr)
		}

		if stdout, _ := want(t, cli.Done, "down", "--dry-run"); !strings.HasPrefix(stdout, fmt.Sprintf("-- down %d ", latest)) || !strings.Contains(stdout, "DROP TABLE") {
			t.Errorf("down --dry-run: %s", stdout)
		}
		down := wantJSON[stepsResult](t, cli.Done, "down")
		if down.From != latest || down.To != latest-1 || len(down.Steps) != 1 || down.Steps[0].Direction != "down" {
			t.Errorf("down: %+v", down)
		}
		if stdout, _ := want(t, cli.Done, "down", "--to", "0"); stdout != fmt.Sprintf("version 0 (was %d)\n", latest-1) {
			t.Errorf("down --to 0: %q", stdout)
		}
		if v, _ := want(t, cli.Done, "version"); v != "0\n" {
			t.Errorf("version: %q", v)
		}
	})
}

func TestPrefixAndSchema(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Setenv(envDSN, "oracle://is.not/read")
		args := []string{"up", "--dsn", db.DSN, "--table-prefix", "other_", "--schema", db.Schema()}
		if r := wantJSON[stepsResult](t, cli.Done, args...); r.TablePrefix != "other_" || r.Schema != db.Schema() {
			t.Errorf("%+v", r)
		}
		db.MustExec(t, "SELECT * FROM "+db.Kind().Quote(db.Schema())+"."+db.Kind().Quote("other_locks"))
		if v, _ := want(t, cli.Done, "version", "--dsn", db.DSN); v != "0\n" {
			t.Errorf("the version without the prefix is %q", v)
		}
	})
}

// TestSQLIsWhatUpDoes: who runs the printed SQL has what up would have made.
func TestSQLIsWhatUpDoes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		use(t, db)
		text, _ := want(t, cli.Done, "sql", db.Kind().String(), "--schema", db.Schema())
		for statement := range strings.SplitSeq(text, ";\n") {
			if strings.TrimSpace(statement) != "" {
				db.MustExec(t, statement)
			}
		}
		want(t, cli.Done, "check")
		if stdout, _ := want(t, cli.Done, "up"); !strings.Contains(stdout, "nothing to do") {
			t.Errorf("up: %s", stdout)
		}
	})
}

// TestLookingMakesNoFile: a mistyped name is no new database.
func TestLookingMakesNoFile(t *testing.T) {
	file := filepath.Join(t.TempDir(), "typo.db")
	t.Setenv(envDSN, "sqlite:"+file)
	for _, args := range [][]string{{"status"}, {"version"}, {"check"}, {"down"}, {"up", "--dry-run"}, {"version-column", "t", "--apply"}} {
		if _, stderr := want(t, cli.Failed, args...); !strings.Contains(stderr, "does not exist") {
			t.Errorf("%v: %s", args, stderr)
		}
	}
	want(t, cli.Done, "up")
	want(t, cli.Done, "up", "--dsn", "sqlite::memory:")
}

// TestManyProcesses: a fresh SQLite file is turned to WAL and migrated by one of
// them.
func TestManyProcesses(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := db.DSN
		if db.Kind() == sqldb.SQLite {
			s = "sqlite:" + filepath.Join(t.TempDir(), "fresh.db")
		}
		var all sync.WaitGroup
		for range 6 {
			all.Go(func() {
				if out, err := child(t, []string{envDSN + "=" + s}, "up").CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		all.Wait()
		want(t, cli.Done, "status", "--exit-code", "--dsn", s)
	})
}

func TestLockTimeout(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel() // it waits
		dsn := []string{"--dsn", plain(db), "--lock-timeout", "100ms"}
		want(t, cli.Done, append(dsn, "up")...)
		// Somebody reads (SQLite: writes) and does not end.
		tx, err := db.SQL.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(t.Context(), "SELECT * FROM "+db.Table("job_runs")); err != nil {
			t.Fatal(err)
		}
		stdout, stderr := want(t, cli.LockTimeout, append(dsn, "down")...)
		if stdout != "" || strings.Contains(stderr, "Usage:") {
			t.Errorf("%s%s", stdout, stderr)
		}
		if v, _ := want(t, cli.Done, append(dsn, "version")...); v != fmt.Sprintf("%d\n", latest) {
			t.Errorf("the version is %s", v)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		want(t, cli.Done, append(dsn, "down")...)
	})
}
