package joblock

import (
	"context"
	"crypto/rand"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// state is what the job's row says.
type state struct {
	disabled  bool
	note      *string
	lastRun   *string
	lastToken int64
	lastStart *time.Time
	due       bool
	next      *time.Time
	rest      int64 // microseconds, where the row keeps AtLeast
	host      *string
	pid       *int64
}

// skip says in res why the job is not to be run; false if it is.
func (s *state) skip(job Job, res *Result) bool {
	switch {
	case s.disabled:
		res.Disabled = true
		if s.note != nil {
			res.Note = *s.note
		}
	case s.rest > 0:
		res.Held = &lock.HeldError{Name: LockName(job.Name), Token: s.lastToken, Left: time.Duration(s.rest) * time.Microsecond}
		if s.lastStart != nil {
			res.Held.Since = *s.lastStart
		}
		if s.host != nil {
			res.Held.Holder.Host = *s.host
		}
		if s.pid != nil {
			res.Held.Holder.PID = int(*s.pid)
		}
	case !s.due:
		res.NotDue = true
		if s.next != nil {
			res.Next = *s.next
		}
	default:
		return false
	}
	return true
}

// asked are the arguments that say what is asked of the job's row.
func (j *Jobs) asked(job Job) values {
	v := values{"name": j.text(job.Name), "wait": job.wait().Microseconds(), "period": nil, "retry": int64(0), "hold": int64(0)}
	if job.Every > 0 {
		v["period"] = job.Every.Microseconds()
	}
	if job.RetryFailed {
		v["retry"] = int64(1)
	}
	if j.noHold.Load() {
		v["hold"] = job.AtLeast.Microseconds()
	}
	return v
}

// read reads the job's row.
func (j *Jobs) read(ctx context.Context, h sqldb.Handle, v values) (s state, err error) {
	st := j.sql.state
	err = h.QueryRow(ctx, st.query, st.args(v)...).Scan(&s.disabled, &s.note, &s.lastRun, &s.lastToken, &s.lastStart, &s.due, &s.next, &s.rest, &s.host, &s.pid)
	return s, err
}

// look reads the job's row, and makes it if it is missing.
func (j *Jobs) look(ctx context.Context, job Job) (s state, err error) {
	v := j.asked(job)
	err = sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) (err error) {
		s, err = j.read(ctx, j.db, v)
		return err
	})
	switch {
	case err == nil:
		return s, nil
	case errors.Is(err, sql.ErrNoRows):
		return state{due: true}, j.make(ctx, job.Name)
	}
	return s, explain(job.Name, err)
}

// run is a run that has been started.
type run struct {
	j   *Jobs
	job Job
	id  string
	l   *lock.Lock

	text string // what its record says of how it ended
}

// startTries is how often a start is tried that was refused for a reason which, when it
// was asked for, was no longer there.
const startTries = 10

// start notes the start, if the job's row allows it; nil if not, and res says why.
//
// The interleaving that the token closes: A gets the lock and is stopped; its lease
// ends; B gets the lock, runs the job and releases it; A goes on. A's token is
// smaller than B's, and A is refused also where there is no period.
func (j *Jobs) start(ctx context.Context, job Job, l *lock.Lock, last *string, res *Result) (*run, error) {
	r := &run{j: j, job: job, id: rand.Text(), l: l}
	v := j.asked(job)
	v["id"], v["token"], v["owner"] = j.text(r.id), l.Token(), j.text(l.Owner())
	v["host"], v["address"], v["pid"] = orNull(j.host), orNull(j.address), int64(os.Getpid())
	v["ttl"], v["note"] = job.TTL.Microseconds(), orNull(job.Note)
	var skipped Result
	started := false
	err := sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
		return j.db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) (err error) {
			skipped = Result{}
			started, err = j.startIn(ctx, tx, job, l.Token(), v, &skipped)
			if err != nil || !started {
				return err
			}
			if _, err := tx.Exec(ctx, j.sql.insert.query, j.sql.insert.args(v)...); err != nil {
				return err
			}
			if last == nil {
				return nil
			}
			_, err = tx.Exec(ctx, j.sql.abandon.query, j.sql.abandon.args(values{"last": j.text(*last)})...)
			return err
		})
	})
	switch {
	case err != nil && sqldb.Uncertain(err) && started && j.found(ctx, r.id):
		return r, nil
	case err != nil:
		return nil, explain(job.Name, err)
	case !started:
		*res = skipped
		return nil, nil
	}
	return r, nil
}

