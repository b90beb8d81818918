package migrations

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"regexp"
	"sync/atomic"
	"time"

	"github.com/pressly/goose/v3"

	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// run is one call of Up or Down.
type run struct {
	db    *sqldb.DB
	place schema.Place
	o     *options
	down  bool
	lock  locker

	ctx   context.Context // the caller's
	left  time.Duration   // of LockTimeout
	since time.Time       // since when it may be waiting
	held  atomic.Bool     // the lock is held: ctx no longer interrupts
	begun int64           // version of the last step that has begun in this try
}

func start(db *sqldb.DB, o *options, down bool) *run {
	r := &run{db: db, place: schema.PlaceOf(db), o: o, down: down}
	r.lock = o.locker(r)
	return r
}

// do runs migrate on a Provider, again where a table was locked.
func (r *run) do(ctx context.Context, migrate func(context.Context, *goose.Provider) error) error {
	r.ctx, r.left = ctx, r.o.lockTimeout
	r.works()
	var inUse error
	for {
		err := r.once(ctx, migrate)
		switch {
		case err == nil || !sqldb.Retryable(err) && !errors.Is(err, ErrLockTimeout):
			return err
		case !errors.Is(err, ErrLockTimeout):
			inUse = err
		case inUse == nil:
			return err
		} // The lock may just have been too late for what was left of the time.
		r.waited()
		if r.left < shortest || errors.Is(err, ErrLockTimeout) {
			return fmt.Errorf("%w: %w, for all of %v: end that transaction, or %s", inUse, ErrDDLTimeout, r.o.lockTimeout, waitLonger)
		}
		// Nothing is held during the pause. Its length is random, so that two processes
		// do not meet again, and leaves time for another try.
		if ctxErr := pause(ctx, min(r.o.ddlTimeout/2, r.left/4), min(r.o.ddlTimeout, r.left/4)); ctxErr != nil {
			return fmt.Errorf("migrations: %w, after: %w", ctxErr, err)
		}
		r.waited()
	}
}

// shortest is a rest of LockTimeout that is not worth another try.
const shortest = 10 * time.Millisecond

// waitLonger is what can be done about a LockTimeout.
const waitLonger = "wait longer (--lock-timeout; in a program: migrations.LockTimeout)"

// works says that nothing is being waited for.
func (r *run) works() { r.since = time.Now() }

// waited takes what has passed since then from the time for waiting.
func (r *run) waited() {
	now := time.Now()
	r.left -= now.Sub(r.since)
	r.since = now
}

// ddlTimeout is how long the next statement may wait for a lock on a table.
func (r *run) ddlTimeout() time.Duration { return min(r.o.ddlTimeout, r.left) }

// pause waits for a random time of at least d and at most d plus spread, or until
// ctx ends.
func pause(ctx context.Context, d, spread time.Duration) error {
	timer := time.NewTimer(d + rand.N(spread))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// errWaited is the cause of a wait that has been long enough.
var errWaited = errors.New("waited long enough")

// once is one try.
func (r *run) once(ctx context.Context, migrate func(context.Context, *goose.Provider) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("migrations: %w", err)
	}
	db, done := r.db.Driver().SQL()
	defer done()

	// goose runs under a context of its own, which the caller's ends only as long as
	// the lock is not held: later the end of it is looked at between migrations.
	r.held.Store(false)
	waiting, cancel := context.WithTimeoutCause(ctx, r.left, errWaited)
	defer cancel()
	running, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(waiting, func() {
		if !r.held.Load() {
			end()
		}
	})()

	for {
		err := r.goose(running, db, migrate)
		if err == nil {
			return nil
		}
		if !r.held.Load() {
			if err := ctx.Err(); err != nil {
				return fmt.Errorf("migrations: while waiting to migrate: %w", err)
			}
			if context.Cause(waiting) == errWaited {
				var held *lock.HeldError
				if errors.As(err, &held) {
					return fmt.Errorf("migrations: %w, for %v: it is %s: end it, or %s", ErrLockTimeout, r.o.lockTimeout, held.Holder, waitLonger)
				}
				return fmt.Errorf("migrations: %w, or the pool had no connection to give, for %v: see who it is, or %s", ErrLockTimeout, r.o.lockTimeout, waitLonger)
			}
		}
		waits, late := r.lock.again(err)
		if !waits {
			return explain(err)
		}
		if late == nil {
			late = pause(ctx, 10*time.Millisecond, 40*time.Millisecond)
		}
		if late != nil {
			return fmt.Errorf("migrations: while waiting to migrate: %w", late)
		}
	}
}

