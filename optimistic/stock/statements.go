package stock

import (
	"strings"
	"sync"

	"github.com/sqlnative/locks/sqldb"
)

// statements are what a Stock says to its database. The SQL stands in one file per
// database.
type statements struct {
	// take and put run in autocommit, takeTx and putTx in the caller's transaction.
	take, takeTx, put, putTx statement
	// look reads the count and what is wrong with the row ("" if nothing is). lookTx
	// does so after a refusal in a caller's transaction, and reads the current state,
	// whatever the transaction's snapshot shows, or says that it is the snapshot;
	// lookCurrent then reads the current state.
	look, lookTx, lookCurrent statement
	several
}

// several are the statements over the rows of several lines. How many rows there
// are is part of the text.
type several struct {
	// orderLines sorts ids as the column compares them, and answers their positions;
	// nil if lockLines locks in that order by itself.
	orderLines func(rows int) manyStatement
	// grab, if not empty, takes the write lock before anything is read, in a caller's
	// transaction.
	grab string
	// lockLines locks the rows, each of lockAtOnce ids at most, and answers for each
	// the positions of its ids (with commas between them), the row's own id, the
	// count, and what is wrong with the row ("" if nothing is).
	lockLines  func(rows int) manyStatement
	lockAtOnce int
	// lockEach, if not nil, does so for those that lockLines has not found.
	lockEach func(rows int) manyStatement
	// takeLines and putLines change the locked rows, all of them.
	takeLines, putLines func(rows int) manyStatement
}

// manyStatement is a statement over several rows, with what makes its arguments.
type manyStatement struct {
	query string
	args  func(rows []*wanted) []any
}

// maxRemembered bounds for how many rows a statement's text is kept.
const maxRemembered = 16

// remembered keeps the texts for few rows, which most orders have.
func remembered(write func(rows int) manyStatement) func(rows int) manyStatement {
	var texts [maxRemembered + 1]func() manyStatement
	for n := range texts {
		texts[n] = sync.OnceValue(func() manyStatement { return write(n) })
	}
	return func(rows int) manyStatement {
		if rows < len(texts) {
			return texts[rows]()
		}
		return write(rows)
	}
}

// idArgs are the ids.
func idArgs(rows []*wanted) []any {
	args := make([]any, len(rows))
	for i, r := range rows {
		args[i] = r.id
	}
	return args
}

// idAndSumArgs are the ids, and then what is wanted of each.
func idAndSumArgs(rows []*wanted) []any {
	args := idArgs(rows)
	for _, r := range rows {
		args = append(args, r.n)
	}
	return args
}

// list is text for every number from 0 to n-1, with a separator between them.
func list(n int, separator string, text func(i int) string) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(separator)
		}
		b.WriteString(text(i))
	}
	return b.String()
}

// snapshot is what lookTx tells in place of a problem.
const snapshot = "snapshot"

// statement is a statement with the order of its arguments.
type statement struct {
	query     string
	order     string // one letter per placeholder: i for the id, n for the number
	returning bool
}

func (s statement) args(id any, n int64) []any {
	args := make([]any, len(s.order))
	for i, c := range s.order {
		if c == 'i' {
			args[i] = id
		} else {
			args[i] = n
		}
	}
	return args
}

// quoted are the names of a Table, quoted. version is empty if there is none.
type quoted struct{ table, id, count, version string }

// ifVersion is text if the table has a version.
func (q quoted) ifVersion(text string) string {
	if q.version == "" {
		return ""
	}
	return text
}

func statementsFor(kind sqldb.Kind, q quoted) statements {
	switch kind {
	case sqldb.Postgres:
		return postgres(q)
	case sqldb.SQLite:
		return sqlite(q)
	default:
		return mysql(kind, q)
	}
}
