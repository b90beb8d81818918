package main

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sqlnative/locks/internal/dsn"
)

// The test binary is the command itself where childEnv is set, so that signals and
// exit codes of a real process can be seen.
const (
	childEnv = "SQLLOCK_MIGRATE_TEST_CHILD"
	// gateEnv names a text: the child stops when it is about to write it to stderr,
	// after it has written it, until its stdin ends.
	gateEnv = "SQLLOCK_MIGRATE_TEST_GATE"
)

func TestMain(m *testing.M) {
	if os.Getenv(childEnv) != "" {
		os.Exit(run(os.Args[1:], os.Stdout, gate{os.Stderr, os.Getenv(gateEnv)}))
	}
	os.Unsetenv(envDSN)
	os.Exit(m.Run())
}

type gate struct {
	w    io.Writer
	text string
}

func (g gate) Write(p []byte) (int, error) {
	n, err := g.w.Write(p)
	if g.text != "" && bytes.Contains(p, []byte(g.text)) {
		_, _ = io.Copy(io.Discard, os.Stdin)
	}
	return n, err
}

// child is the command as a process of its own.
func child(t *testing.T, env []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), childEnv+"=1"), env...)
	return cmd
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
