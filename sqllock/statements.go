package sqllock

import (
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// statements are what a Locker says to its database. The SQL stands in one file
// per database; {name} is an argument.
type statements struct {
	// acquire takes the row if it is free and nobody is at it, and answers the token;
	// acquireHold also says until when nobody else gets it, which has passed otherwise.
	acquire, acquireHold stmt
	// look reads who holds the row, and for how long, without a lock.
	look stmt
	// touch makes the row, free, if it is missing; touchTx does so in the caller's
	// transaction.
	touch, touchTx stmt
	// release frees the row if it is ours. releaseTx does so in the caller's
	// transaction.
	release, releaseTx stmt
	// extend makes the lease of one row ttl long from now.
	extend stmt
	// settle reads the token under which owner holds the row.
	settle stmt
	// guard pins the row in the caller's transaction and reads it; snapshot reads it as
	// the transaction sees it; guardWrite writes it, on servers that certify writes
	// only, or have one lock for all. Each that is not empty is run, in this order.
	guard, guardWrite, snapshot stmt
	// acquireTx takes the row for the caller's transaction, waiting for others at it;
	// tryTx does not wait. Where takeTx is not empty, they lock the row and read what
	// look reads; versionTx then reads it as the transaction sees it, and takeTx takes it.
	acquireTx, tryTx, takeTx, versionTx stmt
	// list reads all rows; force frees one whoever holds it; gc removes rows that have
	// long been free, at most gcBatch. Where gcRows is not nil, gc only reads their keys,
	// and gcRows makes the statement that removes those of them that are still so.
	list, force, gc stmt
	gcRows          func(rows []rowKey, age int64) (query string, args []any)

	// waiters reads the rows of those who wait; show makes the statement that writes
	// those of a batch, or moves them on, and hide the one that removes them. gcWaiters
	// and gcWaiterRows are gc and gcRows for those that have expired. They leave alone
	// what has a positive number: see waiter.
	waiters      stmt
	show, hide   func(batch []*waiter, ttl int64) (query string, args []any)
	gcWaiters    stmt
	gcWaiterRows func(rows []rowKey, age int64) (query string, args []any)

	// renew makes the statement that renews many, and renewed the one that reads what
	// has become of them.
	renew, renewed func(batch []renewal) (query string, args []any)
	// returning says that acquire and renew answer rows; else the token comes as
	// LAST_INSERT_ID, and renew only counts.
	returning bool
}

// rowKey is a row's primary key: of a lock, or of a waiter, where slot is the ticket.
type rowKey struct {
	name string
	slot int64
}

// gcBatch is how many rows one statement of GC removes.
const gcBatch = 1000

// stmt is a statement with the names of its arguments, in order.
type stmt struct {
	query string
	names []string
}

// values are the arguments of a statement, by name.
type values map[string]any

func (s stmt) args(v values) []any {
	args := make([]any, len(s.names))
	for i, n := range s.names {
		args[i] = v[n]
	}
	return args
}

// compile turns {name} into what the database's drivers want.
func compile(kind sqldb.Kind, text string) stmt {
	var b strings.Builder
	var s stmt
	numbers := map[string]int{}
	for {
		open := strings.IndexByte(text, '{')
		if open < 0 {
			break
		}
		end := strings.IndexByte(text, '}')
		name := text[open+1 : end]
		b.WriteString(text[:open])
		text = text[end+1:]
		if kind.InnoDB() {
			s.names = append(s.names, name)
			b.WriteByte('?')
			continue
		}
		n, ok := numbers[name]
		if !ok {
			s.names = append(s.names, name)
			n = len(s.names)
			numbers[name] = n
		}
		mark := "$"
		if kind == sqldb.SQLite {
			mark = "?"
		}
		b.WriteString(mark + strconv.Itoa(n))
	}
	b.WriteString(text)
	s.query = b.String()
	return s
}

func statementsFor(db *sqldb.DB, replicated bool) statements {
	switch db.Kind() {
	case sqldb.Postgres:
		return postgres(db.Table("locks"), db.Table("tickets"))
	case sqldb.SQLite:
		return sqlite(db.Table("locks"), db.Table("tickets"))
	default:
		return mysql(db.Kind(), db.Table("locks"), db.Table("tickets"), replicated)
	}
}
