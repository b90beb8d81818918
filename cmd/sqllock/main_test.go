package main

import (
	"os"
	"testing"

	"github.com/sqlnative/locks/internal/cli/clitest"
	"github.com/sqlnative/locks/internal/dbtest"
)

// The test binary is the command itself where childEnv is set, the command that it
// runs, and its guardian (whose package sees to that).
const (
	childEnv = "SQLLOCK_TEST_CHILD"
	jobArg   = "__job"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == jobArg {
		os.Exit(job(os.Args[2:]))
	}
	if os.Getenv(childEnv) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
	}
	os.Unsetenv(envDSN)
	dbtest.Parallel(6)
	os.Exit(m.Run())
}

var command clitest.Command = run

func call(args ...string) (code int, stdout, stderr string) { return command.Call(args...) }

func want(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	return command.Want(t, code, args...)
}

func wantJSON[T any](t *testing.T, code int, args ...string) T {
	t.Helper()
	return clitest.WantJSON[T](t, command, code, args...)
}

// on names the database on the command line.
func on(db *dbtest.DB, args ...string) []string {
	return append([]string{args[0], "--dsn", db.DSN}, args[1:]...)
}

// migrated makes the tables.
func migrated(t *testing.T, db *dbtest.DB) {
	t.Helper()
	want(t, 0, on(db, "ls", "--migrate")...)
}
