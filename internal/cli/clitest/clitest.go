// Package clitest runs a command of sqllock inside its test.
package clitest

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/sqlnative/locks/internal/dsn"
)

// Command is what main calls: it returns the exit code.
type Command func(args []string, stdout, stderr io.Writer) int

// Call runs the command.
func (c Command) Call(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = c(args, &out, &err)
	return code, out.String(), err.String()
}

// Want runs the command and fails the test if it does not end with code.
func (c Command) Want(t testing.TB, code int, args ...string) (stdout, stderr string) {
	t.Helper()
	got, stdout, stderr := c.Call(args...)
	if got != code {
		t.Fatalf("%v: exit code %d, want %d\nstdout: %s\nstderr: %s", Shown(args), got, code, stdout, stderr)
	}
	return stdout, stderr
}

// WantJSON runs the command with --json and reads the result into a T, which has to know
// every field.
func WantJSON[T any](t testing.TB, c Command, code int, args ...string) T {
	t.Helper()
	stdout, _ := c.Want(t, code, append(args, "--json")...)
	var v T
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&v); err != nil {
		t.Fatalf("%v: %v in %s", Shown(args), err, stdout)
	}
	if _, err := dec.Token(); err != io.EOF {
		t.Errorf("%v: more than one JSON value: %s", Shown(args), stdout)
	}
	return v
}

// Shown is what the log of a failed test shows of the arguments: no password.
func Shown(args []string) string { return dsn.ScrubArgs(args...).Text(strings.Join(args, " ")) }
