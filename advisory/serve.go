package advisory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// do hands a request to the session and waits for its answer, or for ctx. An answer
// that comes after ctx has ended is the session's to deal with.
func (s *conn) do(ctx context.Context, r *request) error {
	if s.direct(ctx, r) {
		return r.err
	}
	if r.done == nil {
		r.done = make(chan struct{}, 1)
	}
	select {
	case s.reqs <- r:
		r.sent = true
	case <-s.gone:
		if r.op == opUnlock {
			return errGone
		}
		return s.unsent()
	case <-ctx.Done():
		return ctx.Err()
	}
	gone := s.gone
	if r.op == opUnlock {
		gone = nil // its own goroutine answers, in any case
	}
	select {
	case <-r.done:
		return r.err
	case <-ctx.Done():
		if r.op == opUnlock || r.leave() {
			return ctx.Err() // a release goes on by itself
		}
	case <-gone:
		// Its goroutine may be in a statement that does not come back.
		if r.leave() {
			return s.unsent()
		}
	}
	<-r.done // it was handed over just now
	return r.err
}

// direct has the caller run the statement itself, under its own ctx, if nothing else
// hangs on the session: no other lock, no other request. When ctx ends, the driver
// closes the connection, and the server frees what it may have granted. Else it
// reports false, and nothing has happened.
func (s *conn) direct(ctx context.Context, r *request) bool {
	if r.op != opTry && r.op != opUnlock || !s.turn.TryLock() {
		return false
	}
	defer s.turn.Unlock()
	l := s.l
	others := 0 // requests
	if r.op == opTry {
		others = 1 // its own
	}
	l.mu.Lock()
	if s.dead || !s.ready || s.waits || len(s.keys) != 1 || s.users != others || len(s.stuck) > 0 {
		l.mu.Unlock()
		return false
	}
	s.run, s.stop = context.WithCancel(ctx)
	l.mu.Unlock()
	r.sent = true
	if r.op == opTry {
		s.take(r)
	} else {
		s.release(r)
	}
	l.mu.Lock()
	stop := s.stop
	s.run, s.stop = s.ctx, nil
	l.mu.Unlock()
	stop()
	return true
}

// unsent is the error for those who come too late.
func (s *conn) unsent() error {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	if s.why == nil || errors.Is(s.why, errGone) || sqldb.ClassOf(s.why) == sqldb.ConnLost {
		return errGone
	}
	return s.why
}

// blame is why the session ends that err has broken. The interleaving that this is
// about: a caller runs its statement itself, another one's request waits for its turn,
// and the first one's ctx ends, and with it the session. That ctx is nobody else's
// error: the other one asks another session.
func (s *conn) blame(err error) error {
	if s.run.Err() != nil || isContext(err) {
		return errAgain
	}
	return err
}

// serve does what a request wants, and answers.
func (s *conn) serve(r *request) {
	switch r.op {
	case opTry, opBlock:
		s.take(r)
	case opJoin:
		s.join(r)
	case opUnlock:
		s.release(r)
	}
	// Who has been answered has not left: else it could leave between here and the next
	// line, and interrupt what comes next on the session.
	left := !r.got && !r.claim()
	r.done <- struct{}{}
	if r.op == opBlock && left {
		// Whoever left has the statement interrupted, and what was meant for it must not
		// meet another one.
		<-r.calm
		s.die("a wait on it was given up", errGone)
	}
}

// patience is how long a statement that does not wait may take: where nothing is
// held, nothing is lost by closing the connection early.
func (s *conn) patience() time.Duration {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	for _, h := range s.keys {
		if h != nil {
			return s.lease
		}
	}
	return min(s.lease, sqldb.Bound)
}

// take takes a key, by a try or by a wait.
func (s *conn) take(r *request) {
	h := r.h
	switch {
	case s.isDead():
		r.err = s.unsent()
		return
	case r.left() || r.ctx.Err() != nil:
		r.err = r.ctx.Err()
		s.drop(h.key)
		return
	}
	var a answer
	var err error
	patience := s.patience()
	sent := s.begin(r.wait + patience)
	if r.op == opTry {
		a, err = s.l.sql.try(s.run, s.conn, h.key, h.shared, r.look)
	} else {
		a, err = s.l.sql.block(s.run, s.conn, h.key, h.shared, r.wait)
	}
	s.ended()
	if err == nil {
		err = s.same(a.id)
	}
	switch {
	case err != nil:
		s.failed(r, err)
	case a.verdict == null:
		s.failed(r, errNull)
	case a.verdict == no:
		s.drop(h.key)
		r.held = s.describe(r, a.holder)
	default:
		s.granted(r, sent)
	}
}

// errNull: a GET_LOCK that was killed on MariaDB, or was struck by a limit, or failed
// for lack of memory.
var errNull = errors.New("GET_LOCK answered NULL: the server has ended the statement (KILL QUERY, max_statement_time), or has failed")

// same says that a statement ran in this session, and no other.
func (s *conn) same(id int64) error {
	if id == s.setup.id || s.l.config.unchecked {
		return nil
	}
	err := errPooled(s.setup.id, id)
	s.die("a proxy runs its statements in others", err)
	return err
}

