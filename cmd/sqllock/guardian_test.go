//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/internal/guardian"
	"github.com/sqlnative/locks/sqldb"
)

// TestGuardianBeginsEarly: the guardian is at work before the drivers are initialised,
// and without them; the control, the command itself, has them. (It costs half of what
// "sqllock run" costs if it is not so.)
func TestGuardianBeginsEarly(t *testing.T) {
	initialised := func(env, arg string) string {
		cmd := exec.Command(os.Args[0], arg)
		cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1", env)
		said, err := cmd.CombinedOutput()
		if err != nil && cmd.ProcessState.ExitCode() != exitUsage {
			t.Fatalf("%s: %v: %s", arg, err, said)
		}
		return string(said)
	}
	early, whole := initialised("X=", guardian.Arg), initialised(childEnv+"=1", "--version")
	if !strings.Contains(early, "is started by \"sqllock run\" only") || !strings.Contains(early, "init os ") {
		t.Errorf("the guardian says %s", early)
	}
	for _, pkg := range []string{"modernc.org/sqlite/lib", "github.com/jackc/pgx/v5/pgtype", "github.com/go-sql-driver/mysql", "crypto/x509", "encoding/json"} {
		if trace := "init " + pkg + " @"; !strings.Contains(whole, trace) {
			t.Errorf("%s is not in the command either: look for another", pkg)
		} else if strings.Contains(early, trace) {
			t.Errorf("%s is initialised before the guardian is: one of its imports sorts behind it (see the package's doc)", pkg)
		}
	}
}

// TestGuardianCannotStart: then no lock is taken, and nothing is run.
func TestGuardianCannotStart(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		migrated(t, db)
		size := 256 << 10 // more than a process may be given: on Linux that is 128 KiB for one argument
		if runtime.GOOS != "linux" {
			size = 2 << 20 // and elsewhere 1 MiB or less for all
		}
		long := strings.Repeat("x", size)
		strategies := []string{strategyTable, strategyAdvisory}
		if db.Kind() == sqldb.SQLite {
			strategies = strategies[:1]
		}
		for _, strategy := range strategies {
			_, said := want(t, exitInternal, on(db, "run", "x", "--strategy", strategy, "--", "true", long)...)
			if !strings.Contains(said, "starting the guardian: argument list too long") {
				t.Errorf("said %.300s", said)
			}
		}
		for _, table := range []string{"locks", "job_runs"} {
			var n int
			if err := db.QueryRow(t.Context(), "SELECT count(*) FROM "+db.Table(table)).Scan(&n); err != nil || n != 0 {
				t.Errorf("%d rows in %s, %v", n, table, err)
			}
		}
		want(t, 0, on(db, "run", "x", "--", "true")...) // the control
	})
}

// TestGuardianEnds: when sqllock has ended, so has its guardian.
func TestGuardianEnds(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		beating(t, db)
		p := start(t, db.DSN, beat(db, "0s")...)
		guardian := p.number("guardian ")
		if err := syscall.Kill(guardian, 0); err != nil {
			t.Fatalf("the guardian of a command that runs: %v", err) // the control
		}
		if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		<-p.ended
		if err := syscall.Kill(guardian, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("the guardian: %v", err)
		}
	})
}
