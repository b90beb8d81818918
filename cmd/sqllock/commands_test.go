package main

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/cli/clitest"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

var commands = []string{"run", "ls", "show", "history", "release", "disable", "enable", "doctor", "gc"}

// hold takes a lock, as a program does.
func hold(t *testing.T, db *dbtest.DB, name string, opts ...lock.Option) *lock.Lock {
	t.Helper()
	locker, err := sqllock.New(t.Context(), db.DB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = locker.Close() })
	l, err := locker.Acquire(t.Context(), name, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestLocks: ls and show say who holds and waits, and release takes it away.
func TestLocks(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		if out, _ := want(t, 0, on(db, "ls")...); out != "no lock is held\n" {
			t.Errorf("%s", out)
		}
		l := hold(t, db, joblock.LockName("nightly"), lock.Label("report"))
		other := hold(t, db, "nightly\x1b[2J")
		at := nowSQL(db.Kind())
		later := map[sqldb.Kind]string{sqldb.Postgres: at + " + interval '1 hour'", sqldb.SQLite: at + " + 3600000000"}[db.Kind()]
		if later == "" {
			later = at + " + INTERVAL 1 HOUR"
		}
		for ticket, expires := range []string{at, later} { // the first has died
			db.MustExec(t, fmt.Sprintf("INSERT INTO sqllock_tickets (name, ticket, owner, created_at, expires_at, holder) VALUES ('job:nightly', %d, 'o%d', %s, %s, '{\"host\":\"h2\",\"pid\":7}')", ticket+1, ticket, at, expires))
		}
		r := wantJSON[lsResult](t, 0, on(db, "ls")...)
		if len(r.Locks) != 2 || r.Locks[0].Name != "job:nightly" || r.Locks[0].Token != l.Token() || r.Locks[0].Owner != l.Owner() || r.Locks[0].Waiters != 1 ||
			r.Locks[0].Holder != (holderJSON{Host: host(t), PID: os.Getpid(), Label: "report"}) || r.Locks[0].LeftMS < 1000 || r.Now.Sub(*r.Locks[0].Since).Abs() > time.Minute {
			t.Errorf("%+v", r)
		}
		if len(r.Waiting) != 1 || r.Waiting[0].Ticket != 2 || r.Waiting[0].Holder != (holderJSON{Host: "h2", PID: 7}) || r.Now.Sub(r.Waiting[0].Since).Abs() > time.Minute {
			t.Errorf("%+v", r.Waiting)
		}
		out, _ := want(t, 0, on(db, "ls")...)
		if strings.ContainsRune(out, 0x1b) || strings.Count(out, "\n") != 4 || !strings.Contains(out, "waiting") {
			t.Errorf("%q", out)
		}
		out, _ = want(t, 0, on(db, "show", "nightly")...)
		for _, text := range []string{"job:nightly", "report", fmt.Sprint(l.Token()), "waiting", "h2"} {
			if !strings.Contains(out, text) {
				t.Errorf("%q is not in %s", text, out)
			}
		}
		if s := wantJSON[showResult](t, 0, on(db, "show", "nightly")...); len(s.Locks) != 1 || len(s.Waiting) != 1 || s.Job != nil || len(s.Runs) != 0 {
			t.Errorf("%+v", s)
		}

		_, said := want(t, 1, on(db, "release", "nightly", "--token", "7")...)
		if !strings.Contains(said, "another token, by report") || l.Err() != nil {
			t.Errorf("said %s", said)
		}
		_, said = want(t, 1, on(db, "release", "none", "--force")...)
		if !strings.Contains(said, "neither job:none nor none is held") {
			t.Errorf("said %s", said)
		}
		out, _ = want(t, 0, on(db, "release", "nightly", "--token", fmt.Sprint(l.Token()))...)
		if !strings.Contains(out, "released job:nightly, token") || !strings.Contains(out, "taken from report") {
			t.Errorf("%s", out)
		}
		if rel := wantJSON[releaseResult](t, 0, on(db, "release", other.Name(), "--force")...); rel.Released.Token != other.Token() {
			t.Errorf("%+v", rel)
		}
		if r := wantJSON[lsResult](t, 0, on(db, "ls")...); len(r.Locks) != 0 {
			t.Errorf("%+v", r.Locks)
		}
	})
}

func host(t *testing.T) string {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// longAgo is a moment as the tables have it.
func longAgo(kind sqldb.Kind) string {
	if kind == sqldb.SQLite {
		return "1"
	}
	return "'2001-01-01 00:00:00'"
}

// TestToggle: show says that a job is switched off; gc leaves it alone.
func TestToggle(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		r := wantJSON[toggleResult](t, 0, on(db, "disable", "nightly", "--note", "why")...)
		if !r.Disabled || r.Note != "why" || r.Job != "nightly" {
			t.Errorf("%+v", r)
		}
		g := wantJSON[gcResult](t, 0, on(db, "gc", "--older-than", "1m", "--keep-runs", "0s")...)
		if g.Locks != 0 || g.Runs != 0 {
			t.Errorf("%+v", g)
		}
		start(t, db.DSN, "run", "old", "--", "true").ends(0)
		db.MustExec(t, "UPDATE "+db.Table("locks")+" SET freed_at = "+longAgo(db.Kind()))
		if g := wantJSON[gcResult](t, 0, on(db, "gc", "--older-than", "1m", "--keep-runs", "0s")...); g.Locks != 1 || g.Runs != 1 {
			t.Errorf("of one old lock and one old run: %+v", g)
		}
		s := wantJSON[showResult](t, 0, on(db, "show", "nightly")...)
		if s.Job == nil || !s.Job.Disabled || s.Job.Note != "why" || s.Job.DisabledAt == nil || s.Now.Sub(*s.Job.DisabledAt).Abs() > time.Minute {
			t.Errorf("%+v", s.Job)
		}
		if out, _ := want(t, 0, on(db, "show", "nightly")...); !strings.Contains(out, "disabled: why") {
			t.Errorf("%s", out)
		}
		want(t, 0, on(db, "enable", "nightly")...)
		if s := wantJSON[showResult](t, 0, on(db, "show", "nightly")...); s.Job.Disabled {
			t.Errorf("%+v", s.Job)
		}
	})
}

