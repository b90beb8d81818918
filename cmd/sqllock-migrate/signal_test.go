package main

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/internal/dbtest"
)

// migrating is the command in a process of its own.
type migrating struct {
	*exec.Cmd
	gate   io.Closer
	stderr *bufio.Scanner
}

// startMigrating starts an "up" that comes to a halt while migration 3 is running.
func startMigrating(t *testing.T, db *dbtest.DB) *migrating {
	t.Helper()
	m := &migrating{Cmd: child(t, []string{envDSN + "=" + db.DSN, gateEnv + "=up 3 "}, "up")}
	gate, err := m.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.gate = gate
	m.watch(t)
	m.sees(t, "up 3 ")
	return m
}

// watch starts the process, with its stderr to be read by sees.
func (m *migrating) watch(t *testing.T) {
	t.Helper()
	stderr, err := m.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	m.stderr = bufio.NewScanner(stderr)
	if err := m.Start(); err != nil {
		t.Fatal(err)
	}
}

// sees reads stderr up to a text.
func (m *migrating) sees(t *testing.T, text string) {
	t.Helper()
	var all []string
	for m.stderr.Scan() {
		if all = append(all, m.stderr.Text()); strings.Contains(m.stderr.Text(), text) {
			return
		}
	}
	t.Fatalf("%q was never written: %s", text, strings.Join(all, "\n"))
}

func (m *migrating) interrupt(t *testing.T) {
	t.Helper()
	if err := m.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
}

// ends waits for the process, which has to fail.
func (m *migrating) ends(t *testing.T) {
	t.Helper()
	var exit *exec.ExitError
	if err := m.Wait(); !asExit(err, &exit) || exit.ExitCode() != cli.Failed {
		t.Errorf("it ended with %v", err)
	}
}

func TestFirstSignalFinishesTheMigration(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		m := startMigrating(t, db)
		m.interrupt(t)
		m.sees(t, "stopping as soon as")
		if err := m.gate.Close(); err != nil {
			t.Fatal(err)
		}
		m.sees(t, "stopped by a signal")
		m.ends(t)
		use(t, db)
		if v, _ := want(t, cli.Done, "version"); v != "3\n" {
			t.Errorf("the version is %s", v)
		}
		want(t, cli.Done, "up")
	})
}

func TestSecondSignalAborts(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		m := startMigrating(t, db)
		m.interrupt(t)
		m.sees(t, "stopping as soon as")
		m.interrupt(t)
		m.sees(t, "aborting")
		m.sees(t, "aborted: ")
		m.ends(t) // with the gate closed
		use(t, db)
		if v, _ := want(t, cli.Done, "version"); v != "2\n" {
			t.Errorf("the version is %s", v)
		}
		if stdout, _ := want(t, cli.Done, "up"); stdout != fmt.Sprintf("version %d (was 2)\n", latest) {
			t.Errorf("up: %s", stdout)
		}
	})
}

// TestSignalWhileConnecting: a server that never answers holds up nobody.
func TestSignalWhileConnecting(t *testing.T) {
	for _, scheme := range []string{"postgres", "mysql"} {
		t.Run(scheme, func(t *testing.T) {
			silent, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = silent.Close() }()
			m := &migrating{Cmd: child(t, nil, "status", "--dsn", scheme+"://u@"+silent.Addr().String()+"/d")}
			m.watch(t)
			conn, err := silent.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			m.interrupt(t)
			m.sees(t, "stopped by a signal")
			m.ends(t)
		})
	}
}
