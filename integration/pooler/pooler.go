// Package pooler starts a PgBouncer for a test.
package pooler

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Start starts a PgBouncer before the server of a PostgreSQL DSN, in session or transaction mode, and returns the DSN
// of the same database through it. It ends with the test, which is skipped where there is no PgBouncer.
func Start(t *testing.T, server, mode string) (dsn string) {
	t.Helper()
	path, err := find(t.Context())
	if err != nil {
		t.Skipf("this needs PgBouncer: %v", err)
	}
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	dir, err := os.MkdirTemp("", "sqllock-pooler-") // not the test's own, which nobody but root can enter
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port := freePort(t)
	conf := filepath.Join(dir, "pgbouncer.ini")
	err = os.WriteFile(conf, fmt.Appendf(nil, `[databases]
locks = host=%s port=%s dbname=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = %s
default_pool_size = 40
max_client_conn = 100
ignore_startup_parameters = extra_float_digits
`, u.Hostname(), u.Port(), u.Path[1:], quote(u.User.Username()), quote(password), port, mode), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, conf)
	if os.Geteuid() == 0 { // it refuses to run as root
		nobody, err := user.Lookup("nobody")
		if err != nil {
			t.Skipf("as root, this needs the user nobody: %v", err)
		}
		uid, _ := strconv.Atoi(nobody.Uid)
		gid, _ := strconv.Atoi(nobody.Gid)
		if err := errors.Join(os.Chown(dir, uid, gid), os.Chown(conf, uid, gid)); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	}
	said := &output{}
	cmd.Stderr = said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	dsn = fmt.Sprintf("postgres://anybody@127.0.0.1:%s/locks?sslmode=disable", port)
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := answers(t.Context(), dsn)
		if err == nil {
			return dsn
		}
		if time.Now().After(deadline) {
			t.Fatalf("PgBouncer does not answer: %v; it says: %s", err, said.String())
		}
	}
}

func answers(ctx context.Context, dsn string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	c, err := pgx.Connect(ctx, dsn+"&default_query_exec_mode=exec")
	if err != nil {
		return err
	}
	return c.Close(ctx)
}

// find looks for it, and has Debian and Ubuntu install it, as testdb does for servers.
func find(ctx context.Context) (string, error) {
	look := func() (string, error) {
		if path, err := exec.LookPath("pgbouncer"); err == nil {
			return path, nil
		}
		return exec.LookPath("/usr/sbin/pgbouncer")
	}
	path, err := look()
	if err == nil {
		return path, nil
	}
	_, debian := os.Stat("/etc/debian_version")
	switch {
	case os.Getenv("SQLLOCK_TEST_APT") == "0":
		return "", errors.New("it is not there, and apt-get is switched off by SQLLOCK_TEST_APT=0")
	case debian != nil || os.Geteuid() != 0:
		return "", errors.New("it is not there, and only root on Debian and Ubuntu can have it installed")
	}
	// One package's tests at a time: who comes second must not find the first one's policy, and be left without it.
	done, err := alone()
	if err != nil {
		return "", err
	}
	defer done()
	if path, err := look(); err == nil {
		return path, nil
	}
	const policy = "/usr/sbin/policy-rc.d" // 101: no package starts its service
	if f, err := os.OpenFile(policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755); err == nil {
		defer func() { _ = os.Remove(policy) }()
		_, err = f.WriteString("#!/bin/sh\nexit 101\n")
		if err := errors.Join(err, f.Close()); err != nil {
			return "", err
		}
	} else if err := exec.CommandContext(ctx, policy, "pgbouncer", "start").Run(); err == nil {
		return "", fmt.Errorf("%s lets packages start their services, so it is not installed", policy)
	}
	// testdb, or somebody else, may be installing something.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120", "--no-install-recommends", "--no-remove", "install", "pgbouncer")
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("apt-get install pgbouncer: %w: %s", err, out[max(0, len(out)-300):])
	}
	return look()
}

// alone waits until no other process installs.
func alone() (done func(), err error) {
	f, err := os.OpenFile(filepath.Join(os.TempDir(), "sqllock-pgbouncer.lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil
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

// output is what a process has said so far.
type output struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *output) Write(b []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(b)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
