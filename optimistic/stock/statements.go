package stock

import "github.com/sqlnative/locks/sqldb"

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
