package main

import (
	"bytes"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/sqlnative/locks/internal/cli/clitest"
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
