package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/sqldb"
)

var commands = []string{"up", "down", "status", "version", "sql", "check", "version-column"}

func TestUsage(t *testing.T) {
	file := filepath.Join(t.TempDir(), "never.db")
	db := "--dsn=sqlite:" + file
	for _, tt := range []struct {
		args string
		want string
	}{
		{"", "a command is missing"},
		{"frobnicate", `unknown command "frobnicate"`},
		{"statsu", `unknown command "statsu": did you mean status?`},
		{"--frobnicate", "unknown flag: --frobnicate"},
		{"up --frobnicate", "unknown flag"},
		{"up extra", "unknown command"},
		{"up", "which database? Give --dsn, or set SQLLOCK_DSN"},
		{"status", "which database?"},
		{"up --dsn=oracle://h/d", "--dsn: dsn: the scheme oracle:// is not known"},
		{"up " + db + " --to 99", "--to 99: for up it is a version from 1 to"},
		{"up " + db + " --to 0", "--to 0: for up"},
		{"down " + db + " --to -1", "--to -1: for down it is a version from 0 to"},
		{"up " + db + " --to x", "invalid argument"},
		{"up " + db + " --table-prefix a-b", `--table-prefix "a-b": only ASCII letters`},
		{"up " + db + " --table-prefix x;drop", "sqllock-migrate: --table-prefix \"x;drop\": only ASCII letters, digits, '_' and '$' are allowed, and a letter or '_' in front\n"},
		{"sql mysql --table-prefix x;drop", "sqllock-migrate: --table-prefix \"x;drop\": only"},
		{"up " + db + " --schema a;b", "sqllock-migrate: --schema: identifier \"a;b\" has"},
		{"status " + db + " --schema foo", "sqllock-migrate: --schema foo: SQLite has its tables in main: leave --schema out\n"},
		{"up " + db + " --lock-timeout 0s", "--lock-timeout 0s"},
		{"up " + db + " --lock-timeout 5", "invalid argument"},
		{"sql", "sqllock-migrate: DATABASE is missing: postgres, mysql, mariadb, sqlite\n"},
		{"sql oracle", `unknown database "oracle"`},
		{"sql postgres mysql", "sqllock-migrate: one DATABASE at a time: postgres, mysql, mariadb, sqlite\n"},
		{"sql postgres --to 99", "--to 99"},
		{"sql postgres --dry-run", "unknown flag"},
		{"sql sqlite --schema app", "SQLite has its tables in main"},
		{"version-column", "TABLE is missing: "},
		{"version-column t", "which database?"},
		{"version-column a.b.c --database mysql", "more than one dot"},
		{"version-column t;drop --database mysql", "only ASCII letters"},
		{"version-column t --database mysql --column 1x", "--column"},
		{"version-column t --database oracle", "--database"},
		{"version-column t --database mysql --apply", "--database is for printing"},
		{"version-column x.t --database sqlite", "SQLite has its tables in main"},
		{"help frobnicate", "there is no command"},
	} {
		t.Run(tt.args, func(t *testing.T) {
			stdout, stderr := want(t, cli.Usage, strings.Fields(tt.args)...)
			if stdout != "" || !strings.Contains(stderr, tt.want) {
				t.Errorf("stdout %q, stderr %s", stdout, stderr)
			}
			// One line that says what is wrong, and one that says where to read on.
			command := "sqllock-migrate "
			if first, _, _ := strings.Cut(tt.args, " "); slices.Contains(append(commands, "help"), first) {
				command += first + " "
			}
			if strings.Count(stderr, "\n") != 2 || !strings.HasSuffix(stderr, "sqllock-migrate: see \""+command+"--help\"\n") {
				t.Errorf("stderr %s", stderr)
			}
			if !strings.HasPrefix(stderr, "sqllock-migrate: ") {
				t.Errorf("the message is not in front: %s", stderr)
			}
		})
	}
	if _, err := os.Stat(file); err == nil {
		t.Error("a wrong command line has made the file")
	}
}