// TestDoctor: a sound database has no fail, and one without tables has one.
func TestDoctor(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		states := func(code int) map[string]check {
			db.MustExec(t, "SELECT 1")
			r := wantJSON[doctorResult](t, code, on(db, "doctor")...)
			all := map[string]check{}
			for _, c := range r.Checks {
				all[c.Name] = c
				if (c.State == ok) != (c.Advice == "") {
					t.Errorf("%+v", c)
				}
			}
			if r.OK != (code == 0) {
				t.Errorf("%+v", r)
			}
			return all
		}
		if c := states(1)["tables"]; c.State != fail || c.Value != "there are none" {
			t.Errorf("%+v", c)
		}
		migrated(t, db)
		all := states(0)
		names := []string{"server", "tables", "clock", "isolation", "time zone", "durability", "read-only", "lock pair"}
		switch {
		case db.Kind() == sqldb.Postgres:
			names = append(names, "replica", "pooler", "oldest snapshot")
		case db.Kind().InnoDB():
			names = append(names, "replica", "cluster", "oldest snapshot")
		}
		for _, name := range names {
			if all[name].State == "" || all[name].State == fail {
				t.Errorf("%s: %+v", name, all[name])
			}
		}
		if out, _ := want(t, 0, on(db, "doctor")...); !strings.Contains(out, "lock pair") {
			t.Errorf("%s", out)
		}
	})
}

// TestUsage: what is wrong is said in a line, and where to read on in another.
func TestUsage(t *testing.T) {
	file := t.TempDir() + "/never.db"
	db := " --dsn=sqlite:" + file
	for _, tt := range []struct{ args, want string }{
		{"", "a command is missing"},
		{"frobnicate", `unknown command "frobnicate"`},
		{"hisotry", `unknown command "hisotry": did you mean history?`},
		{"--frobnicate", "unknown flag: --frobnicate"},
		{"ls --frobnicate", "unknown flag: --frobnicate"},
		{"ls extra", "unknown command"},
		{"ls --watch --interval 1us" + db, "--interval is 1"},
		{"show" + db, "NAME is missing: sqllock show NAME"},
		{"show a b" + db, "one NAME at a time"},
		{"show a --limit 0" + db, "--limit is 0"},
		{"history --outcome good" + db, `--outcome "good": there are running, ok`},
		{"history --limit -1" + db, "--limit is -1"},
		{"history --within -1s" + db, "--within is -1s"},
		{"release" + db, "NAME is missing"},
		{"release a" + db, `--token is missing: "sqllock show a" prints it`},
		{"release a --token 1 --force" + db, "--token and --force: one of them"},
		{"release a --token -1" + db, "--token is -1"},
		{"disable" + db, "JOB is missing: sqllock disable JOB"},
		{"enable a b" + db, "one JOB at a time"},
		{"gc --older-than 1s" + db, "--older-than is 1s; it has to be at least 1m"},
		{"gc --keep-runs -1s" + db, "--keep-runs is -1s"},
		{"doctor --dsn oracle://u:secretword@h/d", "the scheme oracle:// is not known"},
		{"ls postgres://u:secretword@h/d", "argument 2 looks like a DSN with a password"},
		{"help frobnicate", "there is no command"},
	} {
		code, stdout, stderr := call(strings.Fields(tt.args)...)
		if code != 2 || stdout != "" || !strings.Contains(stderr, tt.want) || strings.Count(stderr, "\n") != 2 || !strings.HasSuffix(stderr, "--help\"\n") {
			t.Errorf("%s: exit code %d, stdout %q, stderr %s", clitest.Shown(strings.Fields(tt.args)), code, stdout, stderr)
		}
		if strings.Contains(stderr, "secretword") {
			t.Errorf("it shows the password: %s", stderr)
		}
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a wrong command line has made the file")
	}
}

func TestHelp(t *testing.T) {
	stdout, _ := want(t, 0, "--help")
	for _, c := range commands {
		if !strings.Contains(stdout, "\n  "+c+" ") {
			t.Errorf("the help does not name %s", c)
		}
		text, _ := want(t, 0, "help", c)
		if !strings.Contains(text, "Examples:\n  sqllock "+c) {
			t.Errorf("%s: %s", c, text)
		}
	}
	text, _ := want(t, 0, "run", "--help")
	for _, words := range []string{"suspended VM", "leave the group", "SQLLOCK_TOKEN", "75 not run", "76 the lock was lost", "126", "127"} {
		if !strings.Contains(text, words) {
			t.Errorf("the help of run does not say %q", words)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if stdout, _ := want(t, 0, "completion", shell); !strings.Contains(stdout, "sqllock") {
			t.Errorf("%s: %s", shell, stdout)
		}
	}
}

// TestBar: bars are in eighths of a character.
func TestBar(t *testing.T) {
	if got := bar(time.Second, 2*time.Second, 4) + "|" + bar(0, 1, 4) + "|" + bar(1, time.Hour, 4) + "|" + bar(7, 16, 2); got != "██||▏|▉" {
		t.Errorf("bars %q", got)
	}
}
