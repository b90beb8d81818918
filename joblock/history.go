package joblock

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// Run is one run in the history. Times are by the database's clock.
type Run struct {
	ID    string `json:"id"`
	Job   string `json:"job"`
	Token int64  `json:"token,omitempty"`
	Owner string `json:"owner,omitempty"`
	// Host, Address and PID say where it ran.
	Host    string `json:"host,omitempty"`
	Address string `json:"address,omitempty"`
	PID     int    `json:"pid,omitempty"`
	// Started; and Finished, nil while it runs and if that is not known.
	Started  time.Time  `json:"started"`
	Finished *time.Time `json:"finished,omitempty"`
	Outcome  Outcome    `json:"outcome"`
	// ExitCode is that of the error's method ExitCode() int, as [os/exec.ExitError] has
	// it.
	ExitCode *int `json:"exit_code,omitempty"`
	// Error is the text of the error, or the panic and its stack, at most 4,000
	// characters of it.
	Error string `json:"error,omitempty"`
	Note  string `json:"note,omitempty"`
}

// Filter says which runs are wanted. Its zero value is the last 100 of all jobs.
type Filter struct {
	// Job is a job's name; empty: all.
	Job string
	// Outcome is how they ended; empty: any.
	Outcome Outcome
	// Within is how long ago they may have started; 0: ever.
	Within time.Duration
	// Limit is how many; 0: 100. At most 10,000.
	Limit int
}

// maxLimit bounds what is held in memory.
const maxLimit = 10000

// History returns runs, the latest first. A run that is marked as running, and whose
// process has not said for a TTL that it lives, reads as [Abandoned].
func (j *Jobs) History(ctx context.Context, f Filter) ([]Run, error) {
	switch {
	case f.Job != "" && checkName(f.Job) != nil:
		return nil, checkName(f.Job)
	case f.Limit < 0 || f.Limit > maxLimit:
		return nil, fmt.Errorf("%w: History: the limit is %d; it can be 0 to %d", lock.ErrInvalid, f.Limit, maxLimit)
	case f.Within < 0 || f.Within > maximum:
		return nil, fmt.Errorf("%w: History: Within is %v; it can be 0 to %v", lock.ErrInvalid, f.Within, maximum)
	}
	switch f.Outcome {
	case "", Running, OK, Failed, TimedOut, Lost, Abandoned:
	default:
		return nil, fmt.Errorf("%w: History: there is no outcome %q", lock.ErrInvalid, string(f.Outcome))
	}
	if f.Limit == 0 {
		f.Limit = 100
	}
	where := ""
	for _, c := range []struct {
		given bool
		text  string
	}{{f.Job != "", j.sql.ofJob}, {f.Outcome != "", j.sql.ofOutcome}, {f.Within > 0, j.sql.notOlds}} {
		if c.given {
			where += c.text
		}
	}
	st := compile(j.db.Kind(), strings.NewReplacer("$where", where, "$limit", strconv.Itoa(f.Limit)).Replace(j.sql.runs))
	v := values{"job": j.text(f.Job), "outcome": string(f.Outcome), "age": f.Within.Microseconds()}
	rows, err := j.db.Query(ctx, st.query, st.args(v)...)
	if err != nil {
		return nil, explain(f.Job, err)
	}
	defer func() { _ = rows.Close() }()
	var all []Run
	for rows.Next() {
		var r Run
		var owner, host, address, text, note *string
		var pid *int
		var outcome string
		if err := rows.Scan(&r.ID, &r.Job, &r.Token, &owner, &host, &address, &pid, &r.Started, &r.Finished, &outcome, &r.ExitCode, &text, &note); err != nil {
			return nil, explain(f.Job, err)
		}
		r.Owner, r.Host, r.Address, r.Error, r.Note = or(owner), or(host), or(address), or(text), or(note)
		r.PID, r.Outcome = or(pid), Outcome(outcome)
		all = append(all, r)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return nil, explain(f.Job, err)
	}
	return all, nil
}

// or is what p points to, or nothing.
func or[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// Prune removes the runs that have started longer than keep ago, by the database's
// clock, but for those that still run, and returns how many. It removes 500 at a time,
// each batch in a statement of its own. When a job last ran, and so when it is due,
// stands in the job's row, and is not touched.
func (j *Jobs) Prune(ctx context.Context, keep time.Duration) (removed int64, err error) {
	if keep < 0 || keep > maximum {
		return 0, fmt.Errorf("%w: Prune: keep is %v; it can be 0 to %v", lock.ErrInvalid, keep, maximum)
	}
	// Job by job: the index is on job and start.
	job := ""
	for {
		var next string
		err := j.db.QueryRow(ctx, j.sql.nextJob.query, j.sql.nextJob.args(values{"job": j.textOrEmpty(job)})...).Scan(&next)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return removed, nil
		case err != nil:
			return removed, explain(job, err)
		}
		job = next
		n, err := j.pruneJob(ctx, job, keep)
		removed += n
		if err != nil {
			return removed, explain(job, err)
		}
	}
}

// pruneJob is Prune for one job.
func (j *Jobs) pruneJob(ctx context.Context, job string, keep time.Duration) (removed int64, err error) {
	for {
		ids, err := j.oldRuns(ctx, job, keep)
		if err != nil || len(ids) == 0 {
			return removed, err
		}
		// By their keys, so that no row of another run is locked.
		st := compile(j.db.Kind(), "DELETE FROM "+j.sql.table+" WHERE id IN ("+marks(j.db.Kind(), len(ids))+")")
		var c *sqldb.Changed
		err = sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) (err error) {
			c, err = j.db.Change(ctx, sqldb.Change{Op: "prune the runs of job " + job, Query: st.query, Args: ids})
			return err
		})
		if err != nil {
			return removed, err
		}
		removed += c.RowsAffected
		if len(ids) < pruneBatch {
			return removed, nil
		}
	}
}

// oldRuns reads the ids of the next batch.
func (j *Jobs) oldRuns(ctx context.Context, job string, keep time.Duration) (ids []any, err error) {
	rows, err := j.db.Query(ctx, j.sql.old.query, j.sql.old.args(values{"job": j.text(job), "age": keep.Microseconds()})...)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id string
		if err := rows.Scan(&id); err != nil {
			return nil, err
		}
		ids = append(ids, j.text(id))
	}
	return ids, errors.Join(rows.Err(), rows.Close())
}

// marks are n placeholders, with a cast where the server does not know the type.
func marks(kind sqldb.Kind, n int) string {
	var b strings.Builder
	for i := range n {
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "{%d}", i)
		if kind == sqldb.Postgres {
			b.WriteString("::text")
		}
	}
	return b.String()
}

// textOrEmpty is text, but for an empty one, before which no name comes.
func (j *Jobs) textOrEmpty(s string) any {
	if s == "" && j.db.Kind().InnoDB() {
		return []byte{}
	}
	if s == "" {
		return ""
	}
	return j.text(s)
}
