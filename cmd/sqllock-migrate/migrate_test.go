package main

import (
	"fmt"
	"os"
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
	for _, args := range [][]string{{"version"}, {"check"}, {"down"}, {"version-column", "t", "--apply"}} {
		if _, stderr := want(t, cli.Failed, args...); !strings.Contains(stderr, "does not exist") {
			t.Errorf("%v: %s", args, stderr)
		}
	}
	// What would be done and what is pending can be told all the same.
	dry := wantJSON[stepsResult](t, cli.Done, "up", "--dry-run")
	if here := (place{Database: "sqlite", Schema: "main", TablePrefix: "sqllock_"}); dry.place != here || dry.From != 0 || dry.To != latest || len(dry.Steps) != int(latest) {
		t.Errorf("up --dry-run: %+v", dry)
	}
	if stdout, stderr := want(t, cli.Done, "up", "--dry-run"); !strings.Contains(stdout, "CREATE TABLE") || !strings.Contains(stderr, "typo.db does not exist") {
		t.Errorf("up --dry-run: %s%s", stdout, stderr)
	}
	if st := wantJSON[statusResult](t, cli.Pending, "status", "--exit-code"); st.Pending != int(latest) {
		t.Errorf("status: %+v", st)
	}
	if _, stderr := want(t, cli.Done, "status"); !strings.Contains(stderr, "typo.db does not exist") {
		t.Errorf("status: %s", stderr)
	}
	if _, stderr := want(t, cli.Failed, "up", "--dry-run", "--dsn", "sqlite:"+filepath.Join(file, "no", "folder.db")); !strings.Contains(stderr, "folder") {
		t.Errorf("up --dry-run in no folder: %s", stderr)
	}
	if _, err := os.Stat(file); err == nil {
		t.Fatal("the file was made")
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

// TestLockTimeout: it is the bound of all waiting. Only the calls that have to fail
// have a short one.
func TestLockTimeout(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel() // it waits
		dsn := []string{"--dsn", plain(db)}
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
		begun := time.Now()
		stdout, stderr := want(t, cli.LockTimeout, append(dsn, "down", "--lock-timeout", "2s")...)
		if took := time.Since(begun); took < 1900*time.Millisecond || took > 30*time.Second {
			t.Errorf("it took %v", took)
		}
		if stdout != "" || !strings.Contains(stderr, "for 2s") && !strings.Contains(stderr, "for all of 2s") || !strings.Contains(stderr, "--lock-timeout") {
			t.Errorf("%s%s", stdout, stderr)
		}
		if v, _ := want(t, cli.Done, append(dsn, "version")...); v != fmt.Sprintf("%d\n", latest) {
			t.Errorf("the version is %s", v)
		}
		if db.Kind() != sqldb.SQLite {
			// In a process of its own it waits, and has the table when it comes free.
			m := &migrating{Cmd: child(t, []string{envDSN + "=" + plain(db)}, "down")}
			m.watch(t)
			m.sees(t, fmt.Sprintf("down %d job_runs", latest))
			m.sees(t, "sqllock-migrate: table in use, trying again")
			if err := tx.Rollback(); err != nil {
				t.Fatal(err)
			}
			if err := m.Wait(); err != nil {
				t.Error(err)
			}
			return
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		want(t, cli.Done, append(dsn, "down")...)
	})
}

// TestTheirTable: a table of the user's of the name of one of ours.
func TestTheirTable(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		use(t, db)
		const theirs = "CREATE TABLE jobs (id INT PRIMARY KEY)"
		db.MustExec(t, theirs)
		for _, args := range [][]string{{"up"}, {"up", "--dry-run"}} {
			if stdout, stderr := want(t, cli.Failed, append(args, "--table-prefix", "")...); stdout != "" ||
				!strings.Contains(stderr, "sqllock-migrate: migrations: table jobs is there already and is not sqllock's (") || !strings.Contains(stderr, "choose another --table-prefix") {
				t.Errorf("%v: %s%s", args, stdout, stderr)
			}
		}
		if v, _ := want(t, cli.Done, "version", "--table-prefix", ""); v != "0\n" {
			t.Errorf("the version is %s", v)
		}
		// Recorded all the same, by an earlier release.
		db.MustExec(t, "DROP TABLE jobs")
		want(t, cli.Done, "up", "--table-prefix", "")
		db.MustExec(t, "DROP TABLE jobs", theirs)
		if stdout, stderr := want(t, cli.Failed, "up", "--table-prefix", ""); stdout != "" || !strings.Contains(stderr, "nothing to do, but the tables are not what they should be") ||
			!strings.Contains(stderr, `"sqllock-migrate check"`) || !strings.Contains(stderr, "jobs") {
			t.Errorf("up: %s%s", stdout, stderr)
		}
		want(t, cli.Failed, "down", "--to", "0", "--table-prefix", "")
		db.MustExec(t, "SELECT id FROM jobs")
		db.MustExec(t, "DROP TABLE jobs")
		want(t, cli.Done, "down", "--to", "0", "--table-prefix", "")

		db.MustExec(t, "CREATE TABLE schema_version (id INT PRIMARY KEY, version INT)")
		for _, args := range [][]string{{"up"}, {"status"}, {"check"}, {"down"}} {
			if _, stderr := want(t, cli.Failed, append(args, "--table-prefix", "")...); !strings.Contains(stderr, "table schema_version is there already and is not sqllock's: choose another --table-prefix") {
				t.Errorf("%v: %s", args, stderr)
			}
		}
	})
}

// TestOtherDirection: --to that is on the other side.
func TestOtherDirection(t *testing.T) {
	t.Setenv(envDSN, "sqlite:"+filepath.Join(t.TempDir(), "a.db"))
	want(t, cli.Done, "up", "--to", "6")
	stdout, stderr := want(t, cli.Done, "up", "--to", "1")
	if stdout != "version 6: nothing to do\n" || !strings.Contains(stderr, `the version is 6, above 1 already; "sqllock-migrate down --to 1" would go back`) {
		t.Errorf("%s%s", stdout, stderr)
	}
	want(t, cli.Done, "down", "--to", "1")
	stdout, stderr = want(t, cli.Done, "down", "--to", "5")
	if stdout != "version 1: nothing to do\n" || !strings.Contains(stderr, `the version is 1, below 5 already; "sqllock-migrate up --to 5" would go on`) {
		t.Errorf("%s%s", stdout, stderr)
	}
}

// TestCheckPrintsSQL: what is missing is made again by what check prints.
func TestCheckPrintsSQL(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		use(t, db)
		want(t, cli.Done, "up", "--to", "3")
		if stdout, _ := want(t, cli.Failed, "check"); stdout != fmt.Sprintf("the tables of sqllock have version 3, and this program needs version %d: run \"sqllock-migrate up\" or migrations.Up\n", latest) {
			t.Errorf("check of an older version: %s", stdout)
		}
		want(t, cli.Done, "up")
		db.MustExec(t, "ALTER TABLE "+db.Table("locks")+" DROP COLUMN holder", "DROP TABLE "+db.Table("claims"))
		for _, p := range wantJSON[checkResult](t, cli.Failed, "check").Problems {
			for statement := range strings.SplitSeq(p.Fix, ";\n") {
				db.MustExec(t, strings.TrimSuffix(statement, ";"))
			}
		}
		want(t, cli.Done, "check")
	})
}
