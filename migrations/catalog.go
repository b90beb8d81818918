package migrations

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/pressly/goose/v3/database"

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

// catalog reads what the database knows of tables.
type catalog struct {
	place schema.Place
	// each runs a query and calls f for each row.
	each func(ctx context.Context, f func(scan scanFunc) error, query string, args ...any) error
}

type scanFunc func(dest ...any) error

// catalogOf asks on any connection of the pool.
func catalogOf(db *sqldb.DB) catalog {
	return catalog{schema.PlaceOf(db), func(ctx context.Context, f func(scan scanFunc) error, query string, args ...any) error {
		rows, err := db.Query(ctx, query, args...)
		if err != nil {
			return err
		}
		return each(rows, f)
	}}
}

// catalogOn asks on a connection of goose's, or in its transaction.
func catalogOn(place schema.Place, conn database.DBTxConn) catalog {
	return catalog{place, func(ctx context.Context, f func(scan scanFunc) error, query string, args ...any) error {
		rows, err := conn.QueryContext(ctx, query, args...)
		if err != nil {
			return err
		}
		return each(rows, f)
	}}
}

func each(rows interface {
	Next() bool
	Scan(dest ...any) error
	Err() error
	Close() error
}, f func(scan scanFunc) error,
) error {
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		if err := f(rows.Scan); err != nil {
			return err
		}
	}
	return rows.Err()
}

// look reads the catalog for one table.
func (c catalog) look(ctx context.Context, table string) (l live, err error) {
	switch c.place.Kind {
	case sqldb.Postgres:
		l, err = c.lookPostgres(ctx, table)
	case sqldb.SQLite:
		l, err = c.lookSQLite(ctx, table)
	default:
		l, err = c.lookMySQL(ctx, table)
	}
	if err != nil {
		err = fmt.Errorf("reading the catalog for %s%s: %w", c.place.Prefix, table, err)
	}
	return l, err
}

const (
	pgTaken = `SELECT 1 FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = $1::text AND c.relname = $2::text
	AND NOT EXISTS (SELECT FROM pg_index i WHERE i.indexrelid = c.oid AND i.indrelid = to_regclass($3::text))`

	liteTaken = `SELECT 1 FROM main.sqlite_schema
WHERE lower(name) = lower(?1) AND NOT (type = 'index' AND lower(tbl_name) = lower(?2))`
)

