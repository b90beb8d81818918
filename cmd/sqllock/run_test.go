//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/cli/clitest"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/sqldb"
)

// TestExitCodes: the command's own, and those of what keeps it from running.
func TestExitCodes(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text")
	broken := filepath.Join(dir, "broken")
	for file, mode := range map[string]os.FileMode{text: 0o644, broken: 0o755} {
		if err := os.WriteFile(file, []byte("#!/no/such/interpreter\n"), mode); err != nil {
			t.Fatal(err)
		}
	}
	dsn := "sqlite:" + filepath.Join(dir, "a.db")
	for _, tt := range []struct {
		code int
		args []string
		say  string
	}{
		{0, []string{"x", "--", "true"}, ""},
		{3, []string{"x", "--", "sh", "-c", "exit 3"}, ""},
		{2, []string{"x", "--", "sh", "-c", "exit 2"}, ""},
		{64, []string{"x", "--", "sh", "-c", "exit 64"}, ""},
		{255, []string{"x", "--", "sh", "-c", "exit 255"}, ""},
		{128 + 9, []string{"x", "--", "sh", "-c", "kill -9 $$"}, ""},
		{128 + 15, []string{"x", "--", "sh", "-c", "kill $$"}, ""},
		{127, []string{"x", "--", "no-such-command"}, "no-such-command: command not found"},
		{127, []string{"x", "--", dir + "/none"}, "command not found"},
		{127, []string{"x", "--", broken}, "no such file"},
		{126, []string{"x", "--", text}, "permission denied"},
		{126, []string{"x", "--", dir}, "is a directory"},
		{143, []string{"x", "--at-most", "200ms", "--", "sleep", "1000"}, "--at-most"},
	} {
		p := start(t, dsn, append([]string{"run", "--migrate"}, tt.args...)...)
		said := p.ends(tt.code)
		if tt.say == "" && said != "" || !strings.Contains(said, tt.say) || strings.Contains(said, "--help") {
			t.Errorf("%v: %s", tt.args, said)
		}
	}
	t.Run("unreachable", func(t *testing.T) {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		addr := l.Addr().String()
		_ = l.Close()
		for _, dsn := range []string{"postgres://u:secretword@" + addr + "/d", "mysql://u:secretword@" + addr + "/d", "sqlite:" + dir + "/none.db"} {
			said := start(t, dsn, "run", "x", "--", "touch", dir+"/ran").ends(exitUnavailable)
			if strings.Contains(said, "secretword") {
				t.Errorf("it shows the password: %s", said)
			}
		}
		if _, err := os.Stat(dir + "/ran"); err == nil {
			t.Error("the command was run without a lock")
		}
	})
}

// TestRunTakesNoLockFor: what is wrong is said before anything is done.
func TestRunTakesNoLockFor(t *testing.T) {
	dir := t.TempDir()
	db := "--dsn=sqlite:" + dir + "/never.db"
	for _, tt := range []struct{ args, want string }{
		{"run", "NAME is missing: sqllock run NAME -- COMMAND"},
		{"run " + db + " x", "-- is missing in front of the command"},
		{"run " + db + " x touch " + dir + "/ran", "-- is missing in front of the command"},
		{"run " + db + " -- true", "NAME is missing"},
		{"run " + db + " x --", "the command is missing behind --"},
		{"run " + db + " x y -- true", "one NAME at a time"},
		{"run " + db + " x --frobnicate -- true", "unknown flag: --frobnicate"},
		{"run " + db + " x --wait 5 -- true", "invalid argument"},
		{"run " + db + " x --wait -5s -- true", "--wait: Wait is -5s"},
		{"run " + db + " x --ttl 1ms -- true", "--ttl is 1ms; it can be 200ms"},
		{"run " + db + " x --at-least -1s -- true", "--at-least is -1s"},
		{"run " + db + " x --at-most 1us -- true", "--at-most is 1"},
		{"run " + db + " x --every -1s -- true", "--every is -1s"},
		{"run " + db + " x --ttl 0s -- true", "--ttl is 0; it is 200ms or more"},
		{"run " + db + " AtLeast --at-least 90m --every 90m -- true", "sqllock: --at-least is 1h30m0s, and the job is due again after 1h21m0s"},
		{"run " + db + " x --strategy advisory --at-least 90m --every 90m -- true", "sqllock: --at-least is 1h30m0s"},
		{"run " + db + " x --at-most 900000h -- true", "--at-most is 900000h0m0s; it can be 0, or 1ms to 876000h0m0s"},
		{"run " + db + " x --strategy redis -- true", `--strategy "redis": there are table and advisory`},
		{"run " + db + " x --strategy advisory --at-least 1s -- true", "an advisory lock cannot outlive its holder"},
		{"run " + db + " x --conflict-exit-code 256 -- true", "--conflict-exit-code is 256"},
		{"run " + db + " x --label " + strings.Repeat("x", 201) + " -- true", "--label"},
		{"run " + db + " " + strings.Repeat("x", 256) + " -- true", "has 256 bytes"},
		{"run " + db + " " + strings.Repeat("x", 253) + " -- true", "too long"},
		{"run --dsn oracle://u:secretword@h/d x -- true", "the scheme oracle:// is not known"},
		{"run --dsn postgres://u:secretword@h:port/d x -- true", "--dsn: dsn: "},
		{"run postgres://u:secretword@h/d -- true", "argument 2 looks like a DSN with a password"},
		{"run " + db + " x --table-prefix a-b -- true", "--table-prefix"},
		{"run " + db + " --schema foo x -- true", "SQLite has its tables in main"},
	} {
		code, stdout, stderr := call(strings.Fields(tt.args)...)
		if code != exitUsage || stdout != "" || !strings.Contains(stderr, tt.want) {
			t.Errorf("%s: exit code %d, stdout %q, stderr %s", clitest.Shown(strings.Fields(tt.args)), code, stdout, stderr)
		}
		if strings.Contains(stderr, "secretword") {
			t.Errorf("it shows the password: %s", stderr)
		}
		if !strings.HasSuffix(stderr, "sqllock: see \"sqllock run --help\"\n") {
			t.Errorf("where to read on is not said: %s", stderr)
		}
	}
	if all, err := os.ReadDir(dir); err != nil || len(all) > 0 {
		t.Errorf("%v, %v", all, err)
	}
}

