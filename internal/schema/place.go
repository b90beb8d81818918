package schema

import (
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// Place is where the tables are: kind of database, schema, prefix of the names.
type Place struct {
	Kind   sqldb.Kind
	Schema string // empty: where unqualified names lead
	Prefix string
}

// PlaceOf is the place of a DB's tables.
func PlaceOf(db *sqldb.DB) Place {
	return Place{Kind: db.Kind(), Schema: db.Schema(), Prefix: db.TablePrefix()}
}

// Check says what is wrong with schema or prefix. What a [sqldb.DB] says is
// always right.
func (p Place) Check() error {
	if !known(p.Kind) {
		return fmt.Errorf("schema: %v is no kind of database", p.Kind)
	}
	if p.Schema != "" {
		if err := sqldb.CheckIdent(p.Schema); err != nil {
			return fmt.Errorf("schema %q: %w", p.Schema, err)
		}
	}
	if p.Kind == sqldb.SQLite && p.Schema != "" && p.Schema != "main" {
		return fmt.Errorf("schema %q: SQLite has its tables in main", p.Schema)
	}
	if err := sqldb.CheckOptions(sqldb.TablePrefix(p.Prefix)); err != nil {
		return errors.Unwrap(err) // without what an option is called elsewhere
	}
	return nil
}

func known(kind sqldb.Kind) bool {
	for _, k := range sqldb.Kinds() {
		if k == kind {
			return true
		}
	}
	return false
}

// Name is a table's or an index's name without schema, quoted.
func (p Place) Name(base string) string { return p.Kind.Quote(p.Prefix + base) }

// Table is a table's name with schema, quoted.
func (p Place) Table(base string) string {
	if p.Schema == "" {
		return p.Name(base)
	}
	return p.Kind.Quote(p.Schema) + "." + p.Name(base)
}

var placeholder = regexp.MustCompile(`\$\{([a-z]*)\.?([a-z_]*)\}`)

// Render puts schema and prefix in place of the placeholders of a statement. It
// panics for one that it does not know: the files are part of the program.
func (p Place) Render(statement string) string {
	return placeholder.ReplaceAllStringFunc(statement, func(s string) string {
		parts := placeholder.FindStringSubmatch(s)
		switch parts[1] {
		case "table":
			return p.Table(parts[2])
		case "name":
			return p.Name(parts[2])
		}
		panic("schema: unknown placeholder " + s)
	})
}

// now is the database's clock as the tables keep time.
func (p Place) now() string {
	switch p.Kind {
	case sqldb.Postgres:
		return "clock_timestamp()"
	case sqldb.SQLite:
		// Not unixepoch('subsec'): the shell that runs a printed migration may be
		// older than the SQLite in the program.
		return "CAST(ROUND((julianday('now') - 2440587.5) * 86400000000) AS INTEGER)"
	}
	return "UTC_TIMESTAMP(6)"
}

// Record is the statement that records a migration as applied. It can be
// repeated. It has no arguments, so that it can be printed for people who apply
// the SQL by other means.
func (p Place) Record(m Migration) string {
	s := fmt.Sprintf("INSERT INTO %s (version, compatible, name, applied_at)\nVALUES (%d, %d, '%s', %s)",
		p.Table(VersionTable), m.Version, m.Compatible, strings.ReplaceAll(m.Name, "'", "''"), p.now())
	if p.Kind.InnoDB() {
		return s + "\nON DUPLICATE KEY UPDATE version = version"
	}
	return s + "\nON CONFLICT (version) DO NOTHING"
}

// Forget is the statement that records a migration as undone.
func (p Place) Forget(version int64) string {
	return fmt.Sprintf("DELETE FROM %s WHERE version = %d", p.Table(VersionTable), version)
}

// Applied is the query for what has been applied: version, compatible, name,
// applied_at, from the first on.
func (p Place) Applied() string {
	return "SELECT version, compatible, name, applied_at FROM " + p.Table(VersionTable) + " ORDER BY version"
}
