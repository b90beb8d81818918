//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// object is what the contract says of an object: its fields, and what those that are
// objects, or lists of objects, have themselves.
type object map[string]object

// contract reads the objects out of doc.go, by command or by name.
func contract(t *testing.T) map[string]object {
	t.Helper()
	source, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	_, text, _ := strings.Cut(string(source), "# Contract")
	all := map[string]object{}
	// "ls       {...", and what goes on in lines that are indented further.
	for _, m := range regexp.MustCompile(`(?m)^//\t([A-Za-z, ]*[A-Za-z]) +(\{.*(?:\n//\t +.*)*)`).FindAllStringSubmatch(text, -1) {
		tokens := regexp.MustCompile(`"\w+":|[{}]|\b[A-Z]{3,}\b`).FindAllString(m[2], -1)
		o, rest := fields(t, tokens[1:])
		if len(rest) > 0 {
			t.Fatalf("%s: there is more: %q", m[1], rest)
		}
		for _, name := range strings.Split(m[1], ", ") {
			all[name] = o
		}
	}
	for _, o := range all { // RUN and the like stand for what is said of them
		o.resolve(all)
	}
	for name, o := range all {
		if name != "run" && name != strings.ToUpper(name) {
			for _, field := range []string{"database", "schema", "table_prefix"} {
				o[field] = nil
			}
		}
	}
	return all
}

// fields reads tokens up to the end of an object.
func fields(t *testing.T, tokens []string) (o object, rest []string) {
	t.Helper()
	o = object{}
	last := ""
	for len(tokens) > 0 {
		token := tokens[0]
		tokens = tokens[1:]
		switch {
		case token == "}":
			return o, tokens
		case token == "{":
			o[last], tokens = fields(t, tokens)
		case strings.HasPrefix(token, `"`):
			last = strings.Trim(token, `":`)
			o[last] = nil
		case slices.Contains([]string{"HOLDER", "LOCK", "WAITER", "RUN"}, token):
			o[last] = object{token: nil}
		}
	}
	t.Fatalf("an object has no end: %v", o)
	return nil, nil
}

func (o object) resolve(all map[string]object) {
	for field, of := range o {
		if len(of) == 1 {
			for name := range of {
				if known, is := all[name]; is && name == strings.ToUpper(name) {
					o[field] = known
					known.resolve(all)
					continue
				}
			}
		}
		o[field].resolve(all)
	}
}

// keeps compares what was printed with the contract.
func (o object) keeps(t *testing.T, where string, v any) (objects int) {
	t.Helper()
	switch v := v.(type) {
	case []any:
		for _, e := range v {
			objects += o.keeps(t, where, e)
		}
	case map[string]any:
		objects++
		printed, promised := slices.Sorted(maps.Keys(v)), slices.Sorted(maps.Keys(o))
		if !slices.Equal(printed, promised) {
			t.Errorf("%s has the fields %q, and doc.go promises %q", where, printed, promised)
		}
		for field, e := range v {
			objects += o[field].keeps(t, where+"."+field, e)
		}
	case string:
		if text := v; strings.HasSuffix(where, ".since") || strings.HasSuffix(where, ".now") || strings.HasSuffix(where, ".started") {
			if at, err := time.Parse(time.RFC3339Nano, text); err != nil || !strings.HasSuffix(text, "Z") || time.Since(at).Abs() > time.Hour {
				t.Errorf("%s: %q is no time in UTC: %v", where, text, err)
			}
		}
	}
	return objects
}

