package main

import (
	"bufio"
	"errors"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// In these runs MySQL is wanted and cannot be had on most machines; where it can, it is started, and the same holds.
func TestExitCodePassesThrough(t *testing.T) {
	for _, test := range []struct {
		command string
		want    int
	}{{"exit 0", 0}, {"exit 7", 7}, {"kill -TERM $$", 128 + 15}} {
		cmd, stderr := testdb(t, nil, "-databases", "mysql", "--", "sh", "-c", test.command)
		if code, _ := exitCode(cmd.Run()); code != test.want {
			t.Errorf("%q: exit code %d, want %d; %s", test.command, code, test.want, stderr)
		}
		if last := lastLine(stderr.String()); !strings.HasPrefix(last, "testdb: MySQL") {
			t.Errorf("the last line does not name the database: %q", last)
		}
	}
	cmd, stderr := testdb(t, nil, "-databases", "mysql", "--", "/no/such/command")
	if code, _ := exitCode(cmd.Run()); code != 127 {
		t.Errorf("a command that is not there: exit code %d, want 127; %s", code, stderr)
	}
}

func TestTheCommandRunsInTheCallersFolder(t *testing.T) {
	cmd, stderr := testdb(t, nil, "-databases", "mysql", "--", "sh", "-c", "pwd -P; cat")
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	cmd.Dir, cmd.Stdin = dir, strings.NewReader("and its standard input")
	out, err := cmd.Output()
	if err != nil || string(out) != dir+"\nand its standard input" {
		t.Errorf("%q, %v, %s", out, err, stderr)
	}
}

func TestRequiredAndMissingIsAnErrorBeforeTheCommand(t *testing.T) {
	marker := filepath.Join(t.TempDir(), "ran")
	cmd, stderr := testdb(t, []string{"SQLLOCK_TEST_REQUIRE=mariadb"}, "-databases", "mysql", "--", "touch", marker)
	code, _ := exitCode(cmd.Run())
	if code != 1 || !strings.Contains(stderr.String(), "SQLLOCK_TEST_REQUIRE names what cannot be had: MariaDB (") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the command ran all the same")
	}
}

func TestADeadDockerFallsThroughWithALine(t *testing.T) {
	refusing := "tcp://127.0.0.1:" + closedPort(t)
	for _, host := range []string{"unix:///no/such/docker.sock", refusing} {
		began := time.Now()
		cmd, stderr := testdb(t, []string{"SQLLOCK_TEST_DOCKER=1", "DOCKER_HOST=" + host}, "-databases", "mysql", "--", "true")
		if code, _ := exitCode(cmd.Run()); code != 0 {
			t.Errorf("%s: exit code %d: %s", host, code, stderr)
		}
		if n := strings.Count(stderr.String(), "testdb: Docker cannot be used, going on without it: "); n != 1 {
			t.Errorf("%s: %d lines about Docker, want 1: %s", host, n, stderr)
		}
		if took := time.Since(began); took > 60*time.Second {
			t.Errorf("%s: it took %v", host, took)
		}
	}
}

func TestAGivenDSNThatDoesNotAnswerIsAnError(t *testing.T) {
	for name, dsn := range map[string]string{
		"SQLLOCK_TEST_POSTGRES_DSN": "postgres://me:s3cret@127.0.0.1:" + closedPort(t) + "/db?connect_timeout=5",
		"SQLLOCK_TEST_MYSQL_DSN":    "me:s3cret@tcp(127.0.0.1:" + closedPort(t) + ")/db",
		"SQLLOCK_TEST_MARIADB_DSN":  "s3cret, and no DSN at all",
	} {
		cmd, stderr := testdb(t, []string{name + "=" + dsn}, "-databases", "postgres,mysql,mariadb", "--", "true")
		code, _ := exitCode(cmd.Run())
		if code != 1 || !strings.Contains(stderr.String(), name) {
			t.Errorf("%s: exit code %d: %s", name, code, stderr)
		}
		if strings.Contains(stderr.String(), "s3cret") {
			t.Errorf("%s: the password shows: %s", name, stderr)
		}
	}
}

// What testdb started is gone afterwards: after a good end, a bad one, and a signal to it in the middle.
func TestWhatWasStartedIsStopped(t *testing.T) {
	installed(t, "postgres")
	for name, test := range map[string]struct {
		command string
		signal  syscall.Signal
		want    int
	}{
		"after success": {"true", 0, 0},
		"after failure": {"exit 3", 0, 3},
		"after SIGINT":  {"sleep 60", syscall.SIGINT, 128 + 2},
		"after SIGTERM": {"sleep 60", syscall.SIGTERM, 128 + 15},
	} {
		t.Run(name, func(t *testing.T) {
			cmd, stderr := testdb(t, nil, "-databases", "postgres", "--", "sh", "-c",
				`echo "$SQLLOCK_TEST_POSTGRES_DSN"; echo "$SQLLOCK_TEST_STARTED"; `+test.command)
			out, err := cmd.StdoutPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			lines := bufio.NewScanner(out)
			if !lines.Scan() {
				t.Fatalf("no DSN: %v, %s", cmd.Wait(), stderr)
			}
			dsn, err := url.Parse(lines.Text())
			if err != nil {
				t.Fatal(err)
			}
			if lines.Scan(); lines.Text() != "postgres" {
				t.Errorf("SQLLOCK_TEST_STARTED=%s", lines.Text())
			}
			if test.signal != 0 {
				cmd.Process.Signal(test.signal)
			}
			if code, _ := exitCode(cmd.Wait()); code != test.want {
				t.Errorf("exit code %d, want %d: %s", code, test.want, stderr)
			}
			if connection, err := net.Dial("tcp", dsn.Host); err == nil {
				connection.Close()
				t.Errorf("something still answers on %s", dsn.Host)
			}
			password, _ := dsn.User.Password()
			if strings.Contains(stderr.String(), password) {
				t.Errorf("the password shows: %s", stderr)
			}
		})
	}
}

// A signal before the databases are up: nothing runs, and nothing is left.
func TestASignalWhileStarting(t *testing.T) {
	installed(t, "postgres")
	marker := filepath.Join(t.TempDir(), "ran")
	tmp := t.TempDir()
	if err := os.Chmod(tmp, 0o777); err != nil {
		t.Fatal(err)
	}
	cmd, stderr := testdb(t, []string{"TMPDIR=" + tmp}, "-databases", "postgres", "--", "touch", marker)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	time.Sleep(150 * time.Millisecond) // somewhere in initdb; wherever it hits, the same has to hold
	cmd.Process.Signal(syscall.SIGTERM)
	err := cmd.Wait()
	if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, stderr)
	}
	if _, err := os.Stat(marker); err == nil {
		t.Error("the command ran all the same")
	}
	if left, _ := filepath.Glob(filepath.Join(tmp, "sqllock-testdb-*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// A panic while a server is brought up must not leave the others behind.
func TestAPanicBecomesAnError(t *testing.T) {
	err := each(kinds(), func(k *kind) error {
		if k.name == "mysql" {
			panic("oh")
		}
		return nil
	})
	if err == nil || err.Error() != "MySQL: panic: oh" {
		t.Error(err)
	}
}

func lastLine(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	return lines[len(lines)-1]
}

// closedPort is a port of 127.0.0.1 where nobody listens.
func closedPort(t *testing.T) string {
	t.Helper()
	port, err := freePort()
	if err != nil {
		t.Fatal(err)
	}
	return port
}
