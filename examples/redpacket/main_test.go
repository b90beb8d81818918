package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// TestMain makes of the test binary a process of the race, where it is told to.
func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" {
		os.Exit(run(context.Background(), nil, os.Stdin, os.Stdout, os.Stderr))
	}
	goleak.VerifyTestMain(m)
}

// redpacket runs the program and returns its exit code and output.
func redpacket(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(t.Context(), args, strings.NewReader(""), &out, &errs)
	return code, out.String(), errs.String()
}

func rows(t *testing.T, stdout string) map[string]row {
	t.Helper()
	var rep report
	if err := json.Unmarshal([]byte(stdout), &rep); err != nil {
		t.Fatalf("%v: %s", err, stdout)
	}
	m := map[string]row{}
	for _, r := range rep.Rows {
		m[r.Strategy] = r
	}
	return m
}

// On every database the naive way oversells, by the barrier and not by luck, and
// the others serve exactly as many as there are gifts; in one process and in
// several.
func TestRace(t *testing.T) {
	for _, processes := range []string{"1", "3"} {
		t.Run(processes, func(t *testing.T) {
			for _, kind := range sqldb.Kinds() {
				t.Run(kind.String(), func(t *testing.T) {
					t.Parallel() // the holders wait more than they work
					code, stdout, stderr := redpacket(t, "-json", "-users", "120", "-gifts", "20", "-goroutines", "4", "-processes", processes, "-dsn", dbtest.Fresh(t, kind))
					if code != 0 {
						t.Fatalf("exit code %d: %s", code, stderr)
					}
					got := rows(t, stdout)
					// With n at the barrier, n are served for each one that is counted: at least
					// the first round of each process is served beyond what is written.
					if n := got["naive"]; n.Oversold < 1 || n.Claimed != 20+n.Oversold {
						t.Errorf("naive has not oversold: %+v", n)
					}
					for _, name := range []string{"guarded", "version", "take-once", "combined", "slotted", "lock-table", "lock-table+guard"} {
						if g := got[name]; g.Claimed != 20 || g.Left != 0 || g.Oversold != 0 || g.Duplicates != 0 {
							t.Errorf("%s: %+v", name, g)
						}
					}
					if g, ok := got["advisory"]; ok == (kind == sqldb.SQLite) || ok && (g.Claimed != 20 || g.Left != 0 || g.Oversold != 0 || g.Duplicates != 0) {
						t.Errorf("advisory: %v, %+v", ok, g)
					}
				})
			}
		})
	}
}

// With holders that are stopped for longer than their lease, a lock alone oversells,
// and that is told and no failure; with its guard it does not.
func TestStall(t *testing.T) {
	for _, processes := range []string{"1", "3"} {
		t.Run(processes, func(t *testing.T) {
			for _, kind := range sqldb.Kinds() {
				t.Run(kind.String(), func(t *testing.T) {
					t.Parallel() // the holders wait more than they work
					code, stdout, stderr := redpacket(t, "-json", "-stall", "-strategy", "lock-table,lock-table+guard",
						"-users", "120", "-gifts", "20", "-goroutines", "4", "-processes", processes, "-dsn", dbtest.Fresh(t, kind))
					if code != 0 || !strings.Contains(stderr, "lock-table is unprotected against stalls: ") || strings.Contains(stderr, "+guard is") {
						t.Fatalf("exit code %d: %s", code, stderr)
					}
					got := rows(t, stdout)
					if l := got["lock-table"]; l.broken(20) == nil {
						t.Errorf("nothing has come of the stalls: %+v", l)
					}
					if g := got["lock-table+guard"]; g.Claimed != 20 || g.Left != 0 || g.Oversold != 0 || g.Duplicates != 0 {
						t.Errorf("with guard: %+v", g)
					}
				})
			}
		})
	}
}

// So does an advisory lock, on the servers that have them.
func TestStallAdvisory(t *testing.T) {
	for _, kind := range sqldb.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			code, stdout, stderr := redpacket(t, "-json", "-stall", "-strategy", "advisory",
				"-users", "120", "-gifts", "20", "-goroutines", "4", "-dsn", dbtest.Fresh(t, kind))
			if kind == sqldb.SQLite {
				if code != 1 || !strings.Contains(stderr, "needs a server") {
					t.Errorf("exit code %d: %s", code, stderr)
				}
				return
			}
			if code != 0 || !strings.Contains(stderr, "advisory is unprotected against stalls: ") {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			if l := rows(t, stdout)["advisory"]; l.broken(20) == nil {
				t.Errorf("nothing has come of the stalls: %+v", l)
			}
		})
	}
}

// Tables of sqllock that are there stay; those that were made go, with -reset.
func TestLockTables(t *testing.T) {
	args := []string{"-reset", "-users", "20", "-gifts", "5", "-strategy", "lock-table,take-once,combined", "-dsn"}
	for _, there := range []bool{true, false} {
		t.Run(fmt.Sprint(there), func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
				if there {
					if err := migrations.Up(t.Context(), db.DB); err != nil {
						t.Fatal(err)
					}
				}
				if code, _, stderr := redpacket(t, append(args, db.DSN)...); code != 0 {
					t.Fatalf("exit code %d: %s", code, stderr)
				}
				version, err := migrations.Version(t.Context(), db.DB)
				if err != nil || (version > 0) != there {
					t.Errorf("version %d afterwards, %v", version, err)
				}
				if there { // without what the race has put into them
					var claims int
					if err := db.SQL.QueryRow("SELECT COUNT(*) FROM " + db.Table("claims") + " WHERE owner <> ''").Scan(&claims); err != nil || claims != 0 {
						t.Errorf("%d claims are left, %v", claims, err)
					}
				}
			})
		})
	}
}

