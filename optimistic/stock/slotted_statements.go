package stock

import (
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// slotStatements are what a [Slotted] says to its database. The SQL stands in one file
// per database.
type slotStatements struct {
	take, put slotChange
	// rows reads all slots of an id, in their order, without a lock: slot, count,
	// version, and what is wrong with the row ("" if nothing is). rowsTx does so in a
	// caller's transaction on PostgreSQL, or says that it is a snapshot, and rowsCurrent
	// then reads the current state, or fails.
	rows, rowsTx, rowsCurrent slotStatement
	// sum reads all of an id, and what is wrong with it; nothing if there is none.
	sum statement
	// last reads the highest slot.
	last slotStatement
	// header locks slot 0, and lock then locks the slots of an id, in their order, those
	// from r on, lockAtOnce at most, and reads what rows does. On MySQL and MariaDB a
	// slot that is not there ends it.
	header     slotStatement
	lock       slotStatement
	lockAtOnce int
	// grab, if not empty, takes the write lock before anything is read, in a caller's
	// transaction.
	grab string
	// set writes counts into slots, and raises their versions; insert makes slots, with
	// the version of slot 0; remove deletes them. They are in the JSON of slotList.
	set, insert, remove slotStatement
}

// slotChange are the statements of a take, or a put.
type slotChange struct {
	// free changes one slot that is locked by nobody else and lets it through: the first
	// of those from r on, and if there is none, of those before. It waits for no slot.
	free slotStatement
	// first, if not nil, changes slot r if it lets it through. If somebody else has
	// locked it, that is a lock timeout, at once.
	first *slotStatement
	// one changes slot r if it lets it through, and waits for whoever has locked it.
	one slotStatement
}

// slotStatement is a statement with the order of its arguments: i for the id, n for the
// number, r for a slot, J for a slotList.
type slotStatement struct{ query, order string }

func (s slotStatement) args(id any, n, slot int64, list string) []any {
	args := make([]any, len(s.order))
	for i, c := range s.order {
		switch c {
		case 'i':
			args[i] = id
		case 'n':
			args[i] = n
		case 'r':
			args[i] = slot
		default: // 'J'
			args[i] = list
		}
	}
	return args
}

// slotRow is one slot, as it was read, or as it is to be.
type slotRow struct{ slot, count, version int64 }

// slotList writes slots as JSON, so that the statement's text is the same whatever their
// number: slot, n (the count), v (by how much the version goes up).
func slotList(rows []slotRow) string {
	b := make([]byte, 0, 40*len(rows)+2)
	b = append(b, '[')
	for i, r := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(append(b, `{"slot":`...), r.slot, 10)
		b = strconv.AppendInt(append(b, `,"n":`...), r.count, 10)
		b = strconv.AppendInt(append(b, `,"v":`...), r.version, 10)
		b = append(b, '}')
	}
	return string(append(b, ']'))
}

// slotNames are the names of a table with slots, quoted.
type slotNames struct {
	quoted
	slot string
}

// replacer puts the names, and what else is given, into a text. $version+ raises the
// version, if there is one.
func (q slotNames) replacer(more ...string) *strings.Replacer {
	return strings.NewReplacer(append(more, "$table", q.table, "$id", q.id, "$slot", q.slot, "$count", q.count,
		"$version", q.ifVersion(q.version))...)
}

// notContiguous is what is wrong with slots whose numbers have gaps.
const notContiguous = "its slots are not numbered from 0 on without gaps"

func slotStatementsFor(kind sqldb.Kind, q slotNames) slotStatements {
	switch kind {
	case sqldb.Postgres:
		return postgresSlots(q)
	case sqldb.SQLite:
		return sqliteSlots(q)
	default:
		return mysqlSlots(kind, q)
	}
}
