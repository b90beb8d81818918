package main

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestMain lets the test binary be testdb: a test runs it again with this variable set.
func TestMain(m *testing.M) {
	if os.Getenv("TESTDB_BE_MAIN") == "1" {
		env := without(os.Environ(), func(name string) bool { return name == "TESTDB_BE_MAIN" })
		os.Exit(run(os.Args[1:], env))
	}
	os.Exit(m.Run())
}

// testdb prepares a run of testdb that finds nothing by itself unless env says so, and of which the tests see all.
func testdb(t *testing.T, env []string, args ...string) (*exec.Cmd, *bytes.Buffer) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, args...)
	cmd.Env = append(without(os.Environ(), func(name string) bool {
		return strings.HasPrefix(name, "SQLLOCK_TEST_") || name == "DOCKER_HOST"
	}), "TESTDB_BE_MAIN=1", "SQLLOCK_TEST_DOCKER=0", "SQLLOCK_TEST_APT=0")
	cmd.Env = append(cmd.Env, env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	return cmd, &stderr
}

// installed finds a server on this machine, or skips the test.
func installed(t *testing.T, name string) (*kind, *binary) {
	t.Helper()
	k := kindNamed(t, name)
	b, err := k.find(context.Background(), searchDirs(k, os.Getenv("PATH"), "/"))
	if err != nil {
		t.Skip(err)
	}
	return k, b
}

func kindNamed(t *testing.T, name string) *kind {
	t.Helper()
	found, err := parseKinds(name, "this test")
	if err != nil || len(found) != 1 {
		t.Fatalf("%v: %v", found, err)
	}
	return found[0]
}

// script writes an executable shell script below dir.
func script(t *testing.T, path, body string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
}

// quiet is a teller whose lines a test can read.
func quiet() (*teller, *bytes.Buffer) {
	var out bytes.Buffer
	return &teller{out: &out}, &out
}
