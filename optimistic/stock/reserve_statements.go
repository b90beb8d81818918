package stock

import (
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// holdStatements are what a Stock says to its database about reservations. The SQL
// stands in reserve_postgres.go, reserve_mysql.go and reserve_sqlite.go.
//
// Who changes anything of a reservation has locked its row first, whether it
// confirms, cancels or gives back a single line. So, under that lock:
//
//   - state 'held' and no settled_at: all of its lines are open;
//   - state 'held' and settled_at: it has expired, and some lines were given back
//     already, by takes that found too little. Nothing makes it live again, not even
//     a clock that is set back;
//   - any other state: it is settled, and no line is open.
//
// The clock is always the database's, and that of the statement, never of the
// transaction. On MySQL and MariaDB a statement's clock stops before it waits for a
// row lock; so a statement that may wait only locks, and the next one decides.
type holdStatements struct {
	// tables counts the two tables of reservations that are there, and that this user
	// may use. It has no arguments, so that it can be part of another statement.
	tables string
	// lookAsking looks at a row of the stock, and asks tables along.
	lookAsking statement
	// hasExpired is 1 if there are lines of the row, of a statement that reads the row,
	// whose time has passed, and else 0: what lookExpired asks along.
	hasExpired string
	// key makes an expression: the row's key as text, as the database has it, found by
	// the id that stands in a placeholder.
	key func(hole string) string
	// insert makes a reservation that has expired: id, owner, note. remove takes it back
	// in the transaction that has made it: id, owner. start begins its time:
	// microseconds, id. expires reads when it expires. insertLines makes the lines, of four arguments each: reservation, key, n,
	// reservation.
	insert, remove, start, expires string
	insertLines                    func(lines int) string
	// arbitrate makes a row with an id: a duplicate says that it is there. id, owner.
	arbitrate string

	// lock locks a reservation and reads its state: id, owner. If it finds none, level
	// asks whether that was an old snapshot's answer; empty where that cannot be.
	lock, level string
	// settle takes a reservation to its end, if it is open and has not expired: state,
	// id, owner.
	settle string
	// linesOf reads the keys of the lines of reservations, and if they are this stock's.
	// linesNow does so if they cannot be seen, since they are younger than the
	// transaction's snapshot; empty where that cannot be.
	linesOf, linesNow func(reservations int) string
	// open reads those of some lines that are open, as they are now; close closes
	// them. Two arguments for each line: reservation, key.
	open, close func(lines int) string

	// lookExpired looks at a row of the stock, and if the time of a line of it has
	// passed. expiredFor reads these lines: id.
	lookExpired statement
	expiredFor  string
	// expiredAll reads the reservations of the stock whose time has passed, oldest
	// first, and expiredNext those behind one: its expires_at and id.
	expiredAll, expiredNext string
	// lockExpired locks those of some reservations that have expired, in the order of
	// their ids. If it does not wait, those that somebody is at are left out.
	lockExpired func(reservations int, wait bool) string
	// stillOpen reads which of some reservations have open lines.
	stillOpen func(reservations int) string
	// expire ends some reservations; begin says that some have been begun upon.
	expire, begin func(reservations int) string
}

// holdNames are the names in the statements, quoted, and what the catalog is asked
// for, as literals.
type holdNames struct {
	quoted
	reservations, lines  string
	schema, catalogNames string
	stock                string // which stock it is: see identity
}

func (n holdNames) compile(text string) string {
	return strings.NewReplacer("$R", n.reservations, "$L", n.lines, "$T", n.table, "$id", n.id,
		"$schema", n.schema, "$names", n.catalogNames, "$stock", n.stock).Replace(text)
}

func holdStatementsFor(db *sqldb.DB, name string, q quoted) holdStatements {
	literal := func(name string) string {
		if db.Kind().InnoDB() {
			name = strings.ReplaceAll(name, `\`, `\\`)
		}
		return "'" + strings.ReplaceAll(name, "'", "''") + "'"
	}
	n := holdNames{
		q, db.Table("reservations"), db.Table("reservation_lines"),
		literal(db.Schema()), literal(db.TablePrefix()+"reservations") + ", " + literal(db.TablePrefix()+"reservation_lines"),
		identity(db.Kind(), name, q),
	}
	switch db.Kind() {
	case sqldb.Postgres:
		return postgresHolds(n)
	case sqldb.SQLite:
		return sqliteHolds(n)
	default:
		return mysqlHolds(n)
	}
}

// identity is an expression for the name by which the tables of sqllock know a stock
// table, which was given by name: schema and table, however it was found. So the same
// name in two schemas is two stocks, whatever search_path finds, and t_bonus and
// shop.t_bonus are one.
func identity(kind sqldb.Kind, name string, q quoted) string {
	switch kind {
	case sqldb.Postgres:
		return `(SELECT (n.nspname || '.' || c.relname) COLLATE "C" FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = '` +
			q.table + `'::regclass)`
	case sqldb.SQLite:
		if !strings.Contains(name, ".") {
			name = "main." + name
		}
		return "'" + strings.ToLower(name) + "'"
	}
	of := "'" + name + "'"
	if !strings.Contains(name, ".") {
		of = "CONCAT(DATABASE(), '." + name + "')"
	}
	return "CAST(IF(@@lower_case_table_names = 0, " + of + ", LOWER(" + of + ")) AS BINARY)"
}

// holes makes n placeholders from the first on, between commas.
func holes(kind sqldb.Kind, first, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(hole(kind, first+i))
	}
	return b.String()
}

// hole is the placeholder of the i-th argument.
func hole(kind sqldb.Kind, i int) string {
	switch kind {
	case sqldb.Postgres:
		return "$" + strconv.Itoa(i)
	case sqldb.SQLite:
		return "?" + strconv.Itoa(i)
	}
	return "?"
}

func unless(no bool, text string) string {
	if no {
		return ""
	}
	return text
}

// with is look, a statement that reads one row of the stock, with a number as a third
// column.
func with(look statement, q quoted, number string) statement {
	look.query = strings.Replace(look.query, " FROM "+q.table, ",\n("+number+") FROM "+q.table, 1)
	return look
}