// goose makes a Provider and runs it. It is a new one each time: one whose first
// use has failed stays broken. Its Close would close the caller's pool and is
// never called.
func (r *run) goose(ctx context.Context, db *sql.DB, migrate func(context.Context, *goose.Provider) error) error {
	r.begun = 0
	p, err := goose.NewProvider(goose.DialectCustom, db, nil,
		goose.WithStore(&store{r: r}),
		goose.WithSessionLocker(r.lock),
		goose.WithGoMigrations(r.goMigrations()...),
		goose.WithDisableGlobalRegistry(true),
	)
	if err != nil {
		return err
	}
	return migrate(ctx, p)
}

// explain takes what failed out of what goose says around it, and adds what can be
// done about it.
func explain(err error) error {
	var failed *stepError
	var partial *goose.PartialError
	if foreign := schema.ForeignOf(err); foreign != nil {
		return fmt.Errorf("migrations: %w", foreign)
	}
	switch {
	case errors.As(err, &failed):
		err = failed
	case errors.As(err, &partial):
		err = fmt.Errorf("version %d: %w", partial.Failed.Source.Version, partial.Err)
	}
	switch sqldb.ClassOf(err) {
	case sqldb.Denied:
		return fmt.Errorf("migrations: %w (it needs a user that may make and change tables)", err)
	case sqldb.ReadOnly:
		return fmt.Errorf("migrations: %w (it needs a server and a session that write)", err)
	case sqldb.NoSchema:
		return fmt.Errorf("migrations: %w (make the database first, or name another one)", err)
	}
	return fmt.Errorf("migrations: %w", err)
}

// stepError is a step that failed.
type stepError struct {
	step Step
	what string
	err  error
}

func (e *stepError) Error() string {
	what := e.what
	if what != "" {
		what = ", " + what
	}
	return fmt.Sprintf("%s%s: %v", e.step, what, e.err)
}

func (e *stepError) Unwrap() error { return e.err }

// goMigrations hands the migrations to goose as functions that run on a
// transaction of the connection that holds the lock. (As files they would run on
// it too, but ctx, Progress and the settings for DDL have no place there.)
func (r *run) goMigrations() []*goose.Migration {
	var all []*goose.Migration
	for _, m := range r.o.migrations {
		fn := func(down bool) *goose.GoFunc {
			return &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error { return r.apply(ctx, tx, m, down) }}
		}
		all = append(all, goose.NewGoMigration(m.Version, fn(false), fn(true)))
	}
	return all
}

// apply runs the statements of a step. goose records the version in the same
// transaction, through the store.
func (r *run) apply(ctx context.Context, tx *sql.Tx, m schema.Migration, down bool) error {
	s := step(r.place, m, down)
	if err := r.ctx.Err(); err != nil {
		return &stepError{step: s, what: "not begun", err: err}
	}
	r.works()
	skip, err := r.lock.begin(ctx, tx, s)
	if err != nil {
		return &stepError{step: s, err: err}
	}
	if skip {
		return nil
	}
	c := catalogOn(r.place, tx)
	if err := c.refuse(ctx, m, down); err != nil {
		return &stepError{step: s, what: "not begun", err: err}
	}
	r.begun = s.Version
	if r.o.progress != nil {
		r.o.progress(s)
	}
	r.works()
	if err := r.execute(ctx, tx, s); err != nil {
		return err
	}
	if !down {
		if err := c.verify(ctx, m); err != nil {
			return &stepError{step: s, what: "not recorded", err: err}
		}
	}
	r.works()
	return nil
}

func (r *run) execute(ctx context.Context, tx *sql.Tx, s Step) error {
	fault := func(int) error { return nil }
	if r.o.before != nil {
		fault = func(i int) error { return r.o.before(s, i) }
	}
	for i, statement := range s.Statements {
		err := fault(i)
		if err == nil {
			_, err = tx.ExecContext(ctx, statement)
		}
		if err != nil && !(r.place.Kind.InnoDB() && isDone(err)) {
			return &stepError{step: s, what: fmt.Sprintf("statement %d of %d", i+1, len(s.Statements)), err: err}
		}
	}
	return fault(len(s.Statements))
}

// doneAlready are the errors of DDL that an earlier, broken try has carried out:
// MySQL has no IF NOT EXISTS for columns and keys. 1060: duplicate column, 1061:
// duplicate key name, 1091: can't drop, it does not exist.
var doneAlready = regexp.MustCompile(`^Error (1060|1061|1091)\b`)

func isDone(err error) bool { return doneAlready.MatchString(err.Error()) }
