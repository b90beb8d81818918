package advisory

import (
	"context"
	"fmt"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// Which session a key is asked for on. Many locks share few sessions: whoever has one
// with the right lease that does not have the key in any mode, since a session is
// granted what it has already. The fewer there are, the fewer connections; a second one
// is opened when the first is busy, up to half of the limit, so that waits, each of
// which has a session to itself, find room as well.

// shareable is how many sessions are opened because the others are busy.
func (l *Locker) shareable() int { return (l.limit + 1) / 2 }

// noRoomBound is how long a Try waits for a session.
const noRoomBound = time.Second

// pick finds a session on which the key can be tried, and reserves it there. It opens
// one if need be; if there may be no more, it waits for one, but not for long if the
// caller wants to know at once. nil and nil: a session of this Locker holds the key so
// that trying it is in vain. join: all sessions have the key, and h can share it there.
func (l *Locker) pick(ctx context.Context, h *held, lease time.Duration, atOnce bool) (s *conn, join bool, err error) {
	var timeout <-chan time.Time
	for {
		l.mu.Lock()
		s, mine, trying := l.find(h, lease)
		total := len(l.sessions) + l.opening
		switch {
		case mine:
			l.mu.Unlock()
			return nil, false, nil
		case s != nil && (s.users == 0 || total >= l.shareable()):
			s.reserve(h.key)
			l.mu.Unlock()
			return s, false, nil
		case total < l.limit && !trying && (l.opening == 0 || total < l.shareable()):
			l.opening++
			l.mu.Unlock()
			if atOnce { // the pool may have none to give
				var cancel context.CancelFunc
				ctx, cancel = context.WithTimeout(ctx, sqldb.Bound)
				defer cancel()
			}
			s, err := l.open(ctx, h, lease, false)
			return s, false, err
		}
		if s := l.joinable(h); s != nil {
			s.users++
			l.mu.Unlock()
			return s, true, nil
		}
		busy := trying || l.opening > 0 // that ends by itself
		if !busy {
			l.evict()
		}
		moved := l.awaitMove()
		l.mu.Unlock()
		if atOnce && timeout == nil && !busy {
			timer := time.NewTimer(noRoomBound)
			defer timer.Stop()
			timeout = timer.C
		}
		select {
		case <-moved:
		case <-timeout:
			return nil, false, fmt.Errorf("all %d connections (advisory.Connections) are taken, by waits or by locks with another TTL", l.limit)
		case <-ctx.Done():
			return nil, false, fmt.Errorf("all %d connections (advisory.Connections) are taken: %w", l.limit, ctx.Err())
		case <-l.life.Done():
			return nil, false, lock.ErrClosed
		}
	}
}

// find finds the session that has least to do. mine: one of them holds the key so that
// h cannot have it. trying: it is just being tried on one of them, which will soon show
// if another is needed. l.mu is held.
func (l *Locker) find(h *held, lease time.Duration) (best *conn, mine, trying bool) {
	total := len(l.sessions) + l.opening
	for _, s := range l.sessions {
		other, has := s.keys[h.key]
		mine = mine || other != nil && !(other.shared && h.shared)
		trying = trying || has && other == nil && !s.waits
		switch {
		case has || s.waits:
		case s.lease != lease && (s.lease > lease || total < l.limit):
			// A session with a shorter lease would do, but its locks are lost sooner when
			// the server does not answer for a while: only if there may be no more.
		case best == nil || s.users < best.users:
			best = s
		}
	}
	return best, mine, trying
}

// aloneBound is how long a wait waits for a connection of the pool before it polls.
const aloneBound = 2 * time.Second

// alone finds a session that holds nothing, or opens one, for a wait; nil: there may
// be no more, or the pool has none to give, so the caller has to poll.
func (l *Locker) alone(ctx context.Context, h *held, lease time.Duration) (*conn, error) {
	l.mu.Lock()
	if l.waiting >= l.limit-1 {
		l.mu.Unlock()
		return nil, nil
	}
	for _, s := range l.sessions {
		if len(s.keys) == 0 && s.users == 0 && !s.waits && s.lease == lease {
			s.reserve(h.key)
			s.waits = true
			l.waiting++
			l.mu.Unlock()
			return s, nil
		}
	}
	if len(l.sessions)+l.opening >= l.limit {
		l.evict()
		l.mu.Unlock()
		return nil, nil
	}
	l.opening++
	l.waiting++
	l.mu.Unlock()
	octx, cancel := context.WithTimeout(ctx, aloneBound)
	defer cancel()
	s, err := l.open(octx, h, lease, true)
	if err != nil && octx.Err() != nil && ctx.Err() == nil {
		return nil, nil
	}
	return s, err
}

// reserve notes that the key is asked for there. l.mu is held.
func (s *conn) reserve(k Key) {
	s.keys[k] = nil
	s.users++
}

// stopWaiting makes a session that was waited on one like the others.
func (s *conn) stopWaiting(k Key) {
	l := s.l
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.waits { // it has ended
		return
	}
	s.waits = false
	s.users--
	s.used = time.Now()
	l.waiting--
	if h, has := s.keys[k]; has && h == nil {
		delete(s.keys, k)
	}
	l.stir()
}

// open takes a connection out of the pool and makes a session of it. The caller has
// counted it.
func (l *Locker) open(ctx context.Context, h *held, lease time.Duration, waits bool) (*conn, error) {
	octx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(l.life, func() { cancel(lock.ErrClosed) })
	conn, err := l.db.Conn(octx)
	if err != nil && !stop() && ctx.Err() == nil {
		err = lock.ErrClosed
	}
	stop()
	cancel(nil)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.opening--
	if err == nil && l.closed {
		_ = conn.Close()
		err = lock.ErrClosed
	}
	if err != nil {
		if waits {
			l.waiting--
		}
		l.stir()
		return nil, err
	}
	s := l.newSession(conn, lease)
	s.waits = waits
	s.reserve(h.key)
	return s, nil
}

// evict has a session go back that holds nothing, to make room for one with another
// lease. l.mu is held.
func (l *Locker) evict() {
	for _, s := range l.sessions {
		if len(s.keys) == 0 && s.users == 0 && !s.waits {
			s.used = time.Time{} // it goes back with its next tick
		}
	}
}

// stir wakes those who wait for a session. l.mu is held.
func (l *Locker) stir() {
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

func (l *Locker) awaitMove() <-chan struct{} {
	if l.moved == nil {
		l.moved = make(chan struct{})
	}
	return l.moved
}
