package advisory

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// idle is how long a session without locks is kept before it goes back to the pool.
const idle = time.Second

// conn is a session of the server, on a connection that is out of the pool. One
// goroutine runs its statements, so that a caller who leaves does not take the
// connection along, and a cancelled ctx does not reach the driver. Where nothing hangs
// on the session but the one lock that a statement is about, the caller runs it itself,
// which saves two changes of goroutine: see conn.direct.
type conn struct {
	l     *Locker
	conn  *sqldb.Conn
	lease time.Duration // the server ends the session when it has said nothing for so long
	reqs  chan *request
	gone  chan struct{}   // closed when it takes no more requests
	ctx   context.Context // of its statements: ends with it
	end   context.CancelFunc

	// limit is when a statement that is under way is given up: nanoseconds since the
	// Locker's first session; 0: there is none. See Locker.watchdog.
	limit atomic.Int64

	turn sync.Mutex // held by whoever uses the connection
	// What follows is used with the turn.
	run    context.Context // of the statement: ctx, or a caller's
	setup  setup
	pinged time.Time // when the last ping that was answered was sent
	retry  time.Time // a ping has failed: not before

	// Under the Locker's mutex.
	stuck []*held         // releases that have failed, to be tried again
	keys  map[Key]*held   // what it holds; nil: it is being tried, or waited for
	more  map[Key][]*held // further readers of what it holds
	users int             // requests under way
	waits bool            // somebody waits in the server, or is about to
	ready bool            // it is set up
	dead  bool
	why   error              // why it is
	used  time.Time          // when it was last needed
	stop  context.CancelFunc // ends the statement that a caller runs itself; nil: there is none
}

// request is what a session is asked for.
type request struct {
	op   op
	h    *held
	ctx  context.Context // the caller's
	wait time.Duration   // block: for how long
	look bool            // try: if it is refused, who holds it?
	word atomic.Int32    // who has the last word: see below
	sent bool            // it has reached the session
	done chan struct{}   // capacity 1: it was answered
	calm chan struct{}   // block: closed when nobody interrupts the statement any more

	// The answer.
	got  bool
	held *lock.HeldError // it was refused
	err  error
}

type op uint8

const (
	opTry op = iota
	opBlock
	opJoin
	opUnlock
	opQuit
)

// Whoever says so first, the caller who leaves or the session that hands a lock over,
// is right. The interleaving that this closes: ctx ends and the caller goes away with an
// error, and only then the grant comes, for nobody.
const (
	callerLeft int32 = 1
	handedOver int32 = 2
)

func (r *request) leave() bool { return r.word.CompareAndSwap(0, callerLeft) }
func (r *request) claim() bool { return r.word.CompareAndSwap(0, handedOver) }
func (r *request) left() bool  { return r.word.Load() == callerLeft }

// errGone: the session has ended before the request was sent. Another one will do.
var errGone = errors.New("the session has ended")

// mark is how a DBA finds the sessions. application_name has room for 63 bytes.
func mark() string {
	host, err := os.Hostname()
	if err != nil {
		host = "?"
	}
	pid := fmt.Sprintf(", pid %d", os.Getpid())
	const front = "sqllock advisory: "
	if room := 63 - len(front) - len(pid); len(host) > room {
		host = host[:room]
	}
	return front + host + pid
}

// newSession makes a session of a connection, and starts it. l.mu is held.
func (l *Locker) newSession(c *sqldb.Conn, lease time.Duration) *conn {
	s := &conn{
		l: l, conn: c, lease: lease, reqs: make(chan *request), gone: make(chan struct{}),
		keys: map[Key]*held{}, more: map[Key][]*held{}, used: time.Now(),
	}
	s.ctx, s.end = context.WithCancel(context.Background())
	s.run = s.ctx
	l.sessions = append(l.sessions, s)
	l.startWatch()
	l.busy++
	go s.live()
	return s
}

// live is the life of a session.
func (s *conn) live() {
	defer s.l.done()
	defer s.end()
	if err := s.open(); err != nil {
		s.die("it could not be set up", err)
		s.discard()
		return
	}
	timer := time.NewTimer(s.period())
	defer timer.Stop()
	for {
		select {
		case <-s.gone:
			s.discard()
			return
		case r := <-s.reqs:
			if r.op == opQuit {
				s.goBack(true)
				return
			}
			s.turn.Lock()
			s.serve(r)
			s.turn.Unlock()
		case <-timer.C:
			if s.goBack(false) {
				return
			}
			s.turn.Lock()
			timer.Reset(s.tick())
			s.turn.Unlock()
		}
	}
}

