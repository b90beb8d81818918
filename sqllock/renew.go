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
)

// renewer renews the locks of a Locker: one goroutine, one connection, one
// statement for all that are due. It runs from just before the first lock until
// there has been none for a while.
type renewer struct {
	l *Locker

	starting sync.Mutex // held while the goroutine is being started

	mu      sync.Mutex
	locks   map[*held]struct{}
	flying  map[*held]struct{} // the batch whose renewal is under way
	landed  chan struct{}      // closed when that has ended
	wake    chan struct{}      // capacity 1: something has changed; nil: it is not running
	quit    chan struct{}
	stopped chan struct{} // closed when the goroutine has ended
	used    time.Time     // when it was last needed
	closed  bool

	conn *sqldb.Conn // the goroutine's own
}

// start makes sure that the goroutine runs, with a connection of its own: had
// before the lock, it cannot be missing when the first renewal is due.
func (r *renewer) start(ctx context.Context) error {
	r.mu.Lock()
	r.used = time.Now()
	running := r.wake != nil || r.closed
	r.mu.Unlock()
	if running {
		return nil
	}
	r.starting.Lock()
	defer r.starting.Unlock()
	r.mu.Lock()
	running = r.wake != nil || r.closed
	r.mu.Unlock()
	if running {
		return nil
	}
	var conn *sqldb.Conn
	if r.l.db.Driver().MaxConns() != 1 {
		var err error
		if conn, err = r.l.db.Conn(ctx); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		if conn != nil {
			_ = conn.Close()
		}
		return nil
	}
	r.conn, r.used = conn, time.Now()
	r.wake, r.quit, r.stopped = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go r.run(r.wake, r.quit, r.stopped)
	return nil
}

// add has a lock renewed.
func (r *renewer) add(h *held) {
	r.mu.Lock()
	if r.locks == nil {
		r.locks = map[*held]struct{}{}
	}
	r.locks[h] = struct{}{}
	running := r.wake != nil
	if running {
		r.signal()
	}
	r.mu.Unlock()
	if !running { // it had ended while the lock was waited for
		ctx, cancel := context.WithDeadline(context.Background(), h.sent.Add(h.ttl/3))
		defer cancel()
		if r.start(ctx) != nil {
			r.startPoor()
		}
	}
}

// startPoor starts the goroutine without a connection of its own.
func (r *renewer) startPoor() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wake != nil || r.closed {
		return
	}
	r.wake, r.quit, r.stopped = make(chan struct{}, 1), make(chan struct{}), make(chan struct{})
	go r.run(r.wake, r.quit, r.stopped)
}

func (r *renewer) signal() {
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// remove ends the renewal of a lock, and returns when no renewal of it is under
// way: on MySQL and MariaDB a release skips a row that is just being renewed.
func (r *renewer) remove(h *held) {
	r.mu.Lock()
	delete(r.locks, h)
	r.used = time.Now()
	var landed chan struct{}
	if _, flies := r.flying[h]; flies {
		landed = r.landed
	}
	r.mu.Unlock()
	if landed != nil {
		<-landed // bounded by the renewal's own deadline
	}
}

// forget ends the renewal of a lock that was lost, from whatever goroutine.
func (r *renewer) forget(h *held) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.locks, h)
}

// extended notes a lease that [held.Extend] has made, and returns until when it can
// be trusted.
func (r *renewer) extended(h *held, sent time.Time, ttl time.Duration) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	h.sent, h.ttl = sent, ttl
	if r.wake != nil {
		r.signal()
	}
	return h.trusted()
}

// stop ends the goroutine, and waits for it.
func (r *renewer) stop() {
	r.mu.Lock()
	quit, stopped := r.quit, r.stopped
	r.quit, r.closed = nil, true
	r.mu.Unlock()
	if quit != nil {
		close(quit)
	}
	if stopped != nil {
		<-stopped
	}
}

// run renews until it is told to quit, or has had nothing to do for a while.
func (r *renewer) run(wake, quit, stopped chan struct{}) {
	defer close(stopped)
	defer r.putConn(false)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		due, next := r.due()
		if len(due) > 0 {
			r.renew(due)
			continue
		}
		if next.IsZero() {
			next = time.Now().Add(idle)
		}
		timer.Reset(time.Until(next))
		select {
		case <-quit:
			return
		case <-wake:
		case <-timer.C:
			if r.ended() {
				return
			}
		}
	}
}

// ended lets the goroutine end if there is nothing to renew; add starts another.
func (r *renewer) ended() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.locks) > 0 || time.Since(r.used) < idle {
		return false
	}
	r.wake, r.quit, r.stopped = nil, nil, nil
	return true
}

// dueAt is when the lock is to be renewed: when a third of its TTL has passed, or
// a little after an attempt that failed.
func (h *held) dueAt() time.Time {
	at := h.sent.Add(h.ttl / 3)
	if h.retry.After(at) {
		return h.retry
	}
	return at
}

// due returns the locks to be renewed now, or when the next one is. With one that
// is due go all that will be within half their interval: so locks that were had at
// different times come together in one statement.
func (r *renewer) due() (due []*held, next time.Time) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	any := false
	for h := range r.locks {
		at := h.dueAt()
		any = any || !at.After(now)
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	if !any {
		return nil, next
	}
	for h := range r.locks {
		if h.dueAt().Sub(now) <= h.ttl/6 {
			due = append(due, h)
		}
	}
	slices.SortFunc(due, func(a, b *held) int { return a.sent.Compare(b.sent) })
	return due[:min(len(due), maxBatch)], next
}

// fly notes which renewals are under way, until the function that it returns is
// called.
func (r *renewer) fly(batch []*held) (land func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.flying, r.landed = make(map[*held]struct{}, len(batch)), make(chan struct{})
	for _, h := range batch {
		r.flying[h] = struct{}{}
	}
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.flying = nil
		close(r.landed)
	}
}