func TestHelp(t *testing.T) {
	stdout, stderr := want(t, cli.Done, "--help")
	for _, c := range commands {
		if !strings.Contains(stdout, "\n  "+c+" ") {
			t.Errorf("the help does not name %s", c)
		}
		for _, args := range [][]string{{c, "--help"}, {"help", c}} {
			text, stderr := want(t, cli.Done, args...)
			if !strings.Contains(text, "Examples:\n  sqllock-migrate "+c) || stderr != "" {
				t.Errorf("%v: %s%s", args, text, stderr)
			}
		}
	}
	if stderr != "" {
		t.Errorf("stderr %s", stderr)
	}
	for _, form := range []string{"mariadb://", "either takes both servers", "host=... dbname=..."} {
		if !strings.Contains(stdout, form) {
			t.Errorf("the help does not have %q: %s", form, stdout)
		}
	}
	t.Setenv(envDSN, "sqlite:hidden.db")
	if stdout, _ := want(t, cli.Done, "up", "--help"); strings.Contains(stdout, "hidden") {
		t.Error("the help shows the environment")
	}
	if stdout, _ := want(t, cli.Done, "--version"); !strings.HasPrefix(stdout, "sqllock-migrate ") || !strings.Contains(stdout, " go1.") {
		t.Errorf("--version: %q", stdout)
	}
}

func TestCompletion(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if stdout, _ := want(t, cli.Done, "completion", shell); !strings.Contains(stdout, "sqllock-migrate") {
			t.Errorf("%s: %s", shell, stdout)
		}
	}
	for _, args := range [][]string{{"sql", ""}, {"version-column", "--database", ""}} {
		stdout, _ := want(t, cli.Done, append([]string{"__complete"}, args...)...)
		for _, k := range sqldb.Kinds() {
			if !strings.Contains(stdout, k.String()+"\n") {
				t.Errorf("%v: %s", args, stdout)
			}
		}
	}
}

func TestSQL(t *testing.T) {
	for _, k := range sqldb.Kinds() {
		text, _ := want(t, cli.Done, "sql", k.String(), "--table-prefix", "x_")
		if !strings.Contains(text, "CREATE TABLE IF NOT EXISTS "+k.Quote("x_locks")) {
			t.Errorf("%s: %.300s", k, text)
		}
		j := wantJSON[sqlResult](t, cli.Done, "sql", k.String(), "--table-prefix", "x_")
		if j.Database != k.String() || j.SQL != text {
			t.Errorf("%s: %+v", k, j)
		}
	}
	text, _ := want(t, cli.Done, "sql", "postgres", "--schema", "app", "--to", "1")
	if !strings.Contains(text, `"app"."sqllock_locks"`) || strings.Contains(text, "sqllock_tickets") {
		t.Errorf("%.300s", text)
	}
}

// TestProcess: exit codes and streams are those of a real process.
func TestProcess(t *testing.T) {
	var exit *exec.ExitError
	out, err := child(t, nil, "up", "--frobnicate").Output()
	if ok := asExit(err, &exit); !ok || exit.ExitCode() != cli.Usage || len(out) != 0 {
		t.Errorf("%v, stdout %q", err, out)
	}
	env := []string{envDSN + "=sqlite:" + filepath.Join(t.TempDir(), "a.db")}
	out, err = child(t, env, "up", "--json").Output()
	var r stepsResult
	if err != nil || json.Unmarshal(out, &r) != nil || r.To != latest || len(r.Steps) != int(latest) {
		t.Errorf("%v, stdout %q", err, out)
	}
	if err = child(t, env, "down").Run(); err != nil {
		t.Error(err)
	}
	if err = child(t, env, "status", "--exit-code").Run(); !asExit(err, &exit) || exit.ExitCode() != cli.Pending {
		t.Error(err)
	}
}

func asExit(err error, exit **exec.ExitError) bool {
	e, ok := err.(*exec.ExitError) //nolint:errorlint // as exec returns it
	*exit = e
	return ok
}
