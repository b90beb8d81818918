package advisory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// explain says which lock an error of the database is about.
func (l *Locker) explain(name string, err error) error {
	switch sqldb.ClassOf(err) {
	case sqldb.Deadlock, sqldb.UserDeadlock:
		return fmt.Errorf("lock: %q: the server has ended the wait, since it would have been a deadlock; what is held stays held: %w", name, err)
	case sqldb.Exhausted:
		return fmt.Errorf("lock: %q: the server has no room for another lock or connection (max_locks_per_transaction, max_connections): %w", name, err)
	}
	return fmt.Errorf("lock: %q: %w", name, err)
}

// describe says who holds the key, if that was asked for: nobody else is kept waiting
// for it.
func (s *conn) describe(r *request, conn int64) *lock.HeldError {
	if conn == 0 && r.look {
		return s.holder(r.h)
	}
	e := &lock.HeldError{Name: r.h.name}
	if conn != 0 {
		e.Holder = Info{Conn: conn}.holder()
	}
	return e
}

// holder asks the server who holds the key; it may not tell.
func (s *conn) holder(h *held) *lock.HeldError {
	e := &lock.HeldError{Name: h.name}
	if s.isDead() {
		return e
	}
	s.begin(s.patience())
	found, err := holderOf(s.run, onSession{s.l.db, s.conn}, h.key)
	s.ended()
	switch {
	case err == nil:
		e.Holder = found.Holder
	case s.broken(err):
		s.die("the connection broke", s.blame(err))
	}
	return e
}

// onSession is a session as a [sqldb.Handle].
type onSession struct {
	*pool
	c *sqldb.Conn
}

// pool is an alias so that the method DB is not hidden by a field of that name.
type pool = sqldb.DB

func (o onSession) Exec(ctx context.Context, query string, args ...any) (sqldb.Result, error) {
	return o.c.Exec(ctx, query, args...)
}

func (o onSession) Query(ctx context.Context, query string, args ...any) (*sqldb.Rows, error) {
	return o.c.Query(ctx, query, args...)
}

func (o onSession) QueryRow(ctx context.Context, query string, args ...any) *sqldb.Row {
	return o.c.QueryRow(ctx, query, args...)
}

// errWaited is the cause of a waiting that has taken as long as Wait allows.
var errWaited = errors.New("waited")

// ended is the error of a waiting that has ended without the lock. That it is held is
// not claimed if the server has not said so: it may be that it does not answer, or that
// no connection could be had.
func (l *Locker) ended(wctx, ctx context.Context, t target, held *lock.HeldError, begun time.Time, err error) error {
	cause := context.Cause(wctx)
	if errors.Is(cause, lock.ErrClosed) {
		return fmt.Errorf("lock: %q: %w", t.name, lock.ErrClosed)
	}
	waited := errors.Is(cause, errWaited) && ctx.Err() == nil
	if held == nil || held.Holder == (lock.Holder{}) {
		if seen := l.lastSeen(t.line); seen != nil {
			held = seen
		}
	}
	if held == nil && waited { // Wait was too short for one answer: it is asked for once
		lctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		if found, lerr := holderOf(lctx, l.db, t.key); lerr == nil && found.Holder != (lock.Holder{}) {
			held = found
		}
	}
	if held == nil {
		if err == nil || !waited && !errors.Is(err, ctx.Err()) {
			err = errors.Join(ctx.Err(), err)
		}
		return fmt.Errorf("lock: %q: not had after %v: %w", t.name, time.Since(begun).Round(time.Millisecond), err)
	}
	e := *held
	e.Name, e.Waited = t.name, time.Since(begun)
	if !waited {
		e.Err = ctx.Err()
	}
	return &e
}