// TestOverlaps: real commands under sqllock are never at work at the same time; the
// control, the same commands without it, are.
func TestOverlaps(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		beating(t, db)
		const n = 6
		var all []*process
		for range n {
			all = append(all, start(t, db.DSN, beat(db, "60ms", "--wait", "60s")...))
		}
		for _, p := range all {
			p.ends(0)
		}
		if jobs, pairs := overlaps(t, db); jobs != n || pairs > 0 {
			t.Errorf("%d jobs were at work, %d pairs of them at the same time", jobs, pairs)
		}
		h := wantJSON[historyResult](t, 0, on(db, "history", "job")...)
		if len(h.Runs) != n || h.Runs[0].Outcome != "ok" || h.Runs[0].Finished == nil {
			t.Errorf("the history is %+v", h.Runs)
		}

		db.MustExec(t, "DELETE FROM beats")
		for range 2 {
			cmd := exec.Command(os.Args[0], jobArg, "beat", db.DSN, "1s")
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = cmd.Wait() }()
		}
		for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
			if jobs, pairs := overlaps(t, db); jobs == 2 && pairs == 1 {
				break
			}
			if time.Since(begun) > patience {
				t.Fatal("the control does not overlap: the test shows nothing")
			}
		}
	})
}

// TestHeld: who comes second is told, at once or after --wait; the code can be chosen.
func TestHeld(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		holder := start(t, db.DSN, "run", "job", "--label", "nightly", "--", "sh", "-c", "echo begun; read x; echo $x")
		holder.sees("begun")
		for _, tt := range []struct {
			flags []string
			code  int
			say   string
		}{
			{nil, exitNotHad, "nightly ("},
			{[]string{"--wait", "150ms"}, exitNotHad, "waited 1"},
			{[]string{"--conflict-exit-code", "0"}, 0, "nightly ("},
			{[]string{"--conflict-exit-code", "5", "-q"}, 5, ""},
		} {
			p := start(t, db.DSN, append(append([]string{"run", "job"}, tt.flags...), "--", "echo", "ran")...)
			said := p.ends(tt.code)
			if line, ran := <-p.lines; ran || !strings.Contains(said, tt.say) || tt.say == "" && said != "" {
				t.Errorf("%v: %q, %s", tt.flags, line, said)
			}
		}
		var r runResult
		if err := json.Unmarshal([]byte(start(t, db.DSN, "run", "job", "--json", "--", "true").ends(exitNotHad)), &r); err != nil ||
			r.Reason != "held" || r.Ran || r.Holder == nil || r.Holder.Label != "nightly" || r.Holder.PID != holder.cmd.Process.Pid || r.ExitCode != exitNotHad {
			t.Errorf("%+v, %v", r, err)
		}

		// A signal that comes while it waits ends the waiting, and nothing else.
		waiter := start(t, db.DSN, "run", "job", "--wait", "10m", "--", "echo", "ran")
		waiter.says("waiting for up to 10m")
		waiter.signal(syscall.SIGUSR1)
		waiter.ends(exitSignal + int(syscall.SIGUSR1))

		// stdin is the command's, and with its end the next one has the lock.
		next := start(t, db.DSN, "run", "job", "--wait", "10m", "--", "echo", "ran")
		fmt.Fprintln(holder.stdin, "from stdin")
		holder.sees("from stdin")
		holder.ends(0)
		next.sees("ran")
		next.ends(0)
	})
}

