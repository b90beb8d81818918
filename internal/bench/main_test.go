package main

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// fixed is a figure that measures nothing.
func fixed(name string, b bound, values ...float64) figure {
	return figure{
		name: name, unit: "ratio", about: "about " + name, on: []target{{sqldb.SQLite, b, "SELECT 1\nFROM t"}},
		measure: func(context.Context, *bed) (measurement, error) {
			return measurement{values: values, note: "a note"}, nil
		},
	}
}

// bench runs the command without servers.
func bench(t *testing.T, all []figure, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	for _, kind := range sqldb.Kinds() {
		t.Setenv(env(kind), "")
	}
	var out, errs strings.Builder
	code = run(t.Context(), all, args, &out, &errs)
	return code, out.String(), errs.String()
}

func TestLines(t *testing.T) {
	all := []figure{fixed("a-ratio", atMost(2), 3, 1.0266, 1), fixed("b-count", bound{}, 12)}
	code, stdout, stderr := bench(t, all)
	if want := "figure a-ratio sqlite 1.027 ratio\nfigure b-count sqlite 12 ratio\n"; code != done || stdout != want {
		t.Errorf("code %d, stdout %q, want %q", code, stdout, want)
	}
	for _, want := range []string{"a-ratio sqlite: at most 2; quartiles of 3 rounds 1.013 and 2.013; a note", "b-count sqlite: no bound"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr %q lacks %q", stderr, want)
		}
	}
	code, stdout, _ = bench(t, all, "--only", "b-count")
	if want := "figure b-count sqlite 12 ratio\n"; code != done || stdout != want {
		t.Errorf("--only: code %d, %q, want %q", code, stdout, want)
	}
}

func TestJSON(t *testing.T) {
	code, stdout, _ := bench(t, []figure{fixed("a-ratio", atMost(1), 1.5)}, "--json")
	var got struct{ Figures []result }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != done {
		t.Fatalf("code %d, %v in %q", code, err, stdout)
	}
	want := result{Figure: "a-ratio", Database: "sqlite", Value: 1.5, Unit: "ratio", Bound: "at most 1", Q1: 1.5, Q3: 1.5, Rounds: 1}
	if len(got.Figures) != 1 || got.Figures[0] != want {
		t.Errorf("%+v, want %+v", got.Figures, want)
	}
}

func TestCheck(t *testing.T) {
	for _, tt := range []struct {
		name  string
		bound bound
		value float64
		want  int
	}{
		{"below", atMost(1.15), 1, done},
		{"printed as the bound itself", atMost(1.15), 1.1504, done},
		{"over", atMost(1.15), 1.151, failed},
		{"at least", atLeast(3), 3, done},
		{"not even at least", atLeast(3), 2.9, failed},
		{"no bound", bound{}, 1e9, done},
	} {
		t.Run(tt.name, func(t *testing.T) {
			all := []figure{fixed("a", tt.bound, tt.value)}
			code, _, stderr := bench(t, all, "--check")
			if code != tt.want || strings.Contains(stderr, "MISSED") != (tt.want == failed) {
				t.Errorf("code %d, want %d; %s", code, tt.want, stderr)
			}
			if code, _, _ := bench(t, all); code != done {
				t.Errorf("without --check: code %d", code)
			}
		})
	}
}

