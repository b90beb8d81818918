package sqllock

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// identity is what a row is known by, and the same as arguments of statements.
type identity struct {
	name, owner       string
	nameArg, ownerArg any
}

func (l *Locker) identity(name, owner string) identity {
	return identity{name, owner, l.text(name), l.text(owner)}
}

// held is a lock that was granted: what [lock.Lock] asks of the strategy.
type held struct {
	l *Locker
	identity
	token   int64
	atMost  time.Duration // 0: no end but the lease's
	noRenew bool
	handle  *lock.Lock
	ctrl    *lock.Controller
	trace   *lock.Trace

	// first is when the grant was sent.
	first time.Time

	// What follows is changed by renewals, under the renewer's mutex once the lock is
	// known to it. The lease that can be trusted was asked for at sent, and is ttl
	// long; the next one that is asked for is want long.
	sent      time.Time
	ttl, want time.Duration
	least     time.Duration // the shortest lease that was asked for without an answer; 0: none
	retry     time.Time     // a renewal has failed, or the row was skipped: try again then
	skips     int           // how often the row was skipped, one after the other
	waiters   []chan extension

	extending sync.Mutex // held while a statement of Extend runs, for a lock that is not renewed
}

var _ lock.Strategy = (*held)(nil)

// lease is how long the first lease is.
func (h *held) lease() time.Duration {
	if h.atMost > 0 {
		return min(h.ttl, h.atMost)
	}
	return h.ttl
}

// trusted is until when the lease that was asked for at h.sent can be trusted.
//
// A statement without an answer may still be carried out, by a server that was
// paused, after a later one that gave a longer lease: so once a short lease was asked
// for without an answer, no longer one is trusted.
func (h *held) trusted() time.Time {
	ttl := h.ttl
	if h.least > 0 {
		ttl = min(ttl, h.least)
	}
	until := lock.TrustedUntil(h.sent, ttl)
	if h.atMost > 0 {
		if end := lock.TrustedUntil(h.first, h.atMost); end.Before(until) {
			return end
		}
	}
	return until
}

// unsure notes that a lease of ttl was asked for, and no answer came.
func (h *held) unsure(ttl time.Duration) {
	if h.least == 0 || ttl < h.least {
		h.least = ttl
	}
}

// dueAt is when the lock is to be renewed: when a third of its TTL has passed, or
// a little after an attempt that failed.
func (h *held) dueAt() time.Time {
	if len(h.waiters) > 0 {
		return h.sent
	}
	at := h.sent.Add(h.ttl / 3)
	if h.retry.After(at) {
		return h.retry
	}
	return at
}

// pause is how soon a renewal that has failed is tried again.
func (h *held) pause() time.Duration { return min(max(h.ttl/30, 10*time.Millisecond), time.Second) }

// finished reports whether no renewal can make the lock last longer: AtMost ends it
// first, or it has ended.
func (h *held) finished(now time.Time) bool {
	if !now.Before(h.trusted()) {
		return true
	}
	return h.atMost > 0 && !h.sent.Add(h.ttl).Before(h.first.Add(h.atMost))
}

func (h *held) values() values {
	return values{"name": h.nameArg, "owner": h.ownerArg, "token": h.token}
}

// Lost ends the renewal.
func (h *held) Lost() {
	h.l.renew.forget(h)
	h.l.remove(h)
}

// Release frees the row. It is forgotten in any case: nothing renews it any more.
func (h *held) Release(ctx context.Context) error {
	defer h.l.remove(h)
	if c := closingOf(ctx); c != nil {
		if err := c.enter(); err != nil {
			return err
		}
		defer c.leave()
		ctx = c.ctx
	}
	h.l.renew.remove(ctx, h)
	h.l.work() // Close waits for it
	defer h.l.done()
	return h.l.free(ctx, h.identity, h.token)
}

// How long a release that was skipped goes on trying: whoever tries in vain has the
// row for a moment on MySQL and MariaDB, and with many of them it is rarely alone; a
// guard has it for longer, and is not waited for.
const (
	pinnedAfter = 300 * time.Millisecond
	maxPause    = 20 * time.Millisecond
)

// free releases by identity, as often as it may help until ctx ends.
func (l *Locker) free(ctx context.Context, id identity, token int64) error {
	st := l.sql.release
	v := values{"name": id.nameArg, "owner": id.ownerArg, "token": token}
	unsure := false // a statement without an answer may have freed it
	retryable := again().Retryable
	var skipped time.Time
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		rows, err := l.send(ctx, "release "+id.name, st, v)
		switch {
		case err == nil && rows > 0:
			return nil
		case err == nil:
			_, ours, err := l.settle(ctx, id)
			switch {
			case err != nil:
				return err
			case !ours && unsure:
				return nil // an earlier statement, whose answer did not come, has freed it
			case !ours:
				return lock.ErrLost
			case skipped.IsZero():
				skipped = time.Now()
			case time.Since(skipped) > pinnedAfter:
				return errors.New("a transaction pins the row, most likely a guard of its own that has not ended")
			}
		case sqldb.Uncertain(err):
			unsure = true
		case !retryable(err): // a connection that had died in the pool is: nothing was sent
			return err
		}
		if ctx.Err() != nil {
			return errors.Join(ctx.Err(), err)
		}
		time.Sleep(pause)
	}
}

// send runs a statement that skips a row at which somebody is, and that does no harm
// whenever it is carried out: so ctx, which is not a caller's, may reach the driver,
// and no connection has to be held ready for ending the statement. On SQLite, where
// everything waits for one lock, it is a Change like the others.
func (l *Locker) send(ctx context.Context, op string, st stmt, v values) (rows int64, err error) {
	if l.db.Kind() == sqldb.SQLite {
		c, err := l.db.Change(ctx, sqldb.Change{Op: op, Query: st.query, Args: st.args(v)})
		if err != nil {
			return 0, err
		}
		return c.RowsAffected, nil
	}
	res, err := l.db.Exec(ctx, st.query, st.args(v)...)
	if l.skipped(err) {
		return 0, nil
	}
	return res.RowsAffected, err
}

// ReleaseIn frees the row with the caller's commit.
func (h *held) ReleaseIn(ctx context.Context, tx *sqldb.Tx) error {
	st := h.l.sql.releaseTx
	res, err := tx.Exec(ctx, st.query, st.args(h.values())...)
	switch {
	case err != nil:
		return h.l.explain(h.name, err)
	case res.RowsAffected == 0:
		return h.lostOrStale(ctx, tx)
	}
	h.l.renew.remove(ctx, h)
	h.l.remove(h)
	return nil
}
