package schema

import (
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/sqlnative/locks/sqldb"
)

// TestMigrations: the files of all databases are the same migrations, and keep the
// rules of the package.
func TestMigrations(t *testing.T) {
	first := Migrations(sqldb.Postgres)
	for _, kind := range sqldb.Kinds() {
		all := Migrations(kind)
		if n := int64(len(all)); n != Latest {
			t.Errorf("%s has %d migrations, Latest is %d", kind, n, Latest)
		}
		compatible := int64(1)
		for i, m := range append([]Migration{Bookkeeping(kind)}, all...) {
			if m.Version != int64(i) {
				t.Errorf("%s: %d is at %d", kind, m.Version, i)
			}
			if m.About == "" {
				t.Errorf("%s: %s does not say why", kind, m.Name)
			}
			if i > 0 {
				if m.Name != first[i-1].Name || m.Compatible != first[i-1].Compatible {
					t.Errorf("%s: %s %d is not as on PostgreSQL", kind, m.Name, m.Compatible)
				}
				if m.Compatible < compatible || m.Compatible > m.Version {
					t.Errorf("%s: %s: compatible %d", kind, m.Name, m.Compatible)
				}
				compatible = m.Compatible
			}
			if kind.InnoDB() && (len(m.Up) != 1 || len(m.Down) != 1) {
				t.Errorf("%s: %s has more than one statement", kind, m.Name)
			}
			for _, s := range append(slices.Clone(m.Up), m.Down...) {
				if strings.Contains(s, ";") {
					t.Errorf("%s: %s: a semicolon within a statement, which tools would cut there: %s", kind, m.Name, s)
				}
				if !strings.Contains(s, "IF NOT EXISTS") && !strings.Contains(s, "IF EXISTS") && !strings.HasPrefix(s, "COMMENT ON") {
					t.Errorf("%s: %s: cannot be repeated: %s", kind, m.Name, s)
				}
				if bad := regexp.MustCompile(`(?i)\bTIMESTAMP\b|\bNOW\(|CURRENT_TIMESTAMP|\bREFERENCES\b`).FindString(s); bad != "" {
					t.Errorf("%s: %s: %s: see the facts about times and foreign keys", kind, m.Name, bad)
				}
			}
		}
	}
}

// TestTablesAreTheSQL: what is expected and what is made have the same columns in
// the same order. (That types agree is shown on real databases, by
// migrations.Check.)
func TestTablesAreTheSQL(t *testing.T) {
	column := regexp.MustCompile(`(?m)^    ([a-z_]+) `)
	for _, kind := range sqldb.Kinds() {
		made := map[string][]string{}
		for _, m := range append(Migrations(kind), Bookkeeping(kind)) {
			for _, c := range column.FindAllStringSubmatch(m.Up[0], -1) {
				made[m.Name] = append(made[m.Name], c[1])
			}
		}
		tables := Tables(kind)
		if len(tables) != len(made) {
			t.Errorf("%s: %d tables described, %d made", kind, len(tables), len(made))
		}
		for _, table := range tables {
			var want []string
			for _, c := range table.Columns {
				want = append(want, c.Name)
			}
			if !slices.Equal(want, made[table.Name]) {
				t.Errorf("%s: %s has %v, described as %v", kind, table.Name, made[table.Name], want)
			}
		}
	}
}

func TestRender(t *testing.T) {
	p := Place{Kind: sqldb.MySQL, Schema: "shop", Prefix: "p_"}
	if got := p.Render("DROP TABLE ${table.locks} ${name.x_y}"); got != "DROP TABLE `shop`.`p_locks` `p_x_y`" {
		t.Error(got)
	}
	p = Place{Kind: sqldb.Postgres, Prefix: "p_"}
	if got := p.Render("${table.locks}"); got != `"p_locks"` {
		t.Error(got)
	}
	defer func() {
		if recover() == nil {
			t.Error("an unknown placeholder was rendered")
		}
	}()
	p.Render("${tabel.locks}")
}

func TestPlaceCheck(t *testing.T) {
	for _, p := range []Place{
		{},
		{Kind: sqldb.SQLite, Schema: "other"},
		{Kind: sqldb.Postgres, Schema: `a"b`},
		{Kind: sqldb.Postgres, Prefix: "a-b"},
		{Kind: sqldb.Postgres, Prefix: "1"},
		{Kind: sqldb.Postgres, Prefix: strings.Repeat("a", 33)},
	} {
		if p.Check() == nil {
			t.Errorf("%+v was taken", p)
		}
	}
	for _, p := range []Place{{Kind: sqldb.SQLite, Schema: "main", Prefix: "a_"}, {Kind: sqldb.MariaDB}, {Kind: sqldb.Postgres, Schema: "S", Prefix: strings.Repeat("a", 32)}} {
		if err := p.Check(); err != nil {
			t.Error(err)
		}
	}
}