// The JSON form is a contract.
func TestJSONFields(t *testing.T) {
	_, stdout, _ := redpacket(t, "-json", "-users", "20", "-gifts", "5")
	var object struct {
		Database string
		Rows     []map[string]any
	}
	dec := json.NewDecoder(strings.NewReader(stdout))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&object); err != nil || dec.More() || object.Database != "sqlite" {
		t.Fatalf("%v: %s", err, stdout)
	}
	var got, possible []string
	for _, r := range object.Rows {
		got = append(got, fmt.Sprint(r["strategy"]))
	}
	for _, s := range strategies() {
		if !s.server {
			possible = append(possible, s.name)
		}
	}
	if !slices.Equal(got, possible) {
		t.Errorf("the strategies are %q, want %q", got, possible)
	}
	want := []string{"claimed", "duplicates", "left_count", "ops_per_s", "oversold", "p50_ms", "p99_ms", "strategy"}
	for _, r := range object.Rows {
		if keys := slices.Sorted(maps.Keys(r)); !slices.Equal(keys, want) {
			t.Errorf("the fields are %v, want %v", keys, want)
		}
	}
}

func TestTable(t *testing.T) {
	code, stdout, stderr := redpacket(t, "-users", "20", "-gifts", "5")
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	if code != 0 || len(lines) != 9 || strings.Join(strings.Fields(lines[0]), " ") != "strategy claimed left_count oversold duplicates ops/s p50 p99" {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	for i, name := range []string{"guarded", "version", "take-once", "combined", "slotted", "lock-table", "lock-table+guard"} {
		if f := strings.Fields(lines[2+i]); f[0] != name || f[1] != "5" || f[2] != "0" || f[3] != "0" || f[4] != "0" {
			t.Errorf("%s: %s", name, lines[2+i])
		}
	}
}

// A table of somebody else is left alone.
func TestExistingTable(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	db.MustExec(t, "CREATE TABLE t_bonus (mine TEXT)", "INSERT INTO t_bonus VALUES ('mine')")
	args := []string{"-dsn", db.DSN, "-users", "20", "-gifts", "5"}
	if code, _, stderr := redpacket(t, args...); code != 1 || !strings.Contains(stderr, "-reset") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	var mine string
	if err := db.SQL.QueryRow("SELECT mine FROM t_bonus").Scan(&mine); err != nil || mine != "mine" {
		t.Errorf("%q, %v", mine, err)
	}
	if code, _, stderr := redpacket(t, append(args, "-reset")...); code != 0 {
		t.Errorf("with -reset: exit code %d: %s", code, stderr)
	}
}

func TestUsage(t *testing.T) {
	for _, args := range []string{"-users 0", "-gifts -1", "-goroutines 1", "-processes 0", "-strategy magic", "-nonsense", "extra", "-users 10 -goroutines 11", "-users 100 -gifts 100", "-dsn sqlite::memory: -processes 2"} {
		if code, stdout, stderr := redpacket(t, strings.Fields(args)...); code != 2 || stdout != "" || stderr == "" {
			t.Errorf("%s: exit code %d, %q, %q", args, code, stdout, stderr)
		}
	}
	if code, _, _ := redpacket(t, "-h"); code != 0 {
		t.Errorf("-h: exit code %d", code)
	}
}

// A database that cannot be had is told without the password.
func TestUnreachable(t *testing.T) {
	for _, args := range [][]string{{"postgres://u:s3cret@h/d"}, {"-strategy", "postgres://u:s3cret@h/d"}, {"-users", "postgres://u:s3cret@h/d"}, {"-dsn", "oracle://u:s3cret@h/x"}} {
		if code, _, stderr := redpacket(t, args...); code != 2 || strings.Contains(stderr, "s3cret") || stderr == "" {
			t.Errorf("%q: exit code %d: %s", args, code, stderr)
		}
	}
	for _, dsn := range []string{"postgres://u:s3cret@127.0.0.1:1/x", "mysql://u:s3cret@127.0.0.1:1/x", "mariadb://u:s3cret@127.0.0.1:1/x"} {
		if code, _, stderr := redpacket(t, "-dsn", dsn); code != 1 || strings.Contains(stderr, "s3cret") || stderr == "" {
			t.Errorf("%s: exit code %d: %s", dsn, code, stderr)
		}
	}
}

// The program fails if a strategy that protects has not.
func TestRaceFails(t *testing.T) {
	twice := func(ctx context.Context, db *sqldb.DB, c config) (*contest, error) {
		run, err := guarded(ctx, db, c)
		claim := run.claim
		run.claim = func(ctx context.Context, user int) (bool, error) { return claim(ctx, user%5) }
		return run, err
	}
	for name, c := range map[string]struct {
		open func(context.Context, *sqldb.DB, config) (*contest, error)
		want string
	}{"oversells": {naive, "has oversold"}, "twice": {twice, "users twice"}, "sound": {guarded, ""}} {
		cfg := config{
			Users: 100, Gifts: 20, Goroutines: 4, Processes: 1, Strategies: []string{"test"},
			more: []strategy{{name: "test", protected: true, open: c.open}},
		}
		err := race(t.Context(), cfg, io.Discard, io.Discard)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What makes the program fail.
func TestBroken(t *testing.T) {
	for name, r := range map[string]row{
		"oversold": {Claimed: 101, Oversold: 1}, "negative": {Claimed: 101, Left: -1}, "duplicates": {Claimed: 100, Duplicates: 1}, "lost": {Claimed: 90, Left: 5},
	} {
		if r.broken(100) == nil {
			t.Errorf("%s is not noticed", name)
		}
	}
	if err := (row{Claimed: 60, Left: 40}).broken(100); err != nil {
		t.Error(err)
	}
}
