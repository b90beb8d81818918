package migrations

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/sqldb"
)

// Problem is something that keeps the library from working with the tables as
// they are.
type Problem struct {
	// Table is the table's name with its prefix; Column is empty where the problem is
	// the table's. Both are empty where it is the schema's.
	Table, Column string
	// What is wrong, and what to do about it: SQL that can be run as it is, where there
	// is such SQL.
	What, Fix string
}

// String is the problem and what to do about it, which is several lines where that
// is SQL of several lines.
func (p Problem) String() string {
	where := p.Table
	if p.Column != "" {
		where += "." + p.Column
	}
	if where != "" {
		where += ": "
	}
	if strings.Contains(p.Fix, "\n") {
		return where + p.What + ":\n" + p.Fix
	}
	return where + p.What + ": " + p.Fix
}

// Check compares the tables with what this release needs: versions, tables,
// columns, their types, nullability, defaults and collations, keys, indexes, and
// the engine. It returns what it finds wrong; none and a nil error mean that all is
// well. Columns that a later release has added are fine. It only reads, and waits
// for nobody who only reads or writes rows. An error says that the catalog could
// not be read.
func Check(ctx context.Context, db *sqldb.DB) ([]Problem, error) {
	state, err := read(ctx, db)
	if err != nil {
		return nil, err
	}
	var problems []Problem
	if err := state.Supported(); err != nil {
		problems = append(problems, unsupported(state, err))
	}
	c := catalogOf(db)
	for _, want := range tablesOf(db.Kind(), state) {
		got, err := c.look(ctx, want.Name)
		if err != nil {
			return nil, fmt.Errorf("migrations: %w", err)
		}
		problems = append(problems, compare(c.place, want, got)...)
	}
	return problems, nil
}

// unsupported is the problem of a version that does not fit.
func unsupported(state schema.State, err error) Problem {
	switch {
	case errors.Is(err, ErrTooNew):
		what, fix, _ := strings.Cut(err.Error(), ": ")
		return Problem{What: what, Fix: fix}
	case len(state.Applied) == 0:
		return Problem{What: "the tables of sqllock are not there", Fix: "run \"sqllock-migrate up\" or migrations.Up"}
	}
	return Problem{
		What: fmt.Sprintf("the tables of sqllock have version %d, and this program needs version %d", state.Version(), schema.Latest),
		Fix:  "run \"sqllock-migrate up\" or migrations.Up",
	}
}

// compare says what is wrong with a table.
func compare(p schema.Place, want schema.Table, got live) (problems []Problem) {
	table := p.Prefix + want.Name
	printed := fmt.Sprintf("see \"sqllock-migrate sql %s\"", p.Kind)
	add := func(column, what, fix string) {
		problems = append(problems, Problem{Table: table, Column: column, What: what, Fix: fix})
	}
	if !got.exists {
		add("", "it is recorded as made, and missing", p.MakeTable(want.Name))
		return problems
	}
	if got.fault != "" {
		add("", got.fault, got.remedy)
	}
	for _, c := range want.Columns {
		typ, collation := c.SQL(p.Kind)
		live, ok := got.column(c.Name)
		if !ok {
			fix, ok := p.AddColumn(want.Name, c)
			if !ok {
				fix = "rows that are there can have no value in it; keep what you need of them, drop the table, and make it again:\n" + p.MakeTable(want.Name)
			}
			add(c.Name, "the column is missing", fix)
			continue
		}
		if !sameType(typ, live.typ) {
			add(c.Name, fmt.Sprintf("its type is %s, not %s", live.typ, typ), "change the type; "+printed)
		}
		if collation != "" && collation != live.collation {
			add(c.Name, fmt.Sprintf("its collation is %q, not %q, so that other texts count as equal", live.collation, collation), "change the collation; "+printed)
		}
		switch {
		case live.null && !c.Null:
			add(c.Name, "it may be NULL", "make it NOT NULL; "+printed)
		case !live.null && c.Null:
			add(c.Name, "it is NOT NULL", "allow NULL; "+printed)
		}
		if c.Default && !live.def {
			add(c.Name, "it has no default", "set the default; "+printed)
		}
	}
	for _, c := range got.columns {
		known := slices.ContainsFunc(want.Columns, func(w schema.Column) bool { return w.Name == c.name })
		if !known && !c.null && !c.def {
			add(c.name, "a further column that is NOT NULL without a default: no row can be inserted", "drop it, allow NULL, or give it a default")
		}
	}
	if !slices.Equal(want.Key, got.key) {
		what := fmt.Sprintf("its primary key is (%s), not (%s)", strings.Join(got.key, ", "), strings.Join(want.Key, ", "))
		if len(got.key) == 0 {
			what = fmt.Sprintf("it has no primary key (%s): two processes could make the same row", strings.Join(want.Key, ", "))
		}
		add("", what, "change the primary key; "+printed)
	}
	for _, index := range want.Indexes {
		served := func(have []string) bool { return len(have) >= len(index) && slices.Equal(have[:len(index)], index) }
		if !slices.ContainsFunc(got.indexes, served) {
			add("", fmt.Sprintf("the index on (%s) is missing", strings.Join(index, ", ")), p.MakeIndex(want.Name, index))
		}
	}
	return problems
}

// sameType compares types as the catalog spells them; a text may be longer than
// needed.
func sameType(want, got string) bool {
	if want == got {
		return true
	}
	var w, g int
	name, size, ok := strings.Cut(want, "char(")
	if !ok {
		name, size, ok = strings.Cut(want, "binary(")
	}
	prefix := strings.TrimSuffix(want, size)
	rest, same := strings.CutPrefix(got, prefix)
	if !ok || name == "" || !same {
		return false
	}
	_, err := fmt.Sscanf(size+" "+rest, "%d) %d)", &w, &g)
	return err == nil && g >= w
}
