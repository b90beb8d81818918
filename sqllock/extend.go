package sqllock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// extension is the answer to an Extend of a lock that is renewed.
type extension struct {
	until time.Time
	err   error
}

// Extend makes the lease ttl long from now.
//
// For a lock that is renewed it is a renewal, with another TTL: were it a statement
// of its own, a renewal that was sent before and is carried out after it would give
// the short lease back, and the long one would be trusted.
func (h *held) Extend(ctx context.Context, ttl time.Duration) (time.Time, error) {
	if h.atMost > 0 {
		return time.Time{}, fmt.Errorf("lock: %q was acquired with AtMost, and cannot be extended: %w", h.name, errors.ErrUnsupported)
	}
	if h.noRenew {
		return h.extendAlone(ctx, ttl)
	}
	done := make(chan extension, 1)
	r := &h.l.renew
	r.mu.Lock()
	_, held := r.locks[h]
	if held {
		h.want = ttl
		h.waiters = append(h.waiters, done)
		r.signal()
	}
	r.mu.Unlock()
	if !held {
		return time.Time{}, fmt.Errorf("lock: %q: %w", h.name, lock.ErrReleased)
	}
	select {
	case e := <-done:
		if e.err != nil && !errors.Is(e.err, lock.ErrLost) {
			return time.Time{}, h.l.explain(h.name, e.err)
		}
		return e.until, e.err
	case <-ctx.Done():
		return time.Time{}, fmt.Errorf("lock: %q: it may or may not have been extended: %w", h.name, ctx.Err())
	}
}

// tell answers those who wait for this renewal.
func (m renewal) tell(until time.Time, err error) {
	for _, w := range m.waiters {
		w <- extension{until, err}
	}
}

// answer answers those who wait for a renewal that will not be. The renewer's mutex
// is held.
func (h *held) answer(until time.Time, err error) {
	renewal{waiters: h.waiters}.tell(until, err)
	h.waiters = nil
}

// extendAlone extends a lock that nothing renews.
func (h *held) extendAlone(ctx context.Context, ttl time.Duration) (time.Time, error) {
	// Two at once would be noted in another order than they were carried out.
	h.extending.Lock()
	defer h.extending.Unlock()
	l, st := h.l, h.l.sql.extend
	v := h.values()
	v["ttl"] = ttl.Microseconds()
	begun := time.Now()
	for pause := time.Millisecond; ; pause = min(2*pause, maxPause) {
		var c *sqldb.Changed
		err := sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) (err error) {
			c, err = l.change(ctx, sqldb.Change{Op: "extend " + h.name, Query: st.query, Args: st.args(v)})
			return err
		})
		if sqldb.Uncertain(err) {
			h.unsure(ttl)
		}
		if err != nil {
			return time.Time{}, l.explain(h.name, err)
		}
		if c.RowsAffected > 0 {
			h.sent, h.ttl = c.Sent, ttl
			return h.trusted(), nil
		}
		switch _, ours, err := l.settle(ctx, h.identity); {
		case err != nil:
			return time.Time{}, l.explain(h.name, err)
		case !ours:
			return time.Time{}, lock.ErrLost
		case time.Since(begun) > pinnedAfter:
			return time.Time{}, fmt.Errorf("lock: %q: %w", h.name, errPinned)
		}
		time.Sleep(pause)
	}
}
