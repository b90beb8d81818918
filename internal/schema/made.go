package schema

import (
	"regexp"
	"slices"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// Index is an index that a migration makes by a statement of its own.
type Index struct {
	Name, Table string // base names
	Columns     []string
	statement   string
}

var (
	createTable = regexp.MustCompile(`^CREATE TABLE IF NOT EXISTS \$\{table\.([a-z_]+)\}`)
	createIndex = regexp.MustCompile(`^CREATE INDEX IF NOT EXISTS \$\{(?:table|name)\.([a-z_]+)\} ON \$\{(?:table|name)\.([a-z_]+)\} \(([a-z_, ]+)\)`)
	innerIndex  = regexp.MustCompile(`(?m)^    KEY ([a-z_]+) \(([a-z_, ]+)\)`)
	columnLine  = regexp.MustCompile(`^    ([a-z_]+) +(.*)$`)
)

// Tables are the base names of the tables that the migration makes, and that
// undoing it drops.
func (m Migration) Tables() []string {
	var names []string
	for _, text := range m.Up {
		if parts := createTable.FindStringSubmatch(text); parts != nil {
			names = append(names, parts[1])
		}
	}
	return names
}

// Indexes are the indexes that the migration makes by statements of their own. On
// MySQL and MariaDB there are none: an index is part of its table there.
func (m Migration) Indexes() []Index {
	var all []Index
	for _, text := range m.Up {
		if parts := createIndex.FindStringSubmatch(text); parts != nil {
			all = append(all, Index{Name: parts[1], Table: parts[2], Columns: strings.Split(parts[3], ", "), statement: text})
		}
	}
	return all
}

// TableNamed is the one of [Tables] with a base name.
func TableNamed(kind sqldb.Kind, base string) (Table, bool) {
	for _, t := range Tables(kind) {
		if t.Name == base {
			return t, true
		}
	}
	return Table{}, false
}

// maker is the migration that makes a table, and its CREATE TABLE.
func (p Place) maker(table string) (Migration, string) {
	for _, m := range load(p.Kind) {
		for _, text := range m.Up {
			if parts := createTable.FindStringSubmatch(text); parts != nil && parts[1] == table {
				return m, text
			}
		}
	}
	panic("schema: no migration makes " + table)
}

// MakeTable is the SQL that makes a table again.
func (p Place) MakeTable(table string) string {
	m, _ := p.maker(table)
	var b strings.Builder
	for i, text := range m.Up {
		if i > 0 {
			b.WriteByte('\n')
		}
		b.WriteString(p.Render(text) + ";")
	}
	return b.String()
}

// AddColumn is the statement that adds a column again; false if rows that are
// there could have no value in it.
func (p Place) AddColumn(table string, c Column) (string, bool) {
	_, create := p.maker(table)
	definition := ""
	for line := range strings.Lines(create) {
		line = strings.TrimRight(line, "\n")
		if p.Kind == sqldb.SQLite {
			line, _, _ = strings.Cut(line, " -- ")
		}
		parts := columnLine.FindStringSubmatch(line)
		switch {
		case definition == "" && parts != nil && parts[1] == c.Name:
			definition = parts[2]
		case definition != "" && strings.HasPrefix(line, "        "): // MySQL: the comment
			definition += " " + strings.TrimSpace(line)
		case definition != "":
			definition = strings.Join(strings.Fields(strings.TrimSuffix(definition, ",")), " ")
			return "ALTER TABLE " + p.Table(table) + " ADD COLUMN " + p.Kind.Quote(c.Name) + " " + definition + ";", c.Null || c.Default
		}
	}
	panic("schema: " + table + " has no column " + c.Name)
}

// MakeIndex is the statement that makes an index again.
func (p Place) MakeIndex(table string, columns []string) string {
	m, create := p.maker(table)
	for _, x := range m.Indexes() {
		if x.Table == table && slices.Equal(x.Columns, columns) {
			return p.Render(x.statement) + ";"
		}
	}
	list := strings.Join(columns, ", ")
	for _, parts := range innerIndex.FindAllStringSubmatch(create, -1) {
		if parts[2] == list {
			return "ALTER TABLE " + p.Table(table) + " ADD KEY " + p.Kind.Quote(parts[1]) + " (" + list + ");"
		}
	}
	panic("schema: " + table + " has no index on " + list)
}
