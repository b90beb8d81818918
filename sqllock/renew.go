package sqllock

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

const (
	// maxBatch bounds one renewal statement.
	maxBatch = 1000
	// idle is how long the renewer waits for another lock before it ends, and its
	// connection goes back.
	idle = time.Second
	// grace is how long Close lets a renewal that is under way come to its end.
	grace = time.Second
)

// renewer renews the locks of a Locker: one goroutine, one connection, one
// statement for all that are due. It runs from just before the first lock, or the
// first that waits for one, until there has been none for a while.
type renewer struct {
	l *Locker

	starting chan struct{} // capacity 1: full while the goroutine is being started

	mu     sync.Mutex
	locks  map[*held]struct{}
	flight *flight   // the batch whose renewal is under way
	run    *run      // the goroutine; nil: it is not running
	users  int       // Acquires under way, which may bring a lock
	used   time.Time // when it was last needed
	next   time.Time // until when it sleeps, if it does
	closed bool
}

// run is one life of the goroutine. Its connection is its own: a goroutine that is
// about to end must not give back the connection of the one that follows it.
type run struct {
	r       *renewer
	conn    *sqldb.Conn // nil: none was to be had, or the pool has but one
	wake    chan struct{}
	quit    chan struct{}
	stopped chan struct{}
	ctx     context.Context // ends when a renewal that is under way is to be given up
	cancel  context.CancelFunc
}

// flight is a batch whose renewal is under way.
type flight struct {
	batch  []renewal
	limit  time.Time     // when the statement is given up
	landed chan struct{} // closed when it has ended
}

// renewal is one lock of a batch, with what the statement says about it.
type renewal struct {
	*held
	ttl     time.Duration
	waiters []chan extension
}

func (f *flight) has(h *held) bool {
	return f != nil && slices.ContainsFunc(f.batch, func(m renewal) bool { return m.held == h })
}

// enter makes sure that the goroutine runs, with a connection of its own, until
// leave is called: had before the lock, the connection cannot be missing when the
// first renewal is due, and had before the waiting, it is not given back meanwhile.
func (r *renewer) enter(ctx context.Context) (leave func(), err error) {
	r.mu.Lock()
	r.users++
	r.mu.Unlock()
	leave = func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.users--
		r.used = time.Now()
	}
	if err := r.start(ctx); err != nil {
		leave()
		return nil, err
	}
	return leave, nil
}

func (r *renewer) running() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.run != nil || r.closed
}

// start starts the goroutine if it does not run. Who comes while another waits for
// the connection waits for that one, but no longer than its own ctx.
func (r *renewer) start(ctx context.Context) error {
	if r.running() {
		return nil
	}
	select {
	case r.starting <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("no connection for the renewals could be had from the pool: %w", ctx.Err())
	}
	defer func() { <-r.starting }()
	if r.running() {
		return nil
	}
	var conn *sqldb.Conn
	if r.l.db.Driver().MaxConns() != 1 {
		var err error
		if conn, err = r.l.db.Conn(ctx); err != nil {
			return err
		}
	}
	g := &run{r: r, conn: conn, wake: make(chan struct{}, 1), quit: make(chan struct{}), stopped: make(chan struct{})}
	g.ctx, g.cancel = context.WithCancel(context.Background())
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		g.cancel()
		g.putConn(false)
		return nil
	}
	r.run, r.next = g, time.Time{}
	r.l.work()
	go g.loop()
	return nil
}

// add has a lock renewed. The goroutine runs: the Acquire that brings the lock has
// entered.
func (r *renewer) add(h *held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.locks[h] = struct{}{}
	// Else it wakes in time by itself: a lock that is held for a moment wakes nobody.
	if h.dueAt().Before(r.next) {
		r.signal()
	}
}

// signal wakes the goroutine. r.mu is held.
func (r *renewer) signal() {
	if r.run == nil {
		return
	}
	select {
	case r.run.wake <- struct{}{}:
	default:
	}
}