func TestWrongCalls(t *testing.T) {
	all := []figure{fixed("a", bound{}, 1)}
	for _, args := range [][]string{
		{"--only", "b"},
		{"--only", "a,b"},
		{"--database", "oracle"},
		{"--rounds", "0"},
		{"--rounds", "x"},
		{"--explain", "--only", "b"},
		{"--nothing"},
		{"a"},
	} {
		code, stdout, stderr := bench(t, all, args...)
		if code != usage || stdout != "" || strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q: code %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
	if code, stdout, stderr := bench(t, all, "--help"); code != done || stdout != "" || !strings.Contains(stderr, "-rounds") {
		t.Errorf("--help: code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
}

// A server that is not there is left out with a line, unless it was asked for.
func TestMissingServer(t *testing.T) {
	f := fixed("a", bound{}, 1)
	f.on = append(f.on, target{kind: sqldb.MySQL})
	code, stdout, stderr := bench(t, []figure{f})
	if code != done || strings.Count(stdout, "\n") != 1 || !strings.Contains(stderr, "a mysql: not measured: SQLLOCK_TEST_MYSQL_DSN") {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	if code, _, stderr := bench(t, []figure{f}, "--database", "sqlite,mysql"); code != failed || !strings.Contains(stderr, "SQLLOCK_TEST_MYSQL_DSN is not set") {
		t.Errorf("asked for: code %d, stderr %q", code, stderr)
	}
	if code, _, stderr := bench(t, []figure{f}, "--database", "postgres"); code != failed || !strings.Contains(stderr, "nothing was measured") {
		t.Errorf("no figure there: code %d, stderr %q", code, stderr)
	}
}

// What fails is told, and does not keep the others from being measured.
func TestFailure(t *testing.T) {
	broken := fixed("broken", bound{})
	broken.measure = func(context.Context, *bed) (measurement, error) { return measurement{}, errors.New("no such row") }
	code, stdout, stderr := bench(t, []figure{broken, fixed("empty", bound{}), fixed("sound", bound{}, 1)})
	if code != failed || stdout != "figure sound sqlite 1 ratio\n" {
		t.Errorf("code %d, stdout %q", code, stdout)
	}
	for _, want := range []string{"broken sqlite: no such row", "empty sqlite: the median of [] is no number"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("stderr %q lacks %q", stderr, want)
		}
	}
}

func TestExplain(t *testing.T) {
	code, stdout, stderr := bench(t, figures(), "--explain")
	if code != done || stderr != "" {
		t.Fatalf("code %d, stderr %q", code, stderr)
	}
	for _, f := range figures() {
		if f.name == "" || f.unit == "" || f.about == "" || len(f.on) == 0 || f.measure == nil {
			t.Errorf("figure %q is incomplete", f.name)
		}
		_, own, found := strings.Cut(stdout, f.name+" ("+f.unit+"): "+f.about+"\n")
		if !found {
			t.Errorf("%s is missing in\n%s", f.name, stdout)
		}
		for _, tt := range f.on {
			if !strings.Contains(own, "\n  "+tt.kind.String()+": "+tt.bound.String()+"\n") {
				t.Errorf("%s lacks %s", f.name, tt.kind)
			}
			for line := range strings.Lines(tt.floor) {
				if !strings.Contains(own, strings.TrimSpace(line)) {
					t.Errorf("%s %s lacks the floor's %q", f.name, tt.kind, line)
				}
			}
		}
	}
	if _, stdout, _ := bench(t, figures(), "--explain", "--database", "mysql"); strings.Contains(stdout, "\n  sqlite:") {
		t.Errorf("--database mysql explains SQLite:\n%s", stdout)
	}
}

// The bounds that the project has promised.
func TestBounds(t *testing.T) {
	want := map[string]string{
		"take-ratio postgres": "at most 1.15", "take-ratio sqlite": "at most 1.15",
		"take-ratio mysql": "at most 1.25", "take-ratio mariadb": "at most 1.25",

		"cas-ratio postgres": "at least 2.5", "cas-ratio sqlite": "no bound, reported only",
		"cas-ratio mysql": "at least 5", "cas-ratio mariadb": "no bound, reported only",

		"order-ratio postgres": "at least 0.9", "order-ratio sqlite": "at least 0.9",
		"order-ratio mysql": "at least 0.9", "order-ratio mariadb": "at least 0.9",
		"sold-out-ratio mysql": "at least 5", "sold-out-ratio mariadb": "no bound, reported only",
		"sold-out-ratio postgres": "no bound, reported only",

		"uncontended-ratio postgres": "at most 0.95", "uncontended-ratio sqlite": "at most 1.15",
		"uncontended-ratio mysql": "at most 1.15", "uncontended-ratio mariadb": "at most 1.15",
		"wal-syncs-per-pair postgres": "at most 1.05",
		"try-held-ratio postgres":     "at most 1.3", "try-held-ratio sqlite": "at most 1.3",
		"try-held-ratio mysql": "at most 2.2", "try-held-ratio mariadb": "at most 2.2",
		"try-pinned-ms postgres": "at most 2", "try-pinned-ms sqlite": "at most 2",
		"try-pinned-ms mysql": "at most 2", "try-pinned-ms mariadb": "at most 2",
		"renew-statements postgres": "at most 12", "renew-statements sqlite": "at most 12",
		"renew-statements mysql": "at most 12", "renew-statements mariadb": "at most 12",
		"pair-ms-snapshot postgres": "no bound, reported only",

		"advisory-ratio postgres": "at most 1.2", "advisory-ratio mysql": "at most 1.2", "advisory-ratio mariadb": "at most 1.2",
		"advisory-handover-ratio postgres": "at most 1.3", "advisory-handover-ratio mysql": "at most 1.3", "advisory-handover-ratio mariadb": "at most 1.3",
		"advisory-connections postgres": "at most 8", "advisory-connections mysql": "at most 8", "advisory-connections mariadb": "at most 8",

		"hot-row-ratio-64 postgres": "at least 20", "hot-row-ratio-64 mysql": "at least 15", "hot-row-ratio-64 mariadb": "at least 8",
		"hot-row-ratio-512 postgres": "at least 150", "hot-row-ratio-512 mysql": "at least 100", "hot-row-ratio-512 mariadb": "at least 50",
		"hot-row-p99-ratio-64 postgres": "at most 1", "hot-row-p99-ratio-64 mysql": "at most 1", "hot-row-p99-ratio-64 mariadb": "at most 1",
		"hot-row-claims-ratio-64 postgres": "at least 12", "hot-row-claims-ratio-64 mysql": "at least 12", "hot-row-claims-ratio-64 mariadb": "at least 7",
		"hot-row-claims-ratio-512 postgres": "at least 40", "hot-row-claims-ratio-512 mysql": "at least 40", "hot-row-claims-ratio-512 mariadb": "at least 25",
		"combine-lone-ratio postgres": "at most 1.1", "combine-lone-ratio sqlite": "at most 1.1",
		"combine-lone-ratio mysql": "at most 1.1", "combine-lone-ratio mariadb": "at most 1.1",
		"hot-row-over-redis-64 postgres": "at least 1.2", "hot-row-over-redis-512 postgres": "at least 5",
		"hot-row-claims-over-redis-64 postgres": "at least 0.7", "hot-row-claims-over-redis-512 postgres": "at least 2",
		"slots-ratio postgres": "at least 2.5", "slots-ratio mysql": "at least 1.5",
		"slots-ratio mariadb": "no bound, reported only", "slots-ratio sqlite": "no bound, reported only",

		"run-overhead-ratio postgres": "at most 2", "run-overhead-ratio sqlite": "at most 2",
		"run-overhead-ratio mysql": "at most 2", "run-overhead-ratio mariadb": "at most 2",
	}
	for _, f := range figures() {
		for _, tt := range f.on {
			name := f.name + " " + tt.kind.String()
			if got := tt.bound.String(); got != want[name] {
				t.Errorf("%s: %s, want %q", name, got, want[name])
			}
			delete(want, name)
		}
	}
	if len(want) > 0 {
		t.Errorf("not measured: %v", want)
	}
}

// The real figures on SQLite, once: they run, and leave nothing behind. What takes
// its time by nature is shortened.
func TestFiguresRun(t *testing.T) {
	all := figures()
	var want []string
	for i, f := range all {
		switch f.name {
		case "renew-statements":
			all[i] = renewStatements(20, 300*time.Millisecond)
		case "cas-ratio":
			all[i] = casRatio(8, 1, 100*time.Millisecond)
		case "order-ratio":
			all[i] = orderRatio(1, 100*time.Millisecond)
		case "slots-ratio":
			all[i] = slotsRatio(1, 100*time.Millisecond)
		}
		if slices.ContainsFunc(f.on, func(t target) bool { return t.kind == sqldb.SQLite }) {
			want = append(want, f.name)
		}
	}
	tmp := t.TempDir()
	t.Setenv("TMPDIR", tmp)
	t.Setenv("TMP", tmp) // Windows
	code, stdout, stderr := bench(t, all, "--rounds", "1", "--database", "sqlite")
	if code != done {
		t.Errorf("code %d, stdout %q, stderr %q", code, stdout, stderr)
	}
	lines := strings.Split(strings.TrimSpace(stdout), "\n")
	for i, name := range want {
		if i >= len(lines) || !strings.HasPrefix(lines[i], "figure "+name+" sqlite ") {
			t.Errorf("%s is missing in %q", name, stdout)
		}
	}
	left, err := filepath.Glob(filepath.Join(tmp, "*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %q, %v", left, err)
	}
}

// Users' SQLite flushes at each commit; so does the one that is measured.
func TestSQLiteIsDurable(t *testing.T) {
	b, err := newBed(t.Context(), sqldb.SQLite)
	if err != nil {
		t.Fatal(err)
	}
	var synchronous int
	var mode string
	err = errors.Join(b.db.QueryRow(t.Context(), "PRAGMA synchronous").Scan(&synchronous),
		b.db.QueryRow(t.Context(), "PRAGMA journal_mode").Scan(&mode), b.close())
	if err != nil || synchronous != 2 || mode != "wal" {
		t.Errorf("synchronous %d, journal_mode %s, %v", synchronous, mode, err)
	}
	if _, err := os.Stat(b.name); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the file is still there: %v", err)
	}
}