// startIn notes the start in the job's row, or says why it is not to be.
func (j *Jobs) startIn(ctx context.Context, tx *sqldb.Tx, job Job, token int64, v values, res *Result) (bool, error) {
	for range startTries {
		done, err := tx.Exec(ctx, j.sql.start.query, j.sql.start.args(v)...)
		if err != nil || done.RowsAffected > 0 {
			return err == nil, err
		}
		s, err := j.read(ctx, tx, v)
		switch {
		case errors.Is(err, sql.ErrNoRows):
			return false, errors.New("somebody has removed the row of the job")
		case err != nil:
			return false, err
		case s.skip(job, res):
			return false, nil
		case token > 0 && s.lastToken >= token:
			return false, &lock.LostError{Name: LockName(job.Name), Token: token, Reason: fmt.Sprintf("the job has been started under the token %d before it could be started under this one", s.lastToken)}
		} // else the time has come meanwhile
	}
	return false, errors.New("the row of the job refuses the start, and then says that the job can be started")
}

// found reports whether a start without an answer was written.
func (j *Jobs) found(ctx context.Context, id string) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqldb.Bound)
	defer cancel()
	var n int
	st := j.sql.find
	return j.db.QueryRow(ctx, st.query, st.args(values{"id": j.text(id)})...).Scan(&n) == nil && n == 1
}

// beat renews the lease of the run's row, by which others see that it lives, until stop
// is called, or the lock is lost. What fails is tried again a third of a TTL later.
func (r *run) beat(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	st := r.j.sql.beat
	c := sqldb.Change{Op: "beat of job " + r.job.Name, Query: st.query, Args: st.args(values{"id": r.j.text(r.id), "ttl": r.job.TTL.Microseconds()})}
	go func() {
		defer close(done)
		tick := time.NewTicker(r.job.TTL / 3)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				_, _ = r.j.db.Change(ctx, c)
			case <-r.l.Done():
				return
			case <-ctx.Done():
				return
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// end writes how the run ended, detached from ctx and bounded. The statements carry
// the run's id, and change only what has not ended: they can be repeated after a
// commit without an answer, and touch no other run. A run that another has taken for
// abandoned was not, if its own process says so.
//
// was is what has been written before, if that is to be corrected.
func (r *run) end(ctx context.Context, was, outcome Outcome, text string, fnErr error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), sqldb.Bound)
	defer cancel()
	j := r.j
	v := values{"name": j.text(r.job.Name), "id": j.text(r.id), "was": string(was), "outcome": string(outcome), "code": nil, "error": orNull(clean(text, schema.MaxError))}
	var exit interface{ ExitCode() int } // of a command: *exec.ExitError
	if errors.As(fnErr, &exit) {
		v["code"] = int64(int32(exit.ExitCode()))
	}
	var err error
	for range 3 {
		err = sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
			return j.db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				if _, err := tx.Exec(ctx, j.sql.endJob.query, j.sql.endJob.args(v)...); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, j.sql.endRun.query, j.sql.endRun.args(v)...)
				return err
			})
		})
		if err == nil || ctx.Err() != nil || !sqldb.Uncertain(err) && sqldb.ClassOf(err) != sqldb.ConnLost {
			break
		}
	}
	if err != nil {
		return fmt.Errorf("joblock: %q: the run %s has ended (%s), which could not be written: it will read as %s: %w", r.job.Name, r.id, outcome, Abandoned, err)
	}
	return nil
}
