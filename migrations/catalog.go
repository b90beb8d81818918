package migrations

import (
	"context"
	"regexp"
	"strings"

	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/sqldb"
)

// live is a table as the database's catalog describes it.
type live struct {
	exists  bool
	fault   string // what is wrong with the table as a whole
	remedy  string
	columns []liveColumn
	key     []string
	indexes [][]string
}

type liveColumn struct {
	name, typ, collation string
	null, def            bool
}

func (l live) column(name string) (liveColumn, bool) {
	for _, c := range l.columns {
		if c.name == name {
			return c, true
		}
	}
	return liveColumn{}, false
}

// look reads the catalog for one table.
func look(ctx context.Context, db *sqldb.DB, table string) (live, error) {
	switch db.Kind() {
	case sqldb.Postgres:
		return lookPostgres(ctx, db, table)
	case sqldb.SQLite:
		return lookSQLite(ctx, db, table)
	}
	return lookMySQL(ctx, db, table)
}

const (
	// pg_class and friends rather than information_schema, which hides what the user
	// has no rights on.
	pgTable = `SELECT relkind::text, relpersistence::text FROM pg_class WHERE oid = to_regclass($1::text)`

	pgColumns = `SELECT a.attname::text, format_type(a.atttypid, a.atttypmod), coalesce(c.collname::text, ''),
	NOT a.attnotnull, a.atthasdef OR a.attidentity <> ''
FROM pg_attribute a LEFT JOIN pg_collation c ON c.oid = a.attcollation
WHERE a.attrelid = to_regclass($1::text) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum`

	pgIndexes = `SELECT i.indisprimary, array_to_string(ARRAY(
	SELECT a.attname::text FROM unnest(i.indkey::int2[]) WITH ORDINALITY k(n, o)
	JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.n ORDER BY k.o), ',')
FROM pg_index i WHERE i.indrelid = to_regclass($1::text) AND i.indisvalid`
)

func lookPostgres(ctx context.Context, db *sqldb.DB, table string) (l live, err error) {
	name := db.Table(table)
	var kind, persistence string
	err = each(ctx, db, func(scan scanFunc) error { l.exists = true; return scan(&kind, &persistence) }, pgTable, name)
	switch {
	case kind != "r" && kind != "p":
		l.fault, l.remedy = "it is no table", "drop it, and run sqllock-migrate up"
	case persistence == "u":
		l.fault, l.remedy = "it is UNLOGGED: a crash empties it", "ALTER TABLE "+name+" SET LOGGED"
	}
	if err != nil || !l.exists {
		return l, err
	}
	if err = l.readColumns(ctx, db, pgColumns, name); err != nil {
		return l, err
	}
	return l, l.readIndexes(ctx, db, pgIndexes, name)
}

const (
	myTable = `SELECT table_type, coalesce(engine, '') FROM information_schema.tables WHERE table_schema = ? AND table_name = ?`

	myColumns = `SELECT column_name, column_type, coalesce(collation_name, ''), is_nullable = 'YES', column_default IS NOT NULL OR extra LIKE '%auto_increment%'
FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position`

	myIndexes = `SELECT index_name = 'PRIMARY', group_concat(column_name ORDER BY seq_in_index SEPARATOR ',')
FROM information_schema.statistics WHERE table_schema = ? AND table_name = ? GROUP BY index_name`
)

var displayWidth = regexp.MustCompile(`int\(\d+\)`)

func lookMySQL(ctx context.Context, db *sqldb.DB, table string) (l live, err error) {
	name := []any{db.Schema(), db.TablePrefix() + table}
	var typ, engine string
	err = each(ctx, db, func(scan scanFunc) error { l.exists = true; return scan(&typ, &engine) }, myTable, name...)
	switch {
	case typ != "BASE TABLE":
		l.fault, l.remedy = "it is no table", "drop it, and run sqllock-migrate up"
	case !strings.EqualFold(engine, "InnoDB"):
		l.fault = "its engine is " + engine + ", which has no transactions and no row locks"
		l.remedy = "ALTER TABLE " + db.Table(table) + " ENGINE = InnoDB"
	}
	if err != nil || !l.exists {
		return l, err
	}
	if err = l.readColumns(ctx, db, myColumns, name...); err != nil {
		return l, err
	}
	for i, c := range l.columns {
		// bigint(20), int(11), tinyint(1): a display width, which MySQL 8 has dropped.
		l.columns[i].typ = displayWidth.ReplaceAllString(c.typ, "int")
	}
	return l, l.readIndexes(ctx, db, myIndexes, name...)
}

