package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/internal/dsn"
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

// call runs the command in this process.
func call(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = run(args, &out, &err)
	return code, out.String(), err.String()
}

// shown is what the log of a failed test shows of the arguments: no password.
func shown(args []string) string { return dsn.ScrubArgs(args...).Text(strings.Join(args, " ")) }

// want runs the command and fails the test if it does not end with code.
func want(t *testing.T, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	got, stdout, stderr := call(args...)
	if got != code {
		t.Fatalf("%v: exit code %d, want %d\nstdout: %s\nstderr: %s", shown(args), got, code, stdout, stderr)
	}
	return stdout, stderr
}

// wantJSON reads the result into v, which has to know every field.
func wantJSON[T any](t *testing.T, code int, args ...string) T {
	t.Helper()
	stdout, _ := want(t, code, append(args, "--json")...)
	var v T
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v: %v in %s", shown(args), err, stdout)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Errorf("%v: more than one JSON value: %s", shown(args), stdout)
	}
	return v
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
