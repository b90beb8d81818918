package sqllock

import (
	"cmp"
	"context"
	"crypto/rand"
	"math"
	"slices"
	"sync"
	"time"

	mathrand "math/rand/v2"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// How waiters are shown: who has waited for showAfter gets a row that expires after
// showFor, and is moved on when a third of that has passed.
const (
	showAfter = time.Second
	showFor   = 15 * time.Second
)

// announceBound is how long one statement about waiters may take. It is short, since in
// a pool of one connection it has what the waiters' own tries need.
const announceBound = time.Second

// announcer writes the rows of those who wait: one goroutine for a Locker, which runs
// while somebody is shown, and one statement for all whose rows are due. It is not the
// renewer that does it, though that has a goroutine and a connection: a table of
// tickets that does not answer would keep locks from being renewed.
type announcer struct {
	l          *Locker
	after, ttl time.Duration
	bound      time.Duration // of one statement
	wake       chan struct{} // capacity 1

	mu      sync.Mutex
	running bool
	closing bool
	shown   map[*waiter]struct{} // who has waited for long enough, and whose rows are to go
	quiet   time.Time            // nothing is sent before: a statement has failed
}

// waiter is an Acquire that waits.
//
// Its number is negative: positive ones are places in a queue, given out in order by
// the row of the lock. These stand in no queue: they are drawn, so that nobody has to
// be asked for one.
type waiter struct {
	name, owner, holder string
	ticket              int64
	begun               time.Time

	// Under the announcer's mutex.
	gone    bool      // it does not wait any more
	written bool      // there may be a row
	next    time.Time // when the row is to be written or moved on
}

// waits has an Acquire be shown once it has waited for long enough, until the end of
// its waiting, when left is called. Neither waits for the database.
func (a *announcer) waits(name string, o lock.Options, begun time.Time) (left func()) {
	if o.Own(showWaiters) == nil {
		return func() {}
	}
	w := &waiter{name: name, holder: a.l.me(o.Label), begun: begun}
	timer := time.AfterFunc(time.Until(begun.Add(a.after)), func() { a.show(w) })
	return func() {
		timer.Stop()
		a.hide(w)
	}
}

// show has the goroutine write a row for w, and starts it if it does not run.
func (a *announcer) show(w *waiter) {
	w.owner, w.ticket = rand.Text(), -1-mathrand.Int64N(math.MaxInt64)
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.gone {
		return
	}
	w.next = time.Now()
	a.shown[w] = struct{}{}
	if !a.running {
		a.running = true
		a.l.work() // Close waits for it: the Acquire is under way, so it comes in time
		go a.loop()
	}
	a.signal()
}

// hide has the goroutine remove the row of w, if there may be one.
func (a *announcer) hide(w *waiter) {
	a.mu.Lock()
	defer a.mu.Unlock()
	w.gone = true
	if _, ok := a.shown[w]; ok {
		a.signal()
	}
}

// close has what is left removed now: the Locker is closed.
func (a *announcer) close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closing = true
	a.signal()
}

// signal wakes the goroutine. a.mu is held.
func (a *announcer) signal() {
	select {
	case a.wake <- struct{}{}:
	default:
	}
}

// loop runs until nobody is shown any more.
func (a *announcer) loop() {
	defer a.l.done()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		show, hide, next, ok := a.due()
		switch {
		case !ok:
			return
		case len(hide) > 0:
			a.land(nil, a.send("hide waiters", a.l.sql.hide, hide))
		case len(show) > 0:
			a.land(show, a.send("show waiters", a.l.sql.show, show))
		default:
			timer.Reset(time.Until(next))
			select {
			case <-a.wake:
			case <-timer.C:
			}
		}
	}
}

// due is whose rows are to be removed now, else whose are to be written, else when the
// next one is; ok is false when there is nobody left, and the goroutine ends. With a
// row that is due go all that will be within half their interval, as renewals do.
//
// When a statement has failed, none is sent for an interval, whoever comes or goes, until
// the Locker is closed: with a pool of one connection, tries that take long would leave
// nothing to the waiters. A row whose removal has failed is left to its expiry.
func (a *announcer) due() (show, hide []*waiter, next time.Time, ok bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	quiet := now.Before(a.quiet) && !a.closing
	for w := range a.shown {
		switch {
		case !w.gone:
			if next.IsZero() || w.next.Before(next) {
				next = w.next
			}
			if !w.next.After(now.Add(a.ttl / 6)) {
				show = append(show, w)
			}
			continue
		case w.written && (quiet || len(hide) == maxBatch):
			continue
		case w.written:
			hide = append(hide, w)
		}
		delete(a.shown, w)
	}
	if quiet && next.Before(a.quiet) {
		next = a.quiet
	}
	if len(a.shown)+len(hide) == 0 {
		a.running = false
		return nil, nil, next, false
	}
	if len(hide) > 0 || next.After(now) {
		return nil, hide, next, true
	}
	slices.SortFunc(show, func(v, w *waiter) int { return v.next.Compare(w.next) })
	show = show[:min(len(show), maxBatch)]
	for _, w := range show {
		w.next = now.Add(a.ttl / 3)
	}
	return show, nil, next, true
}

// land notes what has become of a statement, and of the rows of those who are to be
// shown. A database that has no table, or gives no right to it, is not asked again for
// those.
func (a *announcer) land(show []*waiter, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if err != nil && !refuses(err) {
		a.quiet = time.Now().Add(a.ttl / 3)
	}
	for _, w := range show {
		if refuses(err) {
			delete(a.shown, w)
		}
		w.written = w.written || err == nil || sqldb.Uncertain(err)
	}
}

// refuses reports whether the database has no such table, or gives no right to it.
func refuses(err error) bool {
	switch sqldb.ClassOf(err) {
	case sqldb.NoTable, sqldb.NoColumn, sqldb.NoSchema, sqldb.Denied:
		return true
	}
	return false
}

// send runs a statement about the rows of batch. They are sorted: on InnoDB two that
// met in opposite orders at a gap between rows would deadlock.
func (a *announcer) send(op string, st func(batch []*waiter, ttl int64) (string, []any), batch []*waiter) error {
	slices.SortFunc(batch, func(v, w *waiter) int { return cmp.Or(cmp.Compare(v.name, w.name), cmp.Compare(v.ticket, w.ticket)) })
	ctx, cancel := context.WithTimeout(context.Background(), a.bound)
	defer cancel()
	query, args := st(batch, a.ttl.Microseconds())
	return sqldb.Retry(ctx, again(), func(ctx context.Context) error {
		_, err := a.l.db.Change(ctx, sqldb.Change{Op: op, Query: query, Args: args, Grace: cancelGrace})
		return err
	})
}