// failed deals with an error of a statement that takes a key. It may have been granted
// all the same: lock_timeout and a cancel can strike when the server has it already. So
// it is given back, which harms nobody if the session does not have it, and takes no
// memory where the server's lock table is full; if the server does not answer that
// either, the session ends.
func (s *conn) failed(r *request, err error) {
	h := r.h
	timeout := r.op == opBlock && sqldb.ClassOf(err) == sqldb.LockTimeout
	held := false
	switch {
	case r.op == opBlock && r.left():
		return // it ends in any case
	case s.broken(err):
		s.die("the connection broke", s.blame(err))
	default:
		s.begin(s.patience())
		var doubt error
		if timeout {
			held, doubt = s.l.sql.holds(s.run, s.conn, h.key)
		} else {
			var a answer
			if a, doubt = s.l.sql.unlock(s.run, s.conn, h.key, h.shared); doubt == nil {
				doubt = s.same(a.id)
			}
		}
		s.ended()
		if doubt != nil {
			s.die("it is not known what it holds", s.blame(errors.Join(err, doubt)))
		}
	}
	switch {
	case s.isDead():
		if r.err = r.ctx.Err(); r.err == nil { // else it was that which broke it
			r.err = s.unsent()
		}
		if errors.Is(r.err, errAgain) { // the driver was a moment faster than ctx
			r.err = err
		}
		return
	case held:
		s.granted(r, time.Time{}) // it came just in time
		return
	}
	s.drop(h.key)
	if timeout {
		r.held = s.describe(r, 0) // the slice has passed
		return
	}
	r.err = err
}

// broken says that the session is of no use any more.
func (s *conn) broken(err error) bool {
	return s.run.Err() != nil || sqldb.ClassOf(err) == sqldb.ConnLost || sqldb.Uncertain(err) ||
		isContext(err)
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// granted hands a key that the session has over to the caller, unless the caller is
// gone. Zero sent, or a wait that took long: the lease is counted from a ping.
func (s *conn) granted(r *request, sent time.Time) {
	h := r.h
	if r.op == opBlock && time.Since(sent) > s.lease/3 && !r.left() {
		var err error
		if sent, err = s.ping(); err != nil {
			s.die("the connection broke", err)
			r.err = err
			return
		}
	}
	until := lock.TrustedUntil(sent, s.lease)
	l := s.l
	l.mu.Lock()
	switch {
	case s.dead:
		r.err = errGone
	case l.closed:
		r.err = lock.ErrClosed
	case r.ctx.Err() != nil: // a ctx that is done wins over a grant
		r.err = r.ctx.Err()
	case !time.Now().Before(until):
		r.err = fmt.Errorf("it was granted, but the answer took %v of a lease of %v, and it was given back: %w", time.Since(sent).Round(time.Millisecond), s.lease, context.DeadlineExceeded)
	case !r.claim():
		r.err = context.Canceled // nobody reads it
	default:
		s.handOver(r, until)
	}
	l.mu.Unlock()
	if !r.got {
		s.giveBack(h)
	}
}

// handOver makes the lock. l.mu is held, and the caller has not left.
func (s *conn) handOver(r *request, until time.Time) {
	h := r.h
	h.s = s
	h.handle, h.ctrl = lock.New(lock.Grant{Name: h.name, Scope: h.scope, Shared: h.shared, Until: until, Trace: h.trace}, h)
	if s.keys[h.key] == nil {
		s.keys[h.key] = h
	} else {
		s.more[h.key] = append(s.more[h.key], h)
	}
	s.l.held[h] = struct{}{}
	r.got = true
}

// giveBack releases a key that nobody wants.
func (s *conn) giveBack(h *held) {
	if lost, err := s.unlock(h); err != nil && !lost {
		s.again(h)
	}
}

// release does it for its holder.
func (s *conn) release(r *request) {
	lost, err := s.unlock(r.h)
	switch {
	case lost:
		r.err = lock.ErrLost
	case err != nil:
		s.again(r.h)
		r.err = err
	}
}

// unlock gives a key back. lost: the session did not have it any more, or has ended.
// Another error: it has it still.
func (s *conn) unlock(h *held) (lost bool, err error) {
	switch {
	case s.isDead():
		return true, errGone
	case s.part(h):
		return false, nil
	}
	s.begin(s.patience())
	a, err := s.l.sql.unlock(s.run, s.conn, h.key, h.shared)
	s.ended()
	if err == nil {
		err = s.same(a.id)
	}
	switch {
	case err == nil:
		s.drop(h.key)
		return a.verdict != yes, nil // 0 and NULL, or false: another has it, or nobody
	case isContext(err) && !s.isDead(): // the caller's own, whose statement it was
		s.die("the server did not answer a release", s.blame(err))
		return false, err
	case s.broken(err) || s.isDead():
		s.die("the connection broke", s.blame(err))
		return true, err
	}
	s.begin(s.patience())
	held, herr := s.l.sql.holds(s.run, s.conn, h.key)
	s.ended()
	switch {
	case herr != nil:
		s.die("it is not known what it holds", s.blame(errors.Join(err, herr)))
		return true, err
	case !held: // the statement has failed after it was carried out
		s.drop(h.key)
		return false, nil
	}
	return false, err
}

func (s *conn) isDead() bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	return s.dead
}