const (
	liteTable = `SELECT type, strict FROM pragma_table_list WHERE schema = 'main' AND name = ?`

	// A column's collation shows in an index only: all that have to be compared by
	// bytes are in the key or in an index, or are never compared with a column.
	liteColumns = `SELECT c.name, c.type, coalesce((SELECT x.coll FROM pragma_index_list(?1, 'main') i, pragma_index_xinfo(i.name, 'main') x
	WHERE x.name = c.name AND x.coll <> 'BINARY' LIMIT 1), 'BINARY'), c."notnull" = 0, c.dflt_value IS NOT NULL
FROM pragma_table_xinfo(?1, 'main') c ORDER BY c.cid`

	liteIndexes = `SELECT i.origin = 'pk', (SELECT group_concat(x.name, ',') FROM pragma_index_xinfo(i.name, 'main') x WHERE x.key)
FROM pragma_index_list(?1, 'main') i`

	liteKey = `SELECT name FROM pragma_table_xinfo(?1, 'main') WHERE pk > 0 ORDER BY pk`
)

func lookSQLite(ctx context.Context, db *sqldb.DB, table string) (l live, err error) {
	name := db.TablePrefix() + table
	var typ string
	var strict bool
	err = each(ctx, db, func(scan scanFunc) error { l.exists = true; return scan(&typ, &strict) }, liteTable, name)
	switch {
	case typ != "table":
		l.fault, l.remedy = "it is no table", "drop it, and run sqllock-migrate up"
	case !strict:
		l.fault, l.remedy = "it is not STRICT: a text in a column of numbers compares above every number", "make it again as \"sqllock-migrate sql sqlite\" prints it"
	}
	if err != nil || !l.exists {
		return l, err
	}
	if err = l.readColumns(ctx, db, liteColumns, name); err != nil {
		return l, err
	}
	if err = l.readIndexes(ctx, db, liteIndexes, name); err != nil {
		return l, err
	}
	l.key = nil // an INTEGER PRIMARY KEY has no index
	return l, each(ctx, db, func(scan scanFunc) error {
		var c string
		err := scan(&c)
		l.key = append(l.key, c)
		return err
	}, liteKey, name)
}

func (l *live) readColumns(ctx context.Context, db *sqldb.DB, query string, args ...any) error {
	return each(ctx, db, func(scan scanFunc) error {
		var c liveColumn
		err := scan(&c.name, &c.typ, &c.collation, &c.null, &c.def)
		l.columns = append(l.columns, c)
		return err
	}, query, args...)
}

func (l *live) readIndexes(ctx context.Context, db *sqldb.DB, query string, args ...any) error {
	return each(ctx, db, func(scan scanFunc) error {
		var primary bool
		var columns string
		err := scan(&primary, &columns)
		if primary {
			l.key = strings.Split(columns, ",")
		} else {
			l.indexes = append(l.indexes, strings.Split(columns, ","))
		}
		return err
	}, query, args...)
}

type scanFunc func(dest ...any) error

// each runs a query and calls f for each row.
func each(ctx context.Context, db *sqldb.DB, f func(scan scanFunc) error, query string, args ...any) error {
	rows, err := db.Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// tablesOf are the tables that a version of the schema has.
func tablesOf(kind sqldb.Kind, s schema.State) []schema.Table {
	applied := map[string]bool{schema.VersionTable: len(s.Applied) > 0}
	for _, m := range schema.Migrations(kind) {
		applied[m.Name] = s.Has(m.Version) // each makes the table of its name
	}
	var tables []schema.Table
	for _, t := range schema.Tables(kind) {
		if applied[t.Name] {
			tables = append(tables, t)
		}
	}
	return tables
}