// remove ends the renewal of a lock, and returns when no renewal of it is under
// way, or ctx has ended: on MySQL and MariaDB a release skips a row that is just
// being renewed.
func (r *renewer) remove(ctx context.Context, h *held) {
	r.mu.Lock()
	delete(r.locks, h)
	h.answer(time.Time{}, lock.ErrReleased)
	r.used = time.Now()
	var landed chan struct{}
	if r.flight.has(h) {
		landed = r.flight.landed
	}
	r.mu.Unlock()
	if landed == nil {
		return
	}
	select {
	case <-landed:
	case <-ctx.Done():
	}
}

// forget ends the renewal of a lock that was lost, from whatever goroutine.
func (r *renewer) forget(h *held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.locks, h)
	h.answer(time.Time{}, lock.ErrLost)
}

// stop ends the goroutine, and waits for it until ctx ends. A renewal that is under
// way has a moment to come to its end; then it is given up.
func (r *renewer) stop(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	g := r.run
	r.run = nil
	r.mu.Unlock()
	if g == nil {
		return
	}
	close(g.quit)
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-g.stopped:
		return
	case <-timer.C:
	}
	g.cancel()
	select {
	case <-g.stopped:
	case <-ctx.Done():
	}
}

// loop renews until it is told to quit, or has had nothing to do for a while.
func (g *run) loop() {
	defer g.r.l.done()
	defer close(g.stopped)
	defer g.cancel()
	defer g.putConn(false)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-g.quit:
			return
		default:
		}
		f, next := g.r.due()
		if f != nil {
			g.renew(f)
			continue
		}
		timer.Reset(time.Until(next))
		select {
		case <-g.quit:
			return
		case <-g.wake:
		case <-timer.C:
			if g.ended() {
				return
			}
		}
	}
}

// ended lets the goroutine end if there is nothing to renew, and nobody who may
// bring something; enter starts another.
func (g *run) ended() bool {
	r := g.r
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.locks) > 0 || r.users > 0 || time.Since(r.used) < idle || r.run != g {
		return false
	}
	r.run = nil
	return true
}

// due makes a batch of the locks to be renewed now; nil, and when the next one is,
// if there is none. With one that is due go all that will be within half their
// interval: so locks that were had at different times come together in one
// statement. Rows that were skipped go apart, so that a lock whose end is near
// because a transaction pins it hurries no others.
func (r *renewer) due() (f *flight, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	var any, apart bool
	for h := range r.locks {
		if h.finished(now) {
			continue
		}
		at := h.dueAt()
		if !at.After(now) {
			any, apart = true, h.skips > 0 && (apart || !any)
		}
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if !any {
		if next.IsZero() {
			next = now.Add(idle)
		}
		r.next = next
		return nil, next
	}
	var batch []*held
	for h := range r.locks {
		if h.finished(now) || h.skips > 0 != apart || h.dueAt().Sub(now) > h.ttl/6 || apart && h.dueAt().After(now) {
			continue
		}
		batch = append(batch, h)
	}
	slices.SortFunc(batch, func(a, b *held) int { return a.sent.Compare(b.sent) })
	batch = batch[:min(len(batch), maxBatch)]
	// It is noted here, under the same lock, which are under way: a release that came
	// between would not wait for the renewal, and skip the row.
	f = &flight{limit: now.Add(lock.ReleaseBound), landed: make(chan struct{})}
	for _, h := range batch {
		f.batch = append(f.batch, renewal{h, h.want, h.waiters})
		h.waiters = nil
		// Half of what is left: if the connection is dead, there is time for another.
		until := h.trusted()
		if half := now.Add(max(until.Sub(now)/2, min(20*time.Millisecond, until.Sub(now)))); half.Before(f.limit) {
			f.limit = half
		}
	}
	r.flight = f
	return f, next
}

func (g *run) putConn(discard bool) {
	if g.conn == nil {
		return
	}
	if discard {
		_ = g.conn.Discard()
	} else {
		_ = g.conn.Close()
	}
	g.conn = nil
}
