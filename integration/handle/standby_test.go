package handle_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlnative/locks/sqldb/pgdb"
)

// A hot standby is refused with the reason, by both ways to connect. One that never had
// a primary is a standby as well, and costs no second server.
func TestHotStandby(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a server of its own")
	}
	t.Parallel()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	if len(found) == 0 {
		t.Skip("this needs PostgreSQL's programs in /usr/lib/postgresql")
	}
	bin := filepath.Dir(found[len(found)-1])
	// Not the test's own folder: PostgreSQL refuses root, and only root can enter that.
	dir, err := os.MkdirTemp("", "sqllock-standby-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	who := &syscall.SysProcAttr{}
	if os.Geteuid() == 0 {
		u, err := user.Lookup("nobody")
		if err != nil {
			t.Skip("as root, this needs the user nobody to run a server as")
		}
		uid, _ := strconv.ParseUint(u.Uid, 10, 32)
		gid, _ := strconv.ParseUint(u.Gid, 10, 32)
		who.Credential = &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
		if err := os.Chown(dir, int(uid), int(gid)); err != nil {
			t.Fatal(err)
		}
	}
	command := func(name string, args ...string) *exec.Cmd {
		cmd := exec.CommandContext(context.WithoutCancel(t.Context()), filepath.Join(bin, name), args...)
		cmd.Dir, cmd.SysProcAttr, cmd.Env = dir, who, []string{"HOME=" + dir, "LC_ALL=C", "PATH=" + os.Getenv("PATH")}
		return cmd
	}
	data := filepath.Join(dir, "data")
	if out, err := command("initdb", "-D", data, "-U", "postgres", "--auth=trust", "--no-sync", "--no-locale", "-E", "UTF8").CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v: %s", err, out)
	}
	if err := os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	_ = l.Close()
	server := command("postgres", "-D", data, "-p", port, "-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "shared_buffers=1MB")
	var log strings.Builder
	server.Stdout, server.Stderr = &log, &log
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Signal(syscall.SIGQUIT)
		_ = server.Wait()
		if t.Failed() {
			t.Log(log.String())
		}
	}()
	dsn := fmt.Sprintf("postgres://postgres@127.0.0.1:%s/postgres?sslmode=disable", port)
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for end := time.Now().Add(30 * time.Second); pool.Ping(t.Context()) != nil; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the standby does not answer")
		}
	}
	if _, err := pgdb.New(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "hot standby") {
		t.Errorf("New: %v", err)
	}
	for _, driver := range []string{"pgx", "postgres"} {
		db := open(t, driver, dsn)
		if _, err := pgdb.SQL(t.Context(), db); err == nil || !strings.Contains(err.Error(), "hot standby") {
			t.Errorf("SQL with %s: %v", driver, err)
		}
	}
}