// renew renews a batch by one statement. How long that may take, the first lease
// to run out says.
func (r *renewer) renew(batch []*held) {
	sent := time.Now()
	r.mu.Lock()
	limit := sent.Add(lock.ReleaseBound)
	for _, h := range batch {
		if until := h.trusted(); until.Before(limit) {
			limit = until
		}
	}
	r.mu.Unlock()
	ctx, cancel := context.WithDeadline(context.Background(), limit)
	defer cancel()
	land := r.fly(batch)
	renewed, missing, err := r.ask(ctx, batch)
	land()
	if err != nil {
		r.putConn(true)
		r.failed(batch, sent, err)
		r.takeConn()
		return
	}
	for _, h := range renewed {
		r.mu.Lock()
		_, still := r.locks[h]
		if still {
			h.sent, h.retry = sent, time.Time{}
		}
		until := h.trusted()
		r.mu.Unlock()
		if still && h.ctrl.Renewed(until) {
			h.trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Renewed }, lock.Event{Name: h.name, Token: h.token, Took: time.Since(sent)})
		}
	}
	for _, h := range missing.lost {
		r.mu.Lock()
		_, still := r.locks[h]
		r.mu.Unlock()
		if still {
			h.ctrl.Lose("the row is another's: its lease had run out, or somebody has taken it away", nil)
		}
	}
	if len(missing.skipped) > 0 {
		r.failed(missing.skipped, sent, fmt.Errorf("the row is pinned by a transaction, most likely a guard"))
	}
}

// failed has locks tried again soon; their own deadline ends that.
func (r *renewer) failed(batch []*held, sent time.Time, err error) {
	for _, h := range batch {
		r.mu.Lock()
		pause := min(max(h.ttl/30, 10*time.Millisecond), time.Second)
		h.retry = time.Now().Add(pause)
		r.mu.Unlock()
		h.trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.RenewFailed }, lock.Event{Name: h.name, Token: h.token, Took: time.Since(sent), Err: err})
	}
}

// unrenewed are the locks of a batch that were not renewed.
type unrenewed struct{ lost, skipped []*held }

type key struct {
	name  string
	token int64
}

// runner is where a renewal runs: the renewer's connection, or the pool if it has
// but one.
type runner interface {
	Exec(ctx context.Context, query string, args ...any) (sqldb.Result, error)
	Query(ctx context.Context, query string, args ...any) (*sqldb.Rows, error)
}

func (r *renewer) runner() runner {
	if r.conn != nil {
		return r.conn
	}
	return r.l.db
}

// ask sends the renewal, and finds out what became of each.
func (r *renewer) ask(ctx context.Context, batch []*held) (renewed []*held, missing unrenewed, err error) {
	byKey := make(map[key]*held, len(batch))
	for _, h := range batch {
		byKey[key{h.name, h.token}] = h
	}
	began := time.Now()
	query, args := r.l.sql.renew(batch)
	if !r.l.sql.returning {
		res, err := r.runner().Exec(ctx, query, args...)
		if err != nil {
			return nil, missing, err
		}
		if int(res.RowsAffected) == len(batch) {
			return batch, missing, nil
		}
		// Some were not. Those that were have at least their TTL left, less what has
		// passed since: by the database's clock, and by ours for the time between.
		left := map[key]time.Duration{}
		query, args = r.l.sql.renewed(batch)
		err = r.rows(ctx, query, args, 3, func(k key, us int64) { left[k] = time.Duration(us) * time.Microsecond })
		if err != nil {
			return nil, missing, err
		}
		passed := time.Since(began)
		for k, h := range byKey {
			switch l, ours := left[k]; {
			case !ours:
				missing.lost = append(missing.lost, h)
			case l >= h.lease()-passed:
				renewed = append(renewed, h)
			default:
				missing.skipped = append(missing.skipped, h)
			}
		}
		return renewed, missing, nil
	}
	err = r.rows(ctx, query, args, 2, func(k key, _ int64) {
		if h := byKey[k]; h != nil {
			renewed = append(renewed, h)
			delete(byKey, k)
		}
	})
	if err != nil || len(byKey) == 0 {
		return renewed, missing, err
	}
	ours := map[key]bool{}
	query, args = r.l.sql.renewed(batch)
	if err := r.rows(ctx, query, args, 2, func(k key, _ int64) { ours[k] = true }); err != nil {
		return nil, missing, err
	}
	for k, h := range byKey {
		if ours[k] {
			missing.skipped = append(missing.skipped, h)
		} else {
			missing.lost = append(missing.lost, h)
		}
	}
	return renewed, missing, nil
}

// rows reads name, token and, if there are three columns, a number.
func (r *renewer) rows(ctx context.Context, query string, args []any, columns int, f func(key, int64)) error {
	rows, err := r.runner().Query(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var k key
		var n int64
		dest := []any{&k.name, &k.token, &n}
		if err := rows.Scan(dest[:columns]...); err != nil {
			return err
		}
		f(k, n)
	}
	return rows.Err()
}

// takeConn takes the renewer's connection out of the pool, unless the pool has but
// one. It is had while the lock is young; if it cannot be had, the pool serves.
func (r *renewer) takeConn() {
	if r.conn != nil || r.l.db.Driver().MaxConns() == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if c, err := r.l.db.Conn(ctx); err == nil {
		r.conn = c
	}
}

func (r *renewer) putConn(discard bool) {
	if r.conn == nil {
		return
	}
	if discard {
		_ = r.conn.Discard()
	} else {
		_ = r.conn.Close()
	}
	r.conn = nil
}
