package advisory_test

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
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// Through PgBouncer in session mode a client has a session of the server to itself: everything works. In transaction
// mode a lock would stay behind in a session that is not ours: New refuses it.
func TestPgBouncer(t *testing.T) {
	fresh := dbtest.New(t, sqldb.Postgres)
	schema := sqldb.Schema(fresh.Schema()) // PgBouncer does not hand search_path on
	ways := []struct {
		name string
		flavour
		suffix string
	}{
		{"pgxpool exec", flavour{"", sqldb.Postgres, ""}, "&default_query_exec_mode=exec"},
		{"pgx stdlib simple protocol", flavour{"", sqldb.Postgres, "pgx"}, "&default_query_exec_mode=simple_protocol&client_encoding=UTF8"},
		{"lib pq", flavour{"", sqldb.Postgres, "postgres"}, "&binary_parameters=yes"},
	}
	t.Run("session", func(t *testing.T) {
		dsn := bouncer(t, fresh, "session")
		for _, way := range ways {
			t.Run(way.name, func(t *testing.T) {
				const ttl = 600 * time.Millisecond
				a, b := locker(t, way.open(t, dsn+way.suffix, schema), lock.TTL(ttl)), locker(t, fresh.DB)
				got := acquire(t, a, "job")
				time.Sleep(3 * ttl)
				if err := got.Err(); err != nil {
					t.Error(err)
				}
				if _, err := b.Acquire(t.Context(), "job", lock.Try()); !errors.Is(err, lock.ErrHeld) {
					t.Errorf("past the pooler: %v", err)
				}
				release(t, got)
				next := acquire(t, b, "job")
				if _, err := a.Acquire(t.Context(), "job", lock.Wait(300*time.Millisecond)); !errors.Is(err, lock.ErrHeld) {
					t.Errorf("through the pooler: %v", err)
				}
				release(t, next)
			})
		}
	})
	t.Run("transaction", func(t *testing.T) {
		dsn := bouncer(t, fresh, "transaction")
		for _, way := range ways {
			t.Run(way.name, func(t *testing.T) {
				db := way.open(t, dsn+way.suffix, schema)
				l, err := advisory.New(t.Context(), db)
				if err == nil {
					_ = l.Close()
				}
				if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "PgBouncer") {
					t.Errorf("New: %v", err)
				}
			})
		}
	})
}

// bouncer starts a PgBouncer in front of the database's server.
func bouncer(t *testing.T, fresh *dbtest.DB, mode string) (dsn string) {
	t.Helper()
	path, err := findPgBouncer(t.Context())
	if err != nil {
		t.Skipf("this needs PgBouncer: %v", err)
	}
	u, err := url.Parse(fresh.DSN)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	dir, err := os.MkdirTemp("", "sqllock-advisory-") // not the test's own, which nobody but root can enter
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
	var said strings.Builder
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	dsn = fmt.Sprintf("postgres://anybody@127.0.0.1:%s/locks?sslmode=disable", port)
	var why error
	if !within(20*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		c, err := pgx.Connect(ctx, dsn+"&default_query_exec_mode=exec")
		if why = err; err != nil {
			return false
		}
		return c.Close(ctx) == nil
	}) {
		t.Fatalf("PgBouncer does not answer: %v", why)
	}
	return dsn
}

// findPgBouncer looks for it, and has Debian and Ubuntu install it, as testdb does for servers.
func findPgBouncer(ctx context.Context) (string, error) {
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
	// Another package's tests may be installing it too.
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "apt-get", "-q", "-y", "-o", "DPkg::Lock::Timeout=120", "--no-install-recommends", "--no-remove", "install", "pgbouncer")
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("apt-get install pgbouncer: %w: %s", err, out[max(0, len(out)-300):])
	}
	return look()
}

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
