package advisory

import (
	"errors"
	"slices"
	"time"

	"github.com/sqlnative/locks/lock"
)

// Readers. Each shared lock is one of the server's, on a session that does not have the
// key, as long as there are sessions. When all of them have it, further readers of this
// process share a session's lock, which is released with the last of them: the server
// would grant the key there a second time, past everybody who waits for it, so it is
// asked first whether somebody does. (A reader that the server is asked for stands
// behind a writer that waits; one that joins must not go past it either.)

// joinable finds a session whose shared lock h can share. l.mu is held.
func (l *Locker) joinable(h *held) *conn {
	if !h.shared {
		return nil
	}
	var best *conn
	for _, s := range l.sessions {
		if other := s.keys[h.key]; other != nil && other.shared && !s.waits && (best == nil || s.users < best.users) {
			best = s
		}
	}
	return best
}

// errAgain: the lock that was to be shared has just been released, or the session has
// ended with another caller's ctx. It is asked again, however often that happens.
var errAgain = errors.New("the lock was released meanwhile, or its session has ended with another caller's ctx")

// join shares the session's lock, unless somebody waits for the key.
func (s *conn) join(r *request) {
	h := r.h
	if s.isDead() {
		r.err = s.unsent()
		return
	}
	sent := s.begin(s.patience())
	waited, err := s.l.sql.waitedFor(s.run, s.conn, h.key)
	s.ended()
	switch {
	case err != nil && (s.broken(err) || s.isDead()):
		s.die("the connection broke", err)
		r.err = s.unsent()
		return
	case err != nil:
		r.err = err
		return
	case waited:
		r.held = &lock.HeldError{Name: h.name}
		return
	}
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	until := lock.TrustedUntil(sent, s.lease)
	switch {
	case s.dead, s.keys[h.key] == nil:
		r.err = errAgain
	case l.closed:
		r.err = lock.ErrClosed
	case r.ctx.Err() != nil:
		r.err = r.ctx.Err()
	case !time.Now().Before(until):
		r.err = errSilent
	case r.claim():
		s.handOver(r, until)
	}
}

// part lets one of several readers go. It reports whether that was all: the others
// keep the session's lock.
func (s *conn) part(h *held) bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	more := s.more[h.key]
	for i, other := range more {
		if other == h {
			more[i] = more[len(more)-1]
			s.more[h.key] = more[:len(more)-1]
			return true
		}
	}
	if s.keys[h.key] == h && len(more) > 0 {
		s.keys[h.key] = more[0]
		s.more[h.key] = more[1:]
		return true
	}
	return false
}

// has reports whether the session holds the lock.
func (s *conn) has(h *held) bool {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	return s.keys[h.key] == h || slices.Contains(s.more[h.key], h)
}

// all are the locks that the session holds. l.mu is held.
func (s *conn) all() []*held {
	all := make([]*held, 0, len(s.keys))
	for _, h := range s.keys {
		if h != nil {
			all = append(all, h)
		}
	}
	for _, more := range s.more {
		all = append(all, more...)
	}
	return all
}
