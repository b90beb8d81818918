package locktable_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// quarters are where a program that refuses to run as root can live: a folder of its own, and the user.
type quarters struct {
	dir  string
	user *syscall.Credential
}

// newQuarters makes them. Not in the test's own temporary folder, which nobody but root can enter.
func newQuarters(t testing.TB, users ...string) quarters {
	t.Helper()
	dir, err := os.MkdirTemp("", "sqllock-locktable-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if !within(5*time.Second, func() bool { return os.RemoveAll(dir) == nil }) {
			t.Errorf("%s is left behind", dir)
		}
	})
	q := quarters{dir: dir}
	if os.Geteuid() != 0 {
		return q
	}
	for _, name := range users {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 != nil || err2 != nil {
			continue
		}
		q.user = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, int(uid), int(gid)); err != nil {
			t.Fatal(err)
		}
		return q
	}
	t.Skipf("as root, this needs one of the users %v to run a server as", users)
	return q
}

// write puts a file there that only its user reads.
func (q quarters) write(t testing.TB, name, text string) (path string) {
	t.Helper()
	path = filepath.Join(q.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if q.user != nil {
		if err := os.Chown(path, int(q.user.Uid), int(q.user.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func (q quarters) command(ctx context.Context, env []string, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = q.dir
	cmd.Env = append([]string{"PATH=" + os.Getenv("PATH"), "HOME=" + q.dir, "LC_ALL=C"}, env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: q.user}
	return cmd
}

// run runs a tool to its end.
func (q quarters) run(t testing.TB, env []string, argv ...string) {
	t.Helper()
	out, err := q.command(t.Context(), env, argv...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %s", filepath.Base(argv[0]), err, out)
	}
}

// serve starts a server, which ends with the test, or by the function that it returns, without a chance to write
// anything more.
func (q quarters) serve(t testing.TB, argv ...string) (kill func()) {
	t.Helper()
	log, err := os.Create(filepath.Join(q.dir, fmt.Sprintf("log-%08x", rand.Uint32())))
	if err != nil {
		t.Fatal(err)
	}
	cmd := q.command(context.WithoutCancel(t.Context()), nil, argv...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	done := false
	kill = func() {
		if done {
			return
		}
		done = true
		_ = cmd.Process.Signal(syscall.SIGQUIT) // PostgreSQL: at once, and its children too
		timer := time.AfterFunc(5*time.Second, func() { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) })
		_ = cmd.Wait()
		timer.Stop()
		_ = log.Close()
	}
	t.Cleanup(func() {
		kill()
		if t.Failed() {
			text, _ := os.ReadFile(log.Name())
			t.Logf("%s:\n%s", argv[0], text[max(0, len(text)-4000):])
		}
	})
	return kill
}

// freePort is one below those of outgoing connections, where nobody gets it by chance.
func freePort(t testing.TB) string {
	t.Helper()
	for range 50 {
		port := strconv.Itoa(10000 + rand.IntN(5000))
		if l, err := net.Listen("tcp", "127.0.0.1:"+port); err == nil {
			_ = l.Close()
			return port
		}
	}
	t.Fatal("no free port")
	return ""
}

// postgresTool finds a program of PostgreSQL's server, of the newest version that is there; empty: there is none.
func postgresTool(name string) string {
	version := func(path string) int {
		n, _ := strconv.Atoi(filepath.Base(filepath.Dir(filepath.Dir(path))))
		return n
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	found = slices.DeleteFunc(found, func(path string) bool { return version(path) < 14 })
	if len(found) > 0 {
		return slices.MaxFunc(found, func(a, b string) int { return version(a) - version(b) })
	}
	path, err := exec.LookPath(name)
	if err != nil || strings.Contains(path, "pg_wrapper") {
		return ""
	}
	return path
}
