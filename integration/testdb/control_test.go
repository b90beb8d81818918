package main

import (
	"context"
	"errors"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/integration/testdb/control"
)

// The life of a server that testdb started, seen from a test: through package control, on every way there is here.
func TestControl(t *testing.T) {
	for _, k := range kinds() {
		t.Run("native/"+k.name, func(t *testing.T) {
			k, b := installed(t, k.name)
			teller, _ := quiet()
			s, err := startNative(context.Background(), k, b, teller)
			if err != nil {
				t.Fatal(err)
			}
			p := s.control.(*process)
			t.Cleanup(func() {
				if err := p.Remove(context.Background()); err != nil {
					t.Error(err)
				}
				if _, err := os.Stat(p.dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("%s is left: %v", p.dir, err)
				}
			})
			if isRoot() {
				if owner := ownerOf(t, p.cmd.Process.Pid); owner == "0" {
					t.Error("the server runs as root")
				}
			}
			live(t, s)
		})
		t.Run("docker/"+k.name, func(t *testing.T) {
			if testing.Short() || os.Getenv("SQLLOCK_TEST_DOCKER") == "0" {
				t.Skip("without Docker")
			}
			if k.name != "postgres" && os.Getenv("SQLLOCK_TEST_LONG") != "1" {
				t.Skip("a container is a container: the others with SQLLOCK_TEST_LONG=1")
			}
			ctx := context.Background()
			e, err := findEngine(ctx)
			if err != nil {
				t.Skip(err)
			}
			if _, err := e.client.ImageInspect(ctx, k.image); err != nil {
				t.Skip(err) // this test is not worth a pull
			}
			teller, _ := quiet()
			s, err := e.start(ctx, k, teller)
			if err != nil && strings.Contains(err.Error(), "reaper") {
				t.Skip(err) // testdb says what to do about it
			}
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() {
				if err := s.control.Remove(ctx); err != nil {
					t.Error(err)
				}
			})
			live(t, s)
		})
	}
}

// live takes a server through everything that can be done to it, and finds its data again each time.
func live(t *testing.T, s *server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	board, err := newSwitchboard(map[string]*server{s.kind.name: s})
	if err != nil {
		t.Fatal(err)
	}
	defer board.close()
	t.Setenv(s.kind.env("CONTROL"), board.urls[s.kind.name])
	remote, ok := control.Of(s.kind.name)
	if !ok {
		t.Fatal("there is no control")
	}

	answers := func() bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := s.kind.probe(ctx, s.dsn)
		return err == nil
	}
	exec := func(statement string) {
		t.Helper()
		db, err := s.kind.open(s.dsn)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.ExecContext(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	// An administrator: may make schemas (databases, on MySQL).
	exec("CREATE SCHEMA sqllock_test_control")
	exec("CREATE TABLE sqllock_test_control.kept (id INTEGER)")
	for _, step := range []struct {
		name string
		do   func(context.Context) error
		up   bool
	}{
		{"Pause", remote.Pause, false},
		{"Resume", remote.Resume, true},
		{"Stop", remote.Stop, false},
		{"Start", remote.Start, true},
		{"Kill", remote.Kill, false},
		{"Start after Kill", remote.Start, true},
		{"Restart", remote.Restart, true},
		{"Pause before the end", remote.Pause, false}, // a paused server can be removed
	} {
		if err := step.do(ctx); err != nil {
			t.Fatalf("%s: %v", step.name, err)
		}
		if answers() != step.up {
			t.Fatalf("%s: the server answers: %v, want %v", step.name, !step.up, step.up)
		}
		if step.up {
			exec("INSERT INTO sqllock_test_control.kept VALUES (1)")
		}
	}
}

func TestControlRefusesWhatItDoesNotKnow(t *testing.T) {
	board, err := newSwitchboard(map[string]*server{"postgres": {kind: kindNamed(t, "postgres"), control: &process{}}})
	if err != nil {
		t.Fatal(err)
	}
	defer board.close()
	t.Setenv("SQLLOCK_TEST_POSTGRES_CONTROL", board.urls["postgres"])
	server, _ := control.Of("postgres")
	if err := server.Pause(context.Background()); err == nil || !strings.Contains(err.Error(), "the server is not running") {
		t.Errorf("Pause of a server that is not running: %v", err)
	}
	if err := act(context.Background(), &process{}, "explode"); err == nil {
		t.Error("an unknown verb was accepted")
	}
	t.Setenv("SQLLOCK_TEST_POSTGRES_CONTROL", "")
	if _, ok := control.Of("postgres"); ok {
		t.Error("a server that testdb did not start has a control")
	}
}

func TestFreePortIsNoStandardOne(t *testing.T) {
	for range 20 {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		if n, err := strconv.Atoi(port); err != nil || n < firstPort || n > lastPort {
			t.Errorf("port %s", port)
		}
		l, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			t.Fatal(err)
		}
		l.Close()
	}
}

func ownerOf(t *testing.T, pid int) string {
	t.Helper()
	out, err := exec.Command("ps", "-o", "uid=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		t.Skip(err)
	}
	return strings.TrimSpace(string(out))
}