// TestContract: what every command prints with --json has the fields that doc.go says,
// no fewer and no others.
func TestContract(t *testing.T) {
	promised := contract(t)
	if want := append([]string{"HOLDER", "LOCK", "RUN", "WAITER"}, commands...); !slices.Equal(slices.Sorted(maps.Keys(promised)), slices.Sorted(slices.Values(want))) {
		t.Fatalf("doc.go has %q", slices.Sorted(maps.Keys(promised)))
	}
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		var v any
		decode := func(text string) {
			t.Helper()
			if err := json.Unmarshal([]byte(text), &v); err != nil {
				t.Fatalf("%v: %s", err, text)
			}
		}
		// A run each: that has worked, has failed, was skipped in every way, is no job.
		for _, tt := range []struct {
			code    int
			args    []string
			prepare func()
			objects int // with the holder
		}{
			{0, []string{"run", "job", "--json", "--", "true"}, nil, 1},
			{3, []string{"run", "job", "--json", "--", "sh", "-c", "exit 3"}, nil, 1},
			{75, []string{"run", "job", "--json", "--every", "1h", "--", "true"}, nil, 1},
			{127, []string{"run", "job", "--json", "--", "sh", "-c", "exit 127"}, nil, 1},
			{75, []string{"run", "off", "--json", "--", "true"}, func() { want(t, 0, on(db, "disable", "off", "--note", "why")...) }, 1},
			{75, []string{"run", "held", "--json", "--", "true"}, func() { hold(t, db, joblock.LockName("held"), lock.Label("label")) }, 2},
		} {
			if tt.prepare != nil {
				tt.prepare()
			}
			said := start(t, db.DSN, tt.args...).ends(tt.code)
			if strings.Count(said, "\n") != 1 {
				t.Errorf("%q: stderr is more than a line: %s", tt.args, said)
			}
			decode(said)
			if n := promised["run"].keeps(t, "run", v); n != tt.objects {
				t.Errorf("%q: %d objects in %s", tt.args, n, said)
			}
		}
		at, later := nowSQL(db.Kind()), map[sqldb.Kind]string{sqldb.Postgres: " + interval '1 hour'", sqldb.SQLite: " + 3600000000"}[db.Kind()]
		if later == "" {
			later = " + INTERVAL 1 HOUR"
		}
		db.MustExec(t, "INSERT INTO sqllock_tickets (name, ticket, owner, created_at, expires_at, holder) VALUES ('job:held', 1, 'o', "+at+", "+at+later+`, '{"host":"h"}')`)
		for _, tt := range []struct {
			args    []string
			objects int
		}{
			{[]string{"ls"}, 1 + 2 + 2},               // a lock with its holder, a waiter with its
			{[]string{"show", "held"}, 1 + 2 + 2 + 1}, // and the row of the job
			{[]string{"show", "off"}, 1 + 1},          // the row of the job
			{[]string{"show", "job"}, 1 + 1 + 3},      // and its runs
			{[]string{"history"}, 1 + 3},              //
			{[]string{"enable", "off"}, 1},            //
			{[]string{"disable", "off"}, 1},           //
			{[]string{"gc"}, 1},                       //
			{[]string{"doctor"}, 2},                   // and its lines, which are more
			{[]string{"release", "held", "--force"}, 1 + 2},
		} {
			stdout, stderr := want(t, 0, append(on(db, tt.args...), "--json")...)
			decode(stdout)
			n := promised[tt.args[0]].keeps(t, tt.args[0], v)
			if n != tt.objects && (tt.args[0] != "doctor" || n < 8) || stderr != "" {
				t.Errorf("%q: %d objects in %s %s", tt.args, n, stdout, stderr)
			}
		}
		// Nothing is null or absent where a list is promised.
		db.MustExec(t, "DELETE FROM sqllock_tickets")
		for args, lists := range map[string][]string{"ls": {"locks", "waiting"}, "show none": {"locks", "waiting", "runs"}, "history none": {"runs"}} {
			stdout, _ := want(t, 0, append(on(db, strings.Fields(args)...), "--json")...)
			decode(stdout)
			o, _ := v.(map[string]any)
			for _, list := range lists {
				if empty, is := o[list].([]any); !is || len(empty) > 0 {
					t.Errorf("%s: %s is %v", args, list, o[list])
				}
			}
		}
	})
	// What fails prints no object.
	for _, args := range [][]string{{"ls", "--nonsense"}, {"show", "x", "--dsn", "sqlite:/no/such/folder/x.db"}, {"release", "x", "--force", "--dsn", dbtest.FileDSN(t.TempDir() + "/x.db"), "--migrate"}} {
		if code, stdout, _ := call(append(args, "--json")...); code == 0 || stdout != "" {
			t.Errorf("%q: %d %s", args, code, stdout)
		}
	}
}

