package locktest

import (
	"crypto/rand"
	"errors"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/sqlnative/locks/lock"
)

// Memory is a lock table without a database. Its zero value is ready. Each
// [Memory.Locker] stands for one process; all options of package lock are
// honoured, and time is that of package time, so that a test in a bubble of
// testing/synctest need not wait for a TTL:
//
//	var m locktest.Memory
//	locker := m.Locker()
//	err := lock.Do(ctx, locker, "order:42", ship)
//
// Those who wait are served in their order, whatever Locker they wait at.
type Memory struct {
	// Faults make it break its promises: to see that a test notices. They are set
	// before the first lock.
	Faults Faults

	mu   sync.Mutex
	rows map[string]*row
}

// Faults are promises that a [Memory] breaks.
type Faults struct {
	DoubleGrant      bool // grants what another holds
	NoExpiry         bool // a lease never runs out for others
	TokenReset       bool // every token is 1
	ReleaseSuccessor bool // a late release frees the successor's lock
	RenewSuccessor   bool // a late renewal takes the lock back from the successor
	SilentLoss       bool // the holder is not told that it has lost the lock
	KeepGrant        bool // a grant to a ctx that is done is not given back
	LastFirst        bool // who came last is served first
	NoRenewal        bool // leases are not renewed
	ShortHold        bool // HoldAtLeast is forgotten on release
	Endless          bool // AtMost is forgotten
	LooseGuard       bool // Guard looks, and pins nothing
	EarlyRelease     bool // ReleaseIn does not wait for the commit
}

// row is what a name has, as a row of a lock table.
type row struct {
	token  int64
	grants []*held   // one, or several that are shared
	hold   time.Time // HoldAtLeast
	line   []*waiter // who waits, in order
}

type waiter struct{ wake chan struct{} }

// Locker returns one more Locker, as another process would have it. A wrong option
// is a panic.
func (m *Memory) Locker(opts ...lock.Option) lock.Locker {
	o, err := lock.Collect("locktest", features, nil, opts)
	if err != nil {
		panic("locktest: " + err.Error())
	}
	return &memoryLocker{m: m, base: opts, trace: o.Trace, closing: make(chan struct{}), held: map[*held]struct{}{}}
}

const features = lock.FeatureNoRenew | lock.FeatureAtMost | lock.FeatureHoldAtLeast | lock.FeatureShared

// Lose takes the lock of that name away from whoever holds it, who is told at once:
// to test what a program does when it loses a lock. It reports whether there was a
// holder.
func (m *Memory) Lose(name string) bool {
	gone := m.steal(name)
	for _, h := range gone {
		if h.ctrl != nil {
			h.ctrl.Lose("Memory.Lose took it away", nil)
		}
	}
	return len(gone) > 0
}

// steal is Lose without telling.
func (m *Memory) steal(name string) []*held {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.row(name)
	gone := r.grants
	r.grants, r.hold = nil, time.Time{}
	r.token++
	r.wake()
	return gone
}

// Break cuts a Locker off: nothing that it asks is answered but by an error, until
// heal is called. What it holds is lost when its lease has run out.
func (m *Memory) Break(l lock.Locker) (heal func()) {
	ml, ok := l.(*memoryLocker)
	if !ok || ml.m != m {
		panic("locktest: Break of a Locker that is not of this Memory")
	}
	set := func(broken bool) {
		m.mu.Lock()
		defer m.mu.Unlock()
		ml.broken = broken
	}
	set(true)
	return func() { set(false) }
}

var errBroken = errors.New("locktest: the Locker is cut off")

// row returns the row of a name. m.mu is held.
func (m *Memory) row(name string) *row {
	r := m.rows[name]
	if r == nil {
		if m.rows == nil {
			m.rows = map[string]*row{}
		}
		r = &row{token: time.Now().UnixMicro()}
		m.rows[name] = r
	}
	return r
}

// wake has the first in line look again.
func (r *row) wake() {
	if len(r.line) > 0 {
		select {
		case r.line[0].wake <- struct{}{}:
		default:
		}
	}
}

func (r *row) leave(w *waiter) {
	if i := slices.Index(r.line, w); i >= 0 {
		r.line = slices.Delete(r.line, i, i+1)
	}
	r.wake()
}

func (r *row) drop(h *held) bool {
	i := slices.Index(r.grants, h)
	if i < 0 {
		return false
	}
	r.grants = slices.Delete(r.grants, i, i+1)
	r.wake()
	return true
}

// busy says what keeps the row from being taken in a mode.
func (m *Memory) busy(name string, r *row, shared bool) *lock.HeldError {
	now := time.Now()
	if m.Faults.DoubleGrant {
		return nil
	}
	for _, h := range r.grants {
		if shared && h.shared || h.pins == 0 && !now.Before(h.expires) && !m.Faults.NoExpiry {
			continue
		}
		return &lock.HeldError{Name: name, Holder: h.holder, Token: h.token, Since: h.since, Left: h.expires.Sub(now)}
	}
	if now.Before(r.hold) {
		return &lock.HeldError{Name: name, Token: r.token, Left: r.hold.Sub(now)}
	}
	return nil
}

// take grants the row, or says what keeps it from being granted. m.mu is held.
func (m *Memory) take(l *memoryLocker, name string, o lock.Options) (*held, *lock.HeldError) {
	r := m.row(name)
	if e := m.busy(name, r, o.Shared); e != nil {
		return nil, e
	}
	now := time.Now()
	r.grants = slices.DeleteFunc(r.grants, func(h *held) bool { return h.pins == 0 && !now.Before(h.expires) })
	r.token = max(r.token+1, now.UnixMicro())
	if m.Faults.TokenReset {
		r.token = 1
	}
	if o.HoldAtLeast > 0 {
		r.hold = now.Add(o.HoldAtLeast)
	}
	host, _ := os.Hostname()
	h := &held{
		l: l, name: name, owner: rand.Text(), token: r.token, shared: o.Shared, noRenew: o.NoRenew, since: now, sent: now, ttl: o.TTL, trace: o.Trace,
		holder: lock.Holder{Host: host, PID: os.Getpid(), Label: o.Label},
	}
	if o.AtMost > 0 && !m.Faults.Endless {
		h.end = now.Add(o.AtMost)
		h.trustedEnd = lock.TrustedUntil(now, o.AtMost)
	}
	h.expires = earlier(now.Add(o.TTL), h.end)
	r.grants = append(r.grants, h)
	l.held[h] = struct{}{}
	return h, nil
}

// earlier is the earlier one; a zero time is never.
func earlier(a, b time.Time) time.Time {
	if b.IsZero() || a.Before(b) {
		return a
	}
	return b
}