// TestEnvironment: the command can use the lock that it runs under.
func TestEnvironment(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		p := sqllockProcess(t, db.DSN, "run", "it's a \"name\"", "--", os.Args[0], jobArg, "attach", db.DSN)
		p.cmd.Env = append(p.cmd.Env, "SQLLOCK_TOKEN=7") // that of a run around this one
		if p.begin().number("guarded ") < 1e15 {
			t.Error("the token is not one of the table")
		}
		p.ends(0)
	})
}

// TestSignals: they reach the whole group, which is the command's own.
func TestSignals(t *testing.T) {
	dsn := "sqlite:" + filepath.Join(t.TempDir(), "a.db")
	p := start(t, dsn, "run", "--migrate", "x", "--", "sh", "-c",
		`trap 'echo usr1' USR1; trap 'echo winch' WINCH; trap 'echo term; exit 7' TERM; echo pid $$; sh -c 'trap : USR1; trap "echo inner; exit" TERM; echo inside; while :; do sleep 0.02; done' & while :; do sleep 0.02; done`)
	pid := p.number("pid ")
	p.sees("inside")
	if group, err := syscall.Getpgid(pid); err != nil || group != pid {
		t.Errorf("the group of %d is %d, %v", pid, group, err)
	}
	p.signal(syscall.SIGUSR1)
	p.sees("usr1")
	p.signal(syscall.SIGWINCH)
	p.sees("winch")
	p.signal(syscall.SIGTERM)
	seen := p.sees("") + p.sees("")
	if !strings.Contains(seen, "term") || !strings.Contains(seen, "inner") {
		t.Errorf("seen %s", seen)
	}
	p.ends(7)

	// Under nohup the command, too, ignores SIGHUP.
	nohup := exec.Command("nohup", os.Args[0], "run", "x", "--", "sh", "-c", "kill -HUP $$; echo lives")
	nohup.Env = append(os.Environ(), childEnv+"=1", quickExit, envDSN+"="+dsn)
	if out, err := nohup.Output(); err != nil || string(out) != "lives\n" {
		t.Errorf("%s, %v", out, err)
	}
}

// TestLeftovers: what the command leaves in its group is ended with it.
func TestLeftovers(t *testing.T) {
	p := start(t, "sqlite:"+filepath.Join(t.TempDir(), "a.db"), "run", "--migrate", "x", "--", "sh", "-c", "sleep 1000 >/dev/null 2>&1 & echo left $!")
	pid := p.number("left ")
	p.ends(0)
	gone(t, pid)
}

// TestAtMost: the command gets SIGTERM, and the lock stays its own until it has ended.
func TestAtMost(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		p := start(t, db.DSN, "run", "job", "--at-most", "1s", "--", "sh", "-c", `trap 'echo term; read x; exit 4' TERM; while :; do sleep 0.02; done`)
		p.sees("term")
		start(t, db.DSN, "run", "job", "--", "true").ends(exitNotHad)
		fmt.Fprintln(p.stdin)
		p.ends(4)
		// With --json there is one line, when it ends.
		said := start(t, db.DSN, "run", "other", "--json", "--at-most", "100ms", "--", "sleep", "30").ends(128 + int(syscall.SIGTERM))
		if lines := strings.Split(strings.TrimSpace(said), "\n"); len(lines) != 1 || !json.Valid([]byte(lines[0])) {
			t.Errorf("with --json it says %q", said)
		}
		h := wantJSON[historyResult](t, 0, on(db, "history", "job")...)
		if len(h.Runs) != 1 || h.Runs[0].Outcome != "timed_out" || *h.Runs[0].ExitCode != 4 {
			t.Errorf("%+v", h.Runs)
		}
	})
}

// TestScheduled: --every, --at-least, disable and enable.
func TestScheduled(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		every := []string{"run", "daily", "--every", "24h", "--", "echo", "ran"}
		start(t, db.DSN, every...).ends(0)
		if said := start(t, db.DSN, every...).ends(exitNotHad); !strings.Contains(said, "not due until") {
			t.Errorf("said %s", said)
		}
		start(t, db.DSN, "run", "short", "--at-least", "1h", "--", "true").ends(0)
		start(t, db.DSN, "run", "short", "--", "true").ends(exitNotHad)

		want(t, 0, on(db, "disable", "job", "--note", "moved to the new cluster")...)
		if said := start(t, db.DSN, "run", "job", "--", "true").ends(exitNotHad); !strings.Contains(said, "disabled: moved to the new cluster") {
			t.Errorf("said %s", said)
		}
		want(t, 0, on(db, "enable", "job")...)
		start(t, db.DSN, "run", "job", "--", "true").ends(0)
	})
}