// TestContractOfHistory: how runs have ended, in the words and with the exit codes that
// doc.go has for them.
func TestContractOfHistory(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`"outcome": ((?:"\w+"\|?(?:\n//\t +)?)+)`).FindStringSubmatch(string(source))
	if m == nil {
		t.Fatal("doc.go does not say which outcomes there are")
	}
	if got := regexp.MustCompile(`\w+`).FindAllString(strings.ReplaceAll(m[1], "//\t", ""), -1); !slices.Equal(got, outcomes) {
		t.Errorf("doc.go has the outcomes %q, --outcome %q", got, outcomes)
	}
	three := 3
	killed := 137
	ended := 143
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		start(t, db.DSN, "run", "good", "--", "true").ends(0)
		start(t, db.DSN, "run", "bad", "--", "sh", "-c", "exit 3").ends(3)
		start(t, db.DSN, "run", "killed", "--", "sh", "-c", "kill -9 $$").ends(137)
		start(t, db.DSN, "run", "late", "--at-most", "50ms", "--", "sleep", "60").ends(143)
		running := start(t, db.DSN, "run", "running", "--", "sh", "-c", "echo begun; read x")
		running.sees("begun")
		dead := start(t, db.DSN, "run", "dead", "--ttl", "2s", "--", "sh", "-c", "echo begun; read x")
		dead.sees("begun")
		dead.signal(9)
		locker, err := sqllock.New(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = locker.Close() })
		jobs, err := joblock.New(t.Context(), db.DB, locker)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := jobs.Run(t.Context(), joblock.Job{Name: "function", Note: "a note"}, func(context.Context) error { return errors.New("no command") }); err == nil {
			t.Fatal("it has not failed")
		}
		for name, is := range map[string]struct {
			outcome string
			code    *int
			ended   bool
			error   string
		}{
			"good":     {"ok", nil, true, ""},
			"bad":      {"failed", &three, true, "exit status 3"},
			"killed":   {"failed", &killed, true, "killed by signal: killed"},
			"late":     {"timed_out", &ended, true, "killed by signal: terminated"},
			"running":  {"running", nil, false, ""},
			"dead":     {"abandoned", nil, false, ""},
			"function": {"failed", nil, true, "no command"},
		} {
			var h historyResult
			for begun := time.Now(); ; time.Sleep(20 * time.Millisecond) {
				h = wantJSON[historyResult](t, 0, on(db, "history", name)...)
				if len(h.Runs) == 1 && h.Runs[0].Outcome == is.outcome {
					break
				}
				if time.Since(begun) > patience {
					t.Fatalf("%s: %+v", name, h.Runs)
				}
			}
			r := h.Runs[0]
			if (r.ExitCode == nil) != (is.code == nil) || r.ExitCode != nil && *r.ExitCode != *is.code || (r.Finished != nil) != is.ended || (r.DurationMS != nil) != is.ended || !strings.HasPrefix(r.Error, is.error) || (r.Error == "") != (is.error == "") {
				t.Errorf("%s: %+v", name, r)
			}
			if byOutcome := wantJSON[historyResult](t, 0, on(db, "history", "--outcome", is.outcome)...); !slices.ContainsFunc(byOutcome.Runs, func(o runJSON) bool { return o.ID == r.ID }) {
				t.Errorf("%s is not among those that are %s", name, is.outcome)
			}
			out, _ := want(t, 0, on(db, "history", name)...)
			if !strings.Contains(out, is.outcome) || is.code != nil && !regexp.MustCompile(` `+regexp.QuoteMeta(r.Host)+` `).MatchString(out) {
				t.Errorf("%s", out)
			}
		}
		if r := wantJSON[historyResult](t, 0, on(db, "history", "function")...).Runs[0]; r.Note != "a note" || r.PID != os.Getpid() {
			t.Errorf("%+v", r)
		}
	})
}