// taken reports whether the name of an index belongs to anything but an index of
// its table.
func (c catalog) taken(ctx context.Context, x schema.Index) (taken bool, err error) {
	query, args := liteTaken, []any{c.place.Prefix + x.Name, c.place.Prefix + x.Table}
	if c.place.Kind == sqldb.Postgres {
		query, args = pgTaken, []any{c.place.Schema, c.place.Prefix + x.Name, c.place.Table(x.Table)}
	}
	err = c.each(ctx, func(scan scanFunc) error {
		taken = true
		return scan(new(int))
	}, query, args...)
	if err != nil {
		err = fmt.Errorf("reading the catalog for %s%s: %w", c.place.Prefix, x.Name, err)
	}
	return taken, err
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

func (c catalog) lookPostgres(ctx context.Context, table string) (l live, err error) {
	name := c.place.Table(table)
	var kind, persistence string
	err = c.each(ctx, func(scan scanFunc) error { l.exists = true; return scan(&kind, &persistence) }, pgTable, name)
	switch {
	case kind != "r" && kind != "p":
		l.fault, l.remedy = "it is no table", "drop it, and run sqllock-migrate up"
	case persistence == "u":
		l.fault, l.remedy = "it is UNLOGGED: a crash empties it", "ALTER TABLE "+name+" SET LOGGED"
	}
	if err != nil || !l.exists {
		return l, err
	}
	if err = l.readColumns(ctx, c, pgColumns, name); err != nil {
		return l, err
	}
	return l, l.readIndexes(ctx, c, pgIndexes, name)
}

const (
	myTable = `SELECT table_type, coalesce(engine, '') FROM information_schema.tables WHERE table_schema = ? AND table_name = ?`

	myColumns = `SELECT column_name, column_type, coalesce(collation_name, ''), is_nullable = 'YES', column_default IS NOT NULL OR extra LIKE '%auto_increment%'
FROM information_schema.columns WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position`

	myIndexes = `SELECT index_name = 'PRIMARY', group_concat(column_name ORDER BY seq_in_index SEPARATOR ',')
FROM information_schema.statistics WHERE table_schema = ? AND table_name = ? GROUP BY index_name`
)

var displayWidth = regexp.MustCompile(`int\(\d+\)`)

func (c catalog) lookMySQL(ctx context.Context, table string) (l live, err error) {
	name := []any{c.place.Schema, c.place.Prefix + table}
	var typ, engine string
	err = c.each(ctx, func(scan scanFunc) error { l.exists = true; return scan(&typ, &engine) }, myTable, name...)
	switch {
	case typ != "BASE TABLE":
		l.fault, l.remedy = "it is no table", "drop it, and run sqllock-migrate up"
	case !strings.EqualFold(engine, "InnoDB"):
		l.fault = "its engine is " + engine + ", which has no transactions and no row locks"
		l.remedy = "ALTER TABLE " + c.place.Table(table) + " ENGINE = InnoDB"
	}
	if err != nil || !l.exists {
		return l, err
	}
	if err = l.readColumns(ctx, c, myColumns, name...); err != nil {
		return l, err
	}
	for i, column := range l.columns {
		// bigint(20), int(11), tinyint(1): a display width, which MySQL 8 has dropped.
		l.columns[i].typ = displayWidth.ReplaceAllString(column.typ, "int")
	}
	return l, l.readIndexes(ctx, c, myIndexes, name...)
}

const (
	liteTable = `SELECT type, strict FROM pragma_table_list WHERE schema = 'main' AND lower(name) = lower(?1)`

	// A column's collation shows in an index only: all that have to be compared by
	// bytes are in the key or in an index, or are never compared with a column.
	liteColumns = `SELECT c.name, c.type, coalesce((SELECT x.coll FROM pragma_index_list(?1, 'main') i, pragma_index_xinfo(i.name, 'main') x
	WHERE x.name = c.name AND x.coll <> 'BINARY' LIMIT 1), 'BINARY'), c."notnull" = 0, c.dflt_value IS NOT NULL
FROM pragma_table_xinfo(?1, 'main') c ORDER BY c.cid`

	liteIndexes = `SELECT i.origin = 'pk', (SELECT group_concat(x.name, ',') FROM pragma_index_xinfo(i.name, 'main') x WHERE x.key)
FROM pragma_index_list(?1, 'main') i`

	liteKey = `SELECT name FROM pragma_table_xinfo(?1, 'main') WHERE pk > 0 ORDER BY pk`
)

func (c catalog) lookSQLite(ctx context.Context, table string) (l live, err error) {
	name := c.place.Prefix + table
	var typ string
	var strict bool
	err = c.each(ctx, func(scan scanFunc) error { l.exists = true; return scan(&typ, &strict) }, liteTable, name)
	switch {
	case typ != "table":
		l.fault, l.remedy = "it is no table", "drop it, and run sqllock-migrate up"
	case !strict:
		l.fault, l.remedy = "it is not STRICT: a text in a column of numbers compares above every number", "make it again as \"sqllock-migrate sql sqlite\" prints it"
	}
	if err != nil || !l.exists {
		return l, err
	}
	if err = l.readColumns(ctx, c, liteColumns, name); err != nil {
		return l, err
	}
	if err = l.readIndexes(ctx, c, liteIndexes, name); err != nil {
		return l, err
	}
	l.key = nil // an INTEGER PRIMARY KEY has no index
	return l, c.each(ctx, func(scan scanFunc) error {
		var column string
		err := scan(&column)
		l.key = append(l.key, column)
		return err
	}, liteKey, name)
}

func (l *live) readColumns(ctx context.Context, c catalog, query string, args ...any) error {
	return c.each(ctx, func(scan scanFunc) error {
		var column liveColumn
		err := scan(&column.name, &column.typ, &column.collation, &column.null, &column.def)
		l.columns = append(l.columns, column)
		return err
	}, query, args...)
}

func (l *live) readIndexes(ctx context.Context, c catalog, query string, args ...any) error {
	return c.each(ctx, func(scan scanFunc) error {
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

// tablesOf are the tables that a version of the schema has.
func tablesOf(kind sqldb.Kind, s schema.State) []schema.Table {
	applied := map[string]bool{schema.VersionTable: len(s.Applied) > 0}
	for _, m := range schema.Migrations(kind) {
		for _, name := range m.Tables() {
			applied[name] = s.Has(m.Version)
		}
	}
	var tables []schema.Table
	for _, t := range schema.Tables(kind) {
		if applied[t.Name] {
			tables = append(tables, t)
		}
	}
	return tables
}