// discard closes the connection when nobody uses it any more.
func (s *conn) discard() {
	s.turn.Lock()
	defer s.turn.Unlock()
	_ = s.conn.Discard()
}

// begin says that a statement is sent, which may take d.
func (s *conn) begin(d time.Duration) (sent time.Time) {
	sent = time.Now()
	s.limit.Store(int64(sent.Add(d).Sub(epoch)))
	return sent
}

func (s *conn) ended() { s.limit.Store(0) }

// epoch is what moments are counted from: the monotonic clock has no zero.
var epoch = time.Now()

// open sets the session up.
func (s *conn) open() error {
	s.turn.Lock()
	defer s.turn.Unlock()
	sent := s.begin(openBound)
	defer s.ended()
	got, err := s.l.sql.setUp(s.ctx, s.conn, s.lease, mark())
	if err != nil {
		return fmt.Errorf("setting up a session: %w", err)
	}
	if got.refuse != "" && !s.l.config.unchecked {
		return refused(got.refuse)
	}
	s.setup, s.pinged = got, sent
	s.l.mu.Lock()
	s.ready = true
	s.l.mu.Unlock()
	return nil
}

// goBack gives the connection back to the pool, if it holds nothing and nobody has
// needed it for a while; now: at once, and if it holds something, it is closed.
func (s *conn) goBack(now bool) bool {
	l := s.l
	l.mu.Lock()
	free := len(s.keys) == 0 && s.users == 0 && !s.waits && len(s.stuck) == 0
	if s.dead || !now && (!free || time.Since(s.used) < idle) {
		dead := s.dead
		l.mu.Unlock()
		if dead {
			s.discard()
		}
		return dead
	}
	// From here on nobody gets it. The interleaving that this closes: it is picked, its
	// connection goes back, and the lock is taken in a session of the pool's.
	lost, stop := s.bury(errGone)
	l.mu.Unlock()
	s.mourn(lost, stop, "the Locker was closed", lock.ErrClosed)
	s.turn.Lock()
	defer s.turn.Unlock()
	if !free {
		_ = s.conn.Discard()
		return true
	}
	ctx, cancel := context.WithTimeout(context.Background(), sqldb.Bound)
	defer cancel()
	if err := l.sql.handBack(ctx, s.conn, s.setup.before); err != nil {
		_ = s.conn.Discard()
		return true
	}
	_ = s.conn.Close()
	return true
}

// die ends the session, and every lock that it holds, once. It can be called from any
// goroutine: the connection is closed by the session's own.
func (s *conn) die(reason string, err error) {
	l := s.l
	l.mu.Lock()
	if s.dead {
		l.mu.Unlock()
		return
	}
	lost, stop := s.bury(err)
	l.mu.Unlock()
	s.mourn(lost, stop, reason, err)
}

// bury takes the session out of the Locker, and returns the locks that end with it, and
// what stops a caller's statement. l.mu is held.
func (s *conn) bury(why error) (lost []*held, stop context.CancelFunc) {
	l := s.l
	s.dead, s.why = true, why
	for i, other := range l.sessions {
		if other == s {
			l.sessions = append(l.sessions[:i], l.sessions[i+1:]...)
			break
		}
	}
	lost = s.all()
	if s.waits {
		s.waits = false
		l.waiting--
	}
	l.stopWatch()
	l.stir()
	return lost, s.stop
}

// mourn ends what the session does, and tells its holders.
func (s *conn) mourn(lost []*held, stop context.CancelFunc, reason string, err error) {
	s.end()
	if stop != nil {
		stop()
	}
	for _, h := range lost {
		h.ctrl.Lose("its session has ended: "+reason, err)
	}
	close(s.gone) // who asks for something knows no later than the holders
}

// drop forgets a key that the session does not hold, or holds no more.
func (s *conn) drop(k Key) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	delete(s.keys, k)
	delete(s.more, k)
	s.used = time.Now()
	s.l.stir()
}

// leaveIt counts a request that has ended. One that has not reached the session, or
// whose caller has left, leaves the key to whoever ends the doubt.
func (s *conn) leaveIt(k Key, r *request) {
	s.l.mu.Lock()
	defer s.l.mu.Unlock()
	s.users--
	s.used = time.Now()
	if h, has := s.keys[k]; has && h == nil && !r.sent && r.op == opTry {
		delete(s.keys, k)
	}
	s.l.stir()
}
