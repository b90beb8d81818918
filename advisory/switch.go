package advisory

import (
	"time"

	"github.com/sqlnative/locks/lock"
)

// The dead-man's switch. The server ends a session that says nothing for a lease; a
// session that holds locks is pinged when a third of it has passed, and its locks are
// trusted until the last ping that was answered, from when it was sent, + lease -
// margin. A statement that the server answers counts as said, but not as a ping.

// period is how often a session looks whether there is something to do. A lock that is
// taken wakes nobody for that.
func (s *conn) period() time.Duration { return min(idle, s.lease/3) }

// tick pings, if that is due, and returns when to come again.
func (s *conn) tick() time.Duration {
	for _, h := range s.takeStuck() {
		s.giveBack(h)
	}
	now := time.Now()
	if now.Sub(s.pinged) < s.lease/3-s.lease/50 || now.Before(s.retry) {
		return s.period()
	}
	all := s.holds()
	if len(all) == 0 {
		return s.period()
	}
	sent, err := s.ping()
	e := lock.Event{Took: time.Since(now), Err: err}
	if err != nil {
		if s.broken(err) || s.isDead() {
			s.die("the connection broke", err)
			return s.period()
		}
		for _, h := range all {
			h.tell(func(t *lock.Trace) func(lock.Event) { return t.RenewFailed }, e)
		}
		pause := min(max(s.lease/30, 10*time.Millisecond), time.Second)
		s.retry = time.Now().Add(pause)
		return pause
	}
	until := lock.TrustedUntil(sent, s.lease)
	for _, h := range all {
		if h.ctrl.Renewed(until) {
			h.tell(func(t *lock.Trace) func(lock.Event) { return t.Renewed }, e)
		}
	}
	return s.period()
}

// ping asks the session for its id, which has to be the one that it had, and its server
// whether it is still one to trust.
func (s *conn) ping() (sent time.Time, err error) {
	sent = s.begin(s.lease)
	id, refuse, err := s.l.sql.ping(s.run, s.conn)
	s.ended()
	if err == nil {
		err = s.same(id)
	}
	if err == nil && refuse != "" && !s.l.config.unchecked {
		err = refused(refuse)
		s.die("its server is refused by now", err)
	}
	if err == nil {
		s.pinged, s.retry = sent, time.Time{}
	}
	return sent, err
}

// holds are the locks that the session holds.
func (s *conn) holds() []*held {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	return s.all()
}

// again has a release that has failed tried again with the next tick.
func (s *conn) again(h *held) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.stuck = append(s.stuck, h)
}

func (s *conn) takeStuck() []*held {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	all := s.stuck
	s.stuck = nil
	return all
}

// watchEvery is how often the watchdog looks.
const watchEvery = time.Second

// startWatch and stopWatch keep the watchdog while there are sessions. l.mu is held.
func (l *Locker) startWatch() {
	if l.watch == nil {
		l.watch = time.AfterFunc(watchEvery, l.watchdog)
	}
}

func (l *Locker) stopWatch() {
	if len(l.sessions) == 0 && l.watch != nil {
		l.watch.Stop()
		l.watch = nil
	}
}

// watchdog ends sessions whose statement has had no answer for too long. Those that
// hold locks end with their locks, at the latest.
func (l *Locker) watchdog() {
	now := int64(time.Since(epoch))
	var silent []*conn
	l.mu.Lock()
	for _, s := range l.sessions {
		if limit := s.limit.Load(); limit != 0 && now > limit {
			silent = append(silent, s)
		}
	}
	if l.watch != nil {
		l.watch.Reset(watchEvery)
	}
	l.mu.Unlock()
	for _, s := range silent {
		s.die("the server does not answer", errSilent)
	}
}
