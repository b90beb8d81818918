package migrations

import (
	"context"
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
	// What is wrong, and what to do about it.
	What, Fix string
}

// String is the problem in one line.
func (p Problem) String() string {
	where := p.Table
	if p.Column != "" {
		where += "." + p.Column
	}
	if where != "" {
		where += ": "
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
		what, fix, _ := strings.Cut(err.Error(), ": ")
		problems = append(problems, Problem{What: what, Fix: fix})
	}
	for _, want := range tablesOf(db.Kind(), state) {
		got, err := look(ctx, db, want.Name)
		if err != nil {
			return nil, fmt.Errorf("migrations: reading the catalog for %s: %w", db.TablePrefix()+want.Name, err)
		}
		problems = append(problems, compare(db, want, got)...)
	}
	return problems, nil
}

// verify looks at the tables that this Up has made: IF NOT EXISTS takes a table of
// that name for ours, whoever's it is.
func (r *run) verify(ctx context.Context) error {
	for _, want := range schema.Tables(r.place.Kind) {
		if !slices.Contains(r.made, want.Name) {
			continue
		}
		got, err := look(context.WithoutCancel(ctx), r.db, want.Name)
		if err != nil {
			return fmt.Errorf("migrations: done, but reading the catalog for %s%s: %w", r.place.Prefix, want.Name, err)
		}
		if problems := compare(r.db, want, got); len(problems) > 0 {
			return fmt.Errorf("migrations: the table was there before, and is not what is needed (%d problems, see \"sqllock-migrate check\"): %s", len(problems), problems[0])
		}
	}
	return nil
}

// compare says what is wrong with a table.
func compare(db *sqldb.DB, want schema.Table, got live) (problems []Problem) {
	table := db.TablePrefix() + want.Name
	printed := fmt.Sprintf("see \"sqllock-migrate sql %s\"", db.Kind())
	add := func(column, what, fix string) {
		problems = append(problems, Problem{Table: table, Column: column, What: what, Fix: fix})
	}
	if !got.exists {
		add("", "it is recorded as made, and missing", "make it again: its statements, which can be repeated, are printed by \"sqllock-migrate sql "+db.Kind().String()+"\"")
		return problems
	}
	if got.fault != "" {
		add("", got.fault, got.remedy)
	}
	for _, c := range want.Columns {
		typ, collation := c.SQL(db.Kind())
		live, ok := got.column(c.Name)
		if !ok {
			add(c.Name, "the column is missing", "add it as "+typ+"; "+printed)
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
			add("", fmt.Sprintf("the index on (%s) is missing", strings.Join(index, ", ")), "make it; "+printed)
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