// TestSupported is the rule for programs beside a schema of another release.
func TestSupported(t *testing.T) {
	state := func(compatible ...int64) (s State) {
		for i, c := range compatible {
			s.Applied = append(s.Applied, Applied{Version: int64(i) + 1, Compatible: c})
		}
		return s
	}
	gap := state(1, 1, 1)
	gap.Applied = slices.Delete(gap.Applied, 1, 2)
	for _, c := range []struct {
		name   string
		state  State
		latest int64
		want   error
	}{
		{"nothing", State{}, 2, ErrNotMigrated},
		{"older", state(1), 2, ErrNotMigrated},
		{"the same", state(1, 1), 2, nil},
		{"later, compatible", state(1, 1, 1), 2, nil},
		{"later, compatible with this one at least", state(1, 1, 2), 2, nil},
		{"later, not compatible", state(1, 1, 3), 2, ErrTooNew},
		{"compatible again does not undo it", state(1, 1, 3, 1), 2, ErrTooNew},
		{"one is missing", gap, 2, ErrNotMigrated},
	} {
		if err := c.state.supported(c.latest); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
	}
	// Whoever wraps it says what it is about, and what is to be done.
	if err := state(1).supported(2); err.Error() != "they have version 1, and this program needs version 2" {
		t.Errorf("the text is %q", err)
	}
	if v := gap.Version(); v != 1 {
		t.Errorf("the version of one with a gap: %d", v)
	}
}

func TestParse(t *testing.T) {
	good := "-- compatible: 1\n-- why\n-- +up\nCREATE x;\nCREATE\n  y;\n-- +down\nDROP x;\n"
	m, err := parse("00003_some_name.sql", good)
	if err != nil || m.Version != 3 || m.Name != "some_name" || m.Compatible != 1 || m.About != "-- why\n" ||
		!slices.Equal(m.Up, []string{"CREATE x", "CREATE\n  y"}) || !slices.Equal(m.Down, []string{"DROP x"}) {
		t.Errorf("%+v, %v", m, err)
	}
	for name, text := range map[string]string{
		"3_x.sql":     good,
		"00003_X.sql": good,
		"00003_a.sql": strings.Replace(good, "-- compatible: 1\n", "", 1),
		"00003_b.sql": strings.Replace(good, "-- +up\n", "", 1),
		"00003_c.sql": strings.Replace(good, "-- +down\n", "", 1),
		"00003_d.sql": strings.Replace(good, "DROP x;", "DROP x", 1),
		"00003_e.sql": strings.Replace(good, "DROP x;", "", 1),
	} {
		if _, err := parse(name, text); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}

// TestMade: what migrations make is read from their SQL, and can be made again.
func TestMade(t *testing.T) {
	for _, kind := range sqldb.Kinds() {
		p := Place{Kind: kind, Schema: "main", Prefix: "p_"}
		separate := 0
		for _, m := range append(Migrations(kind), Bookkeeping(kind)) {
			if !slices.Equal(m.Tables(), []string{m.Name}) {
				t.Errorf("%s: %s makes %v", kind, m.Name, m.Tables())
			}
			separate += len(m.Indexes())
			table, ok := TableNamed(kind, m.Name)
			if !ok {
				t.Fatalf("%s: %s is not described", kind, m.Name)
			}
			for _, c := range table.Columns {
				got, ok := p.AddColumn(table.Name, c)
				if begin := "ALTER TABLE " + p.Table(table.Name) + " ADD COLUMN " + kind.Quote(c.Name) + " "; !strings.HasPrefix(got, begin) || strings.Count(got, ";") != 1 ||
					ok != (c.Null || c.Default) || strings.Contains(got, "  ") || strings.Contains(got, "-- ") {
					t.Errorf("%s: %s.%s: %v %s", kind, table.Name, c.Name, ok, got)
				}
			}
			for _, columns := range table.Indexes {
				if got := p.MakeIndex(table.Name, columns); !strings.Contains(got, strings.Join(columns, ", ")) || !strings.Contains(got, "p_"+table.Name) {
					t.Errorf("%s: %s", kind, got)
				}
			}
		}
		if want := map[bool]int{true: 0, false: 3}[kind.InnoDB()]; separate != want {
			t.Errorf("%s: %d indexes by statements of their own, want %d", kind, separate, want)
		}
	}
	p := Place{Kind: sqldb.SQLite, Schema: "main", Prefix: "p_"}
	if got, _ := p.AddColumn("locks", Column{Name: "token", Default: true}); got != `ALTER TABLE "main"."p_locks" ADD COLUMN "token" INTEGER NOT NULL DEFAULT 0;` {
		t.Error(got)
	}
}
