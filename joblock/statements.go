package joblock

import (
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// statements are what Jobs say to their database. The SQL stands in one file per
// database; {name} is an argument. All that change a job's row and a run's do so in
// this order, so they cannot deadlock.
type statements struct {
	// make makes the job's row, if it is missing.
	make stmt
	// state reads the job's row: disabled, note, id and token of the last run, its start,
	// whether the job is due, from when on it is, how many microseconds it is still to
	// rest, and host and pid of the last run.
	state stmt
	// start notes a start in the job's row, if the job is on, due and rested, and no
	// run had a token as large as this one.
	start stmt
	// insert makes the row of the run that start has noted; abandon marks the one before.
	insert, abandon stmt
	// beat makes the lease of a run ttl long from now.
	beat stmt
	// endJob notes the end of a run in the job's row, if no other run has started since;
	// endRun does so in the run's row. Both only if there is none yet, or it is {was}.
	endJob, endRun stmt
	// find counts the runs with an id: one or none.
	find stmt
	// disable and enable.
	disable, enable stmt

	// runs reads the history, with $where for conditions (each begins with AND) and
	// $limit; the conditions are ofJob, ofOutcome and notOlds.
	runs                      string
	ofJob, ofOutcome, notOlds string
	// nextJob reads the name of the next job that has runs; old reads the ids of the runs
	// of a job that are to be pruned, the oldest first, at most pruneBatch.
	nextJob, old stmt
	// table is the table of runs.
	table string
}

// pruneBatch is how many runs one statement of Prune removes.
const pruneBatch = 500

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
func compile(kind sqldb.Kind, text string) (s stmt) {
	var b strings.Builder
	numbers := map[string]int{}
	for {
		before, rest, more := strings.Cut(text, "{")
		b.WriteString(before)
		if !more {
			s.query = b.String()
			return s
		}
		var name string
		name, text, _ = strings.Cut(rest, "}")
		n, known := numbers[name]
		if !known || kind.InnoDB() {
			s.names = append(s.names, name)
			n = len(s.names)
			numbers[name] = n
		}
		switch {
		case kind.InnoDB():
			b.WriteByte('?')
		case kind == sqldb.SQLite:
			b.WriteString("?" + strconv.Itoa(n))
		default:
			b.WriteString("$" + strconv.Itoa(n))
		}
	}
}

func statementsFor(db *sqldb.DB) statements {
	jobs, runs := db.Table("jobs"), db.Table("job_runs")
	switch db.Kind() {
	case sqldb.Postgres:
		return postgres(jobs, runs)
	case sqldb.SQLite:
		return sqlite(jobs, runs)
	default:
		return mysql(db.Kind(), jobs, runs)
	}
}
