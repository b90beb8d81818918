package joblock_test

import (
	"context"
	"errors"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/sqldb"
)

// watched is a database whose statements are looked at, and refused with what look
// answers; and whose commits answer what commit answers, once they are done.
type watched struct {
	sqldb.Driver
	w *watch
}

type watch struct {
	mu     sync.Mutex
	look   func(query string, args []any) error
	commit func() error
}

func watching(db *sqldb.DB) (*sqldb.DB, *watch) {
	w := &watch{}
	return db.Wrap(func(d sqldb.Driver) sqldb.Driver { return watched{d, w} }), w
}

func (w *watch) set(look func(query string, args []any) error, commit func() error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.look, w.commit = look, commit
}

func (w *watch) at(query string, args []any) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.look == nil {
		return nil
	}
	return w.look(query, args)
}

func (w *watch) committed() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.commit == nil {
		return nil
	}
	return w.commit()
}

type watchedQuerier struct {
	sqldb.Querier
	w *watch
}

func (q watchedQuerier) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	if err := q.w.at(query, args); err != nil {
		return sqldb.Result{}, err
	}
	return q.Querier.Exec(ctx, query, args)
}

func (q watchedQuerier) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	if err := q.w.at(query, args); err != nil {
		return nil, err
	}
	return q.Querier.Query(ctx, query, args)
}

func (d watched) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	return watchedQuerier{d.Driver, d.w}.Exec(ctx, query, args)
}

func (d watched) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return watchedQuerier{d.Driver, d.w}.Query(ctx, query, args)
}

func (d watched) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	tx, err := d.Driver.Begin(ctx, o)
	if err != nil {
		return nil, err
	}
	return watchedTx{tx, watchedQuerier{tx, d.w}}, nil
}

func (d watched) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := d.Driver.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return watchedConn{c, watchedQuerier{c, d.w}}, nil
}

type watchedTx struct {
	sqldb.DriverTx
	q watchedQuerier
}

func (t watchedTx) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	return t.q.Exec(ctx, query, args)
}

func (t watchedTx) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return t.q.Query(ctx, query, args)
}

func (t watchedTx) Commit(ctx context.Context) error {
	return errors.Join(t.DriverTx.Commit(ctx), t.q.w.committed())
}

type watchedConn struct {
	sqldb.DriverConn
	q watchedQuerier
}

func (c watchedConn) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	return c.q.Exec(ctx, query, args)
}

func (c watchedConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return c.q.Query(ctx, query, args)
}

func (c watchedConn) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	tx, err := c.DriverConn.Begin(ctx, o)
	if err != nil {
		return nil, err
	}
	return watchedTx{tx, watchedQuerier{tx, c.q.w}}, nil
}

// No machine's wall clock is asked: what is sent to the database has no time in it,
// neither as a time nor as a text nor as a number of anything since 1970, but for the
// fencing token, which is the database's. So it means nothing how far clocks are apart.
func TestNoWallClock(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		s := &site{DB: db}
		watchedDB, w := watching(db.DB)
		p := s.processOn(t, watchedDB)
		date := regexp.MustCompile(`\b20\d\d\D?\d\d\D?\d\d`)
		now, statements := time.Now(), 0
		suspicious := func(n int64, unit time.Duration) bool {
			d := n - now.UnixNano()/int64(unit)
			return max(d, -d) < int64(10*365*24*time.Hour/unit)
		}
		var times []any
		w.set(func(query string, args []any) error {
			statements++
			if date.MatchString(query) {
				times = append(times, query)
			}
			for _, a := range args {
				switch v := a.(type) {
				case time.Time:
					times = append(times, v)
				case string:
					if date.MatchString(v) {
						times = append(times, v)
					}
				case int64:
					if suspicious(v, time.Second) || suspicious(v, time.Millisecond) || suspicious(v, time.Microsecond) || suspicious(v, time.Nanosecond) {
						times = append(times, v)
					}
				}
			}
			return nil
		}, nil)
		job := joblock.Job{Name: "clock", Every: 24 * time.Hour, AtLeast: time.Minute, AtMost: time.Hour, TTL: time.Second}
		r := start(t, p, job)
		run := history(t, p, "clock", 1)[0]
		time.Sleep(job.TTL / 2) // a beat
		if _, err := r.end(nil); err != nil {
			t.Error(err)
		}
		skipped(t, p, job)
		if _, err := p.History(t.Context(), joblock.Filter{Within: time.Hour}); err != nil {
			t.Error(err)
		}
		if _, err := p.Prune(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
		w.set(nil, nil)
		for _, x := range times {
			if x != any(run.Token) {
				t.Errorf("%v was sent", x)
			}
		}
		if statements < 9 || len(times) == 0 {
			t.Errorf("the control: %d statements, %d tokens were seen", statements, len(times))
		}
	})
}

