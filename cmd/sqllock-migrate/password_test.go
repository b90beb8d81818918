package main

import (
	"net/url"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/internal/dbtest"
)

// everyCommand is every command, in a form that gets as far as the database.
var everyCommand = [][]string{
	{"up"},
	{"up", "--dry-run"},
	{"down"},
	{"status"},
	{"status", "--json"},
	{"version"},
	{"check"},
	{"version-column", "t"},
	{"version-column", "t", "--apply"},
}

// The password of these tests: no part of it may ever be seen.
const (
	password = "Tr0ub4dor/&3 @correct%horse"
	part1    = "Tr0ub4dor"
	part2    = "correct"
	part3    = "horse"
)

func hides(t *testing.T, what string, texts ...string) {
	t.Helper()
	for _, text := range texts {
		for _, p := range []string{part1, part2, part3} {
			if strings.Contains(text, p) {
				t.Errorf("%s shows the password: %s", what, text)
			}
		}
	}
}

// with makes a DSN of dbtest's one with another password, host and database name.
func with(t *testing.T, db *dbtest.DB, change func(*url.URL)) []string {
	t.Helper()
	var u *url.URL
	var err error
	if db.Kind().InnoDB() {
		cfg, parseErr := mysql.ParseDSN(db.DSN)
		if parseErr != nil {
			t.Fatal(parseErr)
		}
		if cfg.Net != "tcp" {
			t.Skip("the server is not reached by TCP")
		}
		u = &url.URL{Scheme: "mysql", User: url.User(cfg.User), Host: cfg.Addr, Path: "/" + cfg.DBName}
	} else if u, err = url.Parse(db.DSN); err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(u.User.Username(), password)
	change(u)
	if !db.Kind().InnoDB() {
		return []string{u.String()}
	}
	return []string{u.String(), u.User.Username() + ":" + password + "@tcp(" + u.Host + ")" + u.EscapedPath()}
}

func TestPasswordOnServers(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		list := with(t, db, func(*url.URL) {})
		list = append(list, with(t, db, func(u *url.URL) { u.Host = "127.0.0.1:1" })...)
		list = append(list, with(t, db, func(u *url.URL) { u.User = url.UserPassword("nobody", password); u.Path = "/nowhere" })...)
		for _, s := range list {
			for _, args := range everyCommand {
				t.Setenv(envDSN, s)
				_, stdout, stderr := call(args...)
				hides(t, args[0], stdout, stderr)
				t.Setenv(envDSN, "")
				code, stdout, stderr := call(append(args, "--dsn", s)...)
				hides(t, args[0]+" --dsn", stdout, stderr)
				if printed := len(args) == 2 && args[0] == "version-column"; code != cli.Failed && !printed {
					t.Logf("%v with %s: exit code %d, as if everybody were let in: %s", args, db.Kind(), code, stderr)
				}
			}
		}
		// Asking for a name can take seconds.
		_, stdout, stderr := call("status", "--dsn", with(t, db, func(u *url.URL) { u.Host = "no-such-host.invalid" })[0])
		hides(t, "an unknown host", stdout, stderr)
	})
}

func TestPasswordInMalformed(t *testing.T) {
	encoded := strings.ReplaceAll(url.QueryEscape(password), "+", "%20")
	for _, s := range []string{
		"postgres://u:" + password + "@h/d",
		"postgres://u:" + encoded + "@h:port/d",
		"postgres://u:" + encoded + "@h",
		"postgres://u:" + encoded + "/d",
		"postgres://u:" + encoded + "%zz@h/d",
		"postgres://u:" + encoded + "@h/d?sslmode=wrong",
		"postgres:u:" + password + "@h/d",
		"host=h user=u password=" + password + " dbname=d",
		"host=h user=u password='" + password + "",
		"mysql://u:" + password + "@h/d",
		"mysql://u:" + encoded + "@h:port/d",
		"mysql://u:" + encoded + "@h/d?parseTime=" + encoded,
		"mysql://u:" + password + "@tcp(h)/d",
		"u:" + password + "@h/d",
		"u:" + password + "@tcp(h:port)/d",
		"u:" + password + "@tcp(h/d",
		"u:" + password + "@tcp(h:3306)",
		"oracle://u:" + password + "@h/d",
		"sqlite://u:" + password + "@h/d",
		"sqlite:nowhere/x.db?_pragma=key('" + url.QueryEscape(password) + "')",
	} {
		for _, args := range everyCommand {
			code, stdout, stderr := call(append(args, "--dsn="+s)...)
			hides(t, args[0], stdout, stderr)
			if code != cli.Usage && !strings.HasPrefix(s, "sqlite:nowhere") {
				t.Errorf("%v: exit code %d: %s", args, code, stderr)
			}
		}
		// A DSN in a place where none is expected.
		for _, args := range [][]string{
			{s},
			{"up", s},
			{"sql", s},
			{"help", s},
			{"version-column", s, "--database", "mysql"},
			{"version-column", "t", "--database", s},
			{"version-column", "t", "--database", "mysql", "--column", s},
			{"up", "--to", s},
			{"up", "--dns=" + s},
			{"up", "--" + s},
			{"status", "--schema", s, "--dsn", "sqlite:x.db"},
			{"status", "--table-prefix", s, "--dsn", "sqlite:x.db"},
			{"status", "--lock-timeout", s},
		} {
			code, stdout, stderr := call(args...)
			hides(t, args[0], stdout, stderr)
			if code != cli.Usage {
				t.Errorf("%v: exit code %d", args, code)
			}
		}
	}
}
