package locktable_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

// Through PgBouncer in transaction mode every statement may meet another session of the server: nothing of a lock may
// live in one.
func TestPgBouncer(t *testing.T) {
	fresh := migrated(t, sqldb.Postgres)
	dsn := bouncer(t, fresh)
	for _, way := range []struct {
		name string
		flavour
		suffix string
	}{
		// What PgBouncer asks of drivers in this mode: no prepared statements that outlive a transaction.
		{"pgxpool exec", flavour{"", sqldb.Postgres, ""}, "&default_query_exec_mode=exec"},
		{"pgxpool simple protocol", flavour{"", sqldb.Postgres, ""}, "&default_query_exec_mode=simple_protocol&client_encoding=UTF8"},
		{"pgx stdlib exec", flavour{"", sqldb.Postgres, "pgx"}, "&default_query_exec_mode=exec"},
		{"lib pq", flavour{"", sqldb.Postgres, "postgres"}, "&binary_parameters=yes"},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			// PgBouncer does not hand search_path on, and must not have to: the tables are named with their schema.
			schema := sqldb.Schema(fresh.Schema())
			serves(t, way.open(t, dsn+way.suffix, 8, schema), way.open(t, dsn+way.suffix, 8, schema))
		})
	}
}

// bouncer starts a PgBouncer in front of the database's server.
func bouncer(t *testing.T, fresh *dbtest.DB) (dsn string) {
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
	q, port := newQuarters(t, "postgres", "nobody"), freePort(t)
	conf := q.write(t, "pgbouncer.ini", fmt.Sprintf(`[databases]
locks = host=%s port=%s dbname=%s user=%s password=%s
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = %s
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 20
max_client_conn = 100
ignore_startup_parameters = extra_float_digits
`, u.Hostname(), u.Port(), u.Path[1:], quote(u.User.Username()), quote(password), port))
	q.serve(t, path, conf)
	dsn = fmt.Sprintf("postgres://anybody@127.0.0.1:%s/locks?sslmode=disable", port)
	var why error
	if !within(10*time.Second, func() bool {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		pool := openSQL(t, "pgx", dsn+"&default_query_exec_mode=exec", 1)
		defer func() { _ = pool.Close() }()
		why = pool.PingContext(ctx)
		return why == nil
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
	cmd := exec.CommandContext(context.WithoutCancel(ctx), "apt-get", "-q", "-y", "--no-install-recommends", "--no-remove", "install", "pgbouncer")
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("apt-get install pgbouncer: %w: %s", err, out[max(0, len(out)-300):])
	}
	return look()
}
