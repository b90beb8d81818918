package migrations

import (
	"fmt"
	"strings"

	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/sqldb"
)

// SQL is the text of all migrations, up to To(v), for people who apply SQL with a
// tool of their own. It needs no database. Without [Schema] the names in it are
// unqualified. Comments in it say how the versions are recorded; every statement
// can be repeated, ends with a semicolon at the end of a line, and has no other
// semicolon in it.
func SQL(kind sqldb.Kind, opts ...Option) (string, error) {
	o, err := collect(kind, "SQL", opts)
	if err != nil {
		return "", err
	}
	p := o.place
	var b strings.Builder
	fmt.Fprintf(&b, `-- The tables of sqllock for %s, version %d.
--
-- Run it from top to bottom, in one migration of your own tool or cut at the
-- headings. Each INSERT INTO %s
-- records the migration above it, and is part of it: without it sqllock takes the
-- tables for missing. Later releases add further migrations at the end, so that
-- what is below stays as it is. "sqllock-migrate check" compares the result with
-- what this release needs.
`, kind, o.to, p.Table(schema.VersionTable))
	statement := func(text string) { fmt.Fprintf(&b, "%s;\n", p.Render(text)) }
	if kind == sqldb.Postgres && p.Schema != "" {
		fmt.Fprintf(&b, "\nCREATE SCHEMA IF NOT EXISTS %s;\n", kind.Quote(p.Schema))
	}
	for _, m := range append([]schema.Migration{schema.Bookkeeping(kind)}, o.migrations...) {
		if m.Version > o.to {
			break
		}
		fmt.Fprintf(&b, "\n-- %d %s\n%s", m.Version, m.Name, m.About)
		for _, text := range m.Up {
			statement(text)
		}
		if m.Version > 0 {
			statement(p.Record(m))
		}
	}
	return b.String(), nil
}
