package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

const hostOnly = "which excludes processes of this host only"

// TestStateFile: without a DSN it is a file in the user's state folder, and that it
// excludes one host only is said when it is made, and not again.
func TestStateFile(t *testing.T) {
	for name, env := range map[string]struct{ state, home, file string }{
		"XDG_STATE_HOME":        {"$/state", "$/home", "$/state/sqllock/sqllock.db"},
		"HOME":                  {"", "$/home", "$/home/.local/state/sqllock/sqllock.db"},
		"relative, and ignored": {"state", "$/home", "$/home/.local/state/sqllock/sqllock.db"},
		"with odd characters":   {"$/a b#c?d%e", "", "$/a b#c?d%e/sqllock/sqllock.db"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			in := func(path string) string { return strings.ReplaceAll(path, "$", dir) }
			t.Setenv("XDG_STATE_HOME", in(env.state))
			t.Setenv("HOME", in(env.home))
			t.Chdir(dir)
			stdout, stderr := want(t, 0, "ls")
			if stdout != "no lock is held\n" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, hostOnly) || !strings.Contains(stderr, in(env.file)) {
				t.Errorf("the first time: %q, %q", stdout, stderr)
			}
			info, err := os.Stat(in(env.file))
			if err != nil {
				t.Fatal(err)
			}
			if folder, err := os.Stat(filepath.Dir(in(env.file))); err != nil || folder.Mode().Perm() != 0o700 || info.Size() == 0 {
				t.Errorf("%v, %v", folder.Mode(), err)
			}
			if _, stderr := want(t, 0, "disable", "job"); stderr != "" {
				t.Errorf("the second time: %q", stderr)
			}
			if r := wantJSON[showResult](t, 0, "show", "job"); r.Database != "sqlite" || r.Job == nil || !r.Job.Disabled {
				t.Errorf("it is not the same file: %+v", r)
			}
		})
	}
}

// TestStateFileOfRun: run says it on stderr, but not where its result stands there; a
// child that says nothing does not hide it.
func TestStateFileOfRun(t *testing.T) {
	for _, tt := range []struct {
		flag string
		said bool
	}{{"", true}, {"--quiet", true}, {"--json", false}} {
		p := sqllockProcess(t, "", append([]string{"run", "demo"}, append(strings.Fields(tt.flag), "--", "echo", "hello")...)...)
		p.cmd.Env = append(p.cmd.Env, "XDG_STATE_HOME="+t.TempDir())
		p.begin().sees("hello")
		said := p.ends(0)
		if strings.Contains(said, hostOnly) != tt.said {
			t.Errorf("%s: %q", tt.flag, said)
		}
		var r map[string]any
		if !tt.said && json.Unmarshal([]byte(said), &r) != nil {
			t.Errorf("stderr is no JSON: %q", said)
		}
	}
}

// TestStateFileRefused: what is in the way is said, and how to do without.
func TestStateFileRefused(t *testing.T) {
	for name, tt := range map[string]struct {
		prepare func(t *testing.T, dir string) // dir is XDG_STATE_HOME
		code    int
		want    string
	}{
		"neither folder is known": {func(t *testing.T, _ string) {
			t.Setenv("XDG_STATE_HOME", "relative")
			t.Setenv("HOME", "")
		}, 2, "neither XDG_STATE_HOME nor HOME is set"},
		"a file is in the way": {func(t *testing.T, dir string) {
			put(t, dir+"/sqllock", "a file")
		}, 1, "the folder of the default database cannot be made: mkdir"},
		"the folder cannot be written": {func(t *testing.T, dir string) {
			if os.Getuid() == 0 {
				t.Setenv("XDG_STATE_HOME", "/proc/nowhere") // not even for root
			} else if err := os.Chmod(dir, 0o500); err != nil {
				t.Fatal(err)
			}
		}, 1, "the folder of the default database cannot be made: mkdir"},
		"it is a folder": {func(t *testing.T, dir string) {
			if err := os.MkdirAll(dir+"/sqllock/sqllock.db", 0o700); err != nil {
				t.Fatal(err)
			}
		}, 1, "sqllock.db is a folder"},
		"it is no database": {func(t *testing.T, dir string) {
			put(t, dir+"/sqllock/sqllock.db", strings.Repeat("text ", 100))
		}, 1, "file is not a database"},
		"it is of a later release": {func(t *testing.T, dir string) {
			want(t, 0, "ls")
			db := dbtest.New(t, sqldb.SQLite)
			db.MustExec(t, "ATTACH '"+dir+"/sqllock/sqllock.db' AS own",
				"INSERT INTO own.sqllock_schema_version (version, compatible, name, applied_at) VALUES (99, 99, 'later', 1)", "DETACH own")
		}, 1, "sqllock: the tables of sqllock are too new for this program"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			t.Setenv("XDG_STATE_HOME", dir)
			tt.prepare(t, dir)
			_, stderr := want(t, tt.code, "ls")
			if !strings.Contains(stderr, tt.want) || strings.Contains(stderr, "sqllock: sqllock:") {
				t.Errorf("%s", stderr)
			}
			if !strings.Contains(stderr, envDSN) && !strings.Contains(stderr, "too new") {
				t.Errorf("it does not say how to do without: %s", stderr)
			}
			if tt.code == 1 { // doctor says it as a line
				r := wantJSONOrNothing(t, 1, "doctor")
				if r != nil && (r.OK || !strings.Contains(r.Checks[0].Value, strings.TrimPrefix(tt.want, "sqllock: "))) {
					t.Errorf("doctor: %+v", r)
				}
			}
		})
	}
}

// wantJSONOrNothing is wantJSON for a doctor that may not have come so far.
func wantJSONOrNothing(t *testing.T, code int, args ...string) *doctorResult {
	t.Helper()
	stdout, _ := want(t, code, append(args, "--json")...)
	if stdout == "" {
		return nil
	}
	var r doctorResult
	if err := json.Unmarshal([]byte(stdout), &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

func put(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