// TestAdvisory: without tables; and it excludes those that are under the same name.
func TestAdvisory(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		run := []string{"run", "job", "--strategy", "advisory"}
		p := start(t, db.DSN, append(run, "--", "sh", "-c", "echo token $SQLLOCK_TOKEN; read x")...)
		if p.sees("token ") != "0" {
			t.Error("an advisory lock has no token")
		}
		start(t, db.DSN, append(run, "--", "true")...).ends(exitNotHad)
		fmt.Fprintln(p.stdin)
		p.ends(0)
		start(t, db.DSN, append(run, "--", "true")...).ends(0)
	})
	said := start(t, "sqlite:"+filepath.Join(t.TempDir(), "a.db"), "run", "--migrate", "x", "--strategy", "advisory", "--", "true").ends(exitUsage)
	if !strings.Contains(said, "SQLite") {
		t.Errorf("said %s", said)
	}
}

// TestOneConnection: while the command runs, there is one connection to the server.
func TestOneConnection(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		dsn, count := db.DSN+"&application_name=only_one", "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'only_one'"
		if db.Kind() != sqldb.Postgres {
			cfg, err := mysql.ParseDSN(db.DSN)
			if err != nil {
				t.Fatal(err)
			}
			dsn, count = db.DSN, "SELECT count(*) - 1 FROM information_schema.processlist WHERE db = '"+cfg.DBName+"'"
		}
		db.SQL.SetMaxOpenConns(1)
		p := start(t, dsn, "run", "job", "--ttl", "3s", "--", "sh", "-c", "echo begun; read x")
		p.sees("begun")
		expires := func() (at string) {
			if err := db.SQL.QueryRow("SELECT expires_at FROM " + db.Table("locks") + " WHERE name = '" + joblock.LockName("job") + "'").Scan(&at); err != nil {
				t.Fatal(err)
			}
			return at
		}
		for first, since := expires(), time.Now(); ; time.Sleep(20 * time.Millisecond) { // until it is renewed
			var n int
			if err := db.SQL.QueryRow(count).Scan(&n); err != nil || n != 1 {
				t.Errorf("%d connections, %v", n, err)
				break
			}
			if expires() != first {
				break
			}
			if time.Since(since) > patience {
				t.Fatal("it is never renewed")
			}
		}
		fmt.Fprintln(p.stdin)
		p.ends(0)
	})
}

// TestFirstUse: nothing but a command and a name on a fresh machine.
func TestFirstUse(t *testing.T) {
	state := filepath.Join(t.TempDir(), "state?#%")
	for i, env := range [][]string{{"XDG_STATE_HOME=" + state}, {"XDG_STATE_HOME=" + state}, {"XDG_STATE_HOME=relative", "HOME=" + t.TempDir()}} {
		p := sqllockProcess(t, "", "run", "demo", "--", "echo", "hello")
		p.cmd.Env = append(p.cmd.Env, env...)
		p.begin().sees("hello")
		said := p.ends(0)
		if first := i != 1; first != strings.Contains(said, "this host only") || strings.Count(said, "\n") != map[bool]int{true: 1, false: 0}[first] {
			t.Errorf("%v: said %q", env, said)
		}
	}
	if _, err := os.Stat(filepath.Join(state, "sqllock", "sqllock.db")); err != nil {
		t.Error(err)
	}
	p := sqllockProcess(t, "", "run", "demo", "--", "echo", "hello")
	p.cmd.Env = []string{childEnv + "=1", quickExit, "PATH=" + os.Getenv("PATH")}
	if said := p.begin().ends(exitUsage); !strings.Contains(said, "neither XDG_STATE_HOME nor HOME is set") {
		t.Errorf("said %s", said)
	}
}

// TestMigrate: in a database that was named, tables are made only where that is asked
// for.
func TestMigrate(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		said := start(t, db.DSN, "run", "x", "--", "echo", "ran").ends(exitUnavailable)
		if !strings.Contains(said, "--migrate") || !strings.Contains(said, "sqllock-migrate up") {
			t.Errorf("said %s", said)
		}
		if code, _, said := call(on(db, "ls")...); code != 1 || !strings.Contains(said, "--migrate") {
			t.Errorf("%d: said %s", code, said)
		}
		start(t, db.DSN, "run", "x", "--migrate", "--", "echo", "ran").sees("ran")
		start(t, db.DSN, "run", "x", "--wait", "60s", "--", "echo", "ran").sees("ran")
	})
}
