package locktest

import (
	"context"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// held is one grant of a [Memory].
type held struct {
	l           *memoryLocker
	name, owner string
	token       int64
	shared      bool
	noRenew     bool
	holder      lock.Holder
	since       time.Time
	trace       *lock.Trace
	// end is AtMost, for others and, with a margin, for the holder; zero: none.
	end, trustedEnd time.Time

	// Under m.mu.
	handle  *lock.Lock
	ctrl    *lock.Controller
	expires time.Time
	sent    time.Time
	ttl     time.Duration
	pins    int // transactions that guard it
	renewal *time.Timer
	ended   bool
}

var _ lock.Strategy = (*held)(nil)

func (h *held) trusted() time.Time {
	return earlier(lock.TrustedUntil(h.sent, h.ttl), h.trustedEnd)
}

// ours reports whether the row still has this grant. m.mu is held.
func (h *held) ours() bool {
	for _, g := range h.l.m.row(h.name).grants {
		if g == h {
			return true
		}
	}
	return false
}

// finish ends the renewal. m.mu is held.
func (h *held) finish() {
	h.ended = true
	if h.renewal != nil {
		h.renewal.Stop()
	}
	delete(h.l.held, h)
}

// Lost ends the renewal.
func (h *held) Lost() {
	h.l.m.mu.Lock()
	defer h.l.m.mu.Unlock()
	if !h.l.m.Faults.RenewSuccessor {
		h.finish()
	}
}

// Release frees the row, unless it is another's.
func (h *held) Release(context.Context) error {
	m := h.l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	h.finish()
	if h.l.broken {
		return errBroken
	}
	r := m.row(h.name)
	if m.Faults.ShortHold {
		r.hold = time.Time{}
	}
	if m.Faults.ReleaseSuccessor && len(r.grants) > 0 {
		r.grants = r.grants[:0]
		r.wake()
		return nil
	}
	if !r.drop(h) {
		return lock.ErrLost
	}
	return nil
}

// Extend makes the lease ttl long from now.
func (h *held) Extend(_ context.Context, ttl time.Duration) (time.Time, error) {
	m := h.l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case h.l.broken:
		return time.Time{}, errBroken
	case !h.ours():
		return time.Time{}, lock.ErrLost
	}
	h.sent, h.ttl = time.Now(), ttl
	h.expires = earlier(h.sent.Add(ttl), h.end)
	if h.renewal != nil {
		h.renewal.Reset(ttl / 3)
	}
	return h.trusted(), nil
}

// renew runs when a third of the TTL has passed.
func (h *held) renew() {
	m := h.l.m
	m.mu.Lock()
	if h.ended || m.Faults.NoRenewal {
		m.mu.Unlock()
		return
	}
	h.l.tasks.Add(1)
	defer h.l.tasks.Done()
	sent, ours, broken := time.Now(), h.ours(), h.l.broken
	switch {
	case broken:
		h.renewal.Reset(max(h.ttl/30, time.Millisecond))
	case ours:
		h.sent, h.expires = sent, earlier(sent.Add(h.ttl), h.end)
		h.renewal.Reset(h.ttl / 3)
	case m.Faults.RenewSuccessor:
		m.row(h.name).grants = []*held{h}
		h.sent, h.expires = sent, sent.Add(h.ttl)
		h.renewal.Reset(h.ttl / 3)
	}
	until, silent := h.trusted(), m.Faults.SilentLoss
	m.mu.Unlock()
	switch {
	case broken:
		h.trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.RenewFailed }, lock.Event{Name: h.name, Token: h.token, Err: errBroken})
	case ours && silent:
	case ours && h.ctrl.Renewed(until):
		h.trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Renewed }, lock.Event{Name: h.name, Token: h.token, Took: time.Since(sent)})
	case !ours && !silent:
		h.ctrl.Lose("the row is another's", nil)
	}
}

// Guard pins the row in a transaction that [Memory.Begin] has begun. In one of a
// real database it looks, and pins nothing.
func (h *held) Guard(_ context.Context, tx *sqldb.Tx) error {
	m := h.l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if !h.ours() {
		return lock.ErrLost
	}
	if t, ok := tx.Driver().(*memoryTx); ok && !m.Faults.LooseGuard {
		h.pins++
		t.atEnd(func(bool) {
			h.pins--
			m.row(h.name).wake()
		})
	}
	return nil
}

// ReleaseIn frees the row with the commit of a transaction that [Memory.Begin] has
// begun, and at once in one of a real database.
func (h *held) ReleaseIn(_ context.Context, tx *sqldb.Tx) error {
	m := h.l.m
	m.mu.Lock()
	defer m.mu.Unlock()
	if !h.ours() {
		return lock.ErrLost
	}
	h.finish()
	t, ok := tx.Driver().(*memoryTx)
	if !ok || m.Faults.EarlyRelease {
		m.row(h.name).drop(h)
		return nil
	}
	h.pins++
	t.atEnd(func(committed bool) {
		h.pins--
		r := m.row(h.name)
		if committed {
			r.drop(h)
		}
		r.wake()
	})
	return nil
}