// A commit whose answer does not come is settled by the run's id: the job is started
// once, and its end written once.
func TestUncertain(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		s := &site{DB: db}
		watchedDB, w := watching(db.DB)
		p := s.processOn(t, watchedDB)
		ran(t, p, joblock.Job{Name: "uncertain"}, joblock.OK, nothing)
		commits, calls := 0, 0
		w.set(nil, func() error {
			if commits++; commits <= 2 {
				return io.ErrUnexpectedEOF
			}
			return nil
		})
		res, err := ran(t, p, joblock.Job{Name: "uncertain"}, joblock.Failed, func(context.Context) error {
			calls++
			return errors.New("broken")
		})
		w.set(nil, nil)
		if err == nil || err.Error() != "broken" || calls != 1 || commits != 3 {
			t.Errorf("%s, %v: %d calls, %d commits", res, err, calls, commits)
		}
		run := history(t, p, "uncertain", 2)[0]
		if run.ID != res.Run || run.Outcome != joblock.Failed || run.Error != "broken" {
			t.Errorf("%+v", run)
		}
	})
}

// An end that can't be written is an error of Run, and reads as abandoned.
func TestEndNotWritten(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		s := &site{DB: db}
		watchedDB, w := watching(db.DB)
		p := s.processOn(t, watchedDB)
		full := errors.New("the disk is full")
		w.set(func(query string, _ []any) error {
			if strings.Contains(query, "finished_at = ") {
				return full
			}
			return nil
		}, nil)
		broken := errors.New("broken")
		res, err := p.Run(t.Context(), joblock.Job{Name: "end"}, func(context.Context) error { return broken })
		if !errors.Is(err, full) || !errors.Is(err, broken) || !res.Ran || res.Outcome != joblock.Failed || !strings.Contains(err.Error(), res.Run) {
			t.Errorf("%s, %v", res, err)
		}
		w.set(nil, nil)
		if run := history(t, p, "end", 1)[0]; run.Outcome != joblock.Running {
			t.Errorf("%+v", run)
		}
		s.later(t, "end", time.Hour)
		if run := history(t, p, "end", 1)[0]; run.Outcome != joblock.Abandoned {
			t.Errorf("%+v", run)
		}
		ran(t, p, joblock.Job{Name: "end"}, joblock.OK, nothing) // the lock was released
	})
}

// A start that fails runs nothing and leaves no row, and the lock is free.
func TestStartFails(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		s := &site{DB: db}
		watchedDB, w := watching(db.DB)
		p := s.processOn(t, watchedDB)
		full := errors.New("the disk is full")
		w.set(func(query string, _ []any) error {
			if strings.Contains(query, "'running', ") {
				return full
			}
			return nil
		}, nil)
		job := joblock.Job{Name: "start", Every: time.Hour}
		res, err := p.Run(t.Context(), job, func(context.Context) error {
			t.Error("it ran")
			return nil
		})
		if !errors.Is(err, full) || res.Ran {
			t.Errorf("%s, %v", res, err)
		}
		w.set(nil, nil)
		history(t, p, "start", 0)
		ran(t, p, job, joblock.OK, nothing) // it was rolled back: the period is not used
	})
}
