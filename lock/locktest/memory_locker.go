package locktest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sqlnative/locks/lock"
)

// memoryLocker is one process.
type memoryLocker struct {
	m       *Memory
	base    []lock.Option
	trace   *lock.Trace
	closing chan struct{}
	tasks   sync.WaitGroup // renewals under way

	// Under m.mu.
	closed bool
	broken bool
	held   map[*held]struct{}
}

// Acquire is [lock.Locker]'s.
func (l *memoryLocker) Acquire(ctx context.Context, name string, opts ...lock.Option) (*lock.Lock, error) {
	o, err := lock.Collect("locktest", features, l.base, opts)
	if err = cmp.Or(err, lock.CheckName(name)); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil && !l.m.Faults.KeepGrant {
		return nil, fmt.Errorf("lock: %q: %w", name, err)
	}
	if again, err := lock.Enter(ctx, l, name, o); again != nil || err != nil {
		return again, err
	}
	begun := time.Now()
	got, err := l.wait(ctx, name, o, begun)
	e := lock.Event{Name: name, Took: time.Since(begun), Err: err}
	if err != nil {
		o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Refused }, e)
		return nil, err
	}
	e.Token = got.Token()
	o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Acquired }, e)
	return got, nil
}

// wait stands in line until the lock is granted or the waiting ends.
func (l *memoryLocker) wait(ctx context.Context, name string, o lock.Options, begun time.Time) (*lock.Lock, error) {
	m := l.m
	var enough <-chan time.Time
	if o.Wait > 0 && o.Wait != lock.Forever {
		timer := time.NewTimer(o.Wait)
		defer timer.Stop()
		enough = timer.C
	}
	me := &waiter{wake: make(chan struct{}, 1)}
	m.mu.Lock()
	r := m.row(name)
	switch {
	case o.Wait == 0: // asks once, without standing in line
	case m.Faults.LastFirst && len(r.line) > 0:
		r.line = slices.Insert(r.line, 1, me)
	default:
		r.line = append(r.line, me)
	}
	m.mu.Unlock()
	defer func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		r.leave(me)
	}()
	var refused *lock.HeldError
	for told := false; ; told = told || refused != nil {
		m.mu.Lock()
		var h *held
		closed, broken := l.closed, l.broken
		if !closed && !broken && (o.Wait == 0 || r.line[0] == me) {
			h, refused = m.take(l, name, o)
		} else {
			refused = m.busy(name, r, o.Shared)
		}
		m.mu.Unlock()
		switch {
		case closed:
			return nil, fmt.Errorf("lock: %q: %w", name, lock.ErrClosed)
		case broken:
			return nil, fmt.Errorf("lock: %q: %w", name, errBroken)
		case h != nil:
			return l.grant(ctx, h)
		case o.Wait == 0:
			return nil, refused
		}
		soon := time.Hour
		if refused != nil {
			soon = max(refused.Left, time.Millisecond)
			if !told {
				o.Trace.Tell(func(t *lock.Trace) func(lock.Event) { return t.Waiting }, lock.Event{Name: name, Err: refused})
			}
		}
		free := time.NewTimer(soon)
		var over bool
		select {
		case <-me.wake:
		case <-free.C:
		case <-l.closing:
		case <-enough:
			over = true
		case <-ctx.Done():
			over = true
		}
		free.Stop()
		if over {
			e := cmp.Or(refused, &lock.HeldError{Name: name})
			e.Waited, e.Err = time.Since(begun), ctx.Err()
			return nil, e
		}
	}
}

// grant makes the lock of a grant, unless ctx is done: that wins.
func (l *memoryLocker) grant(ctx context.Context, h *held) (*lock.Lock, error) {
	if err := ctx.Err(); err != nil {
		if !l.m.Faults.KeepGrant {
			_ = h.Release(ctx)
		}
		return nil, fmt.Errorf("lock: %q: %w", h.name, err)
	}
	g := lock.Grant{Name: h.name, Owner: h.owner, Token: h.token, Scope: l, Shared: h.shared, Until: h.trusted(), Trace: h.trace}
	if l.m.Faults.SilentLoss {
		g.Until = time.Time{}
	}
	got, ctrl := lock.New(g, h)
	l.m.mu.Lock()
	h.handle, h.ctrl = got, ctrl
	closed := l.closed
	if !closed && !h.ended && !h.noRenew {
		h.renewal = time.AfterFunc(h.ttl/3, h.renew)
	}
	l.m.mu.Unlock()
	if closed { // meanwhile
		_ = got.Release(ctx)
		return nil, fmt.Errorf("lock: %q: %w", h.name, lock.ErrClosed)
	}
	return got, nil
}

// Close is [lock.Locker]'s.
func (l *memoryLocker) Close() error {
	l.m.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.closing)
	}
	var all []*lock.Lock
	for h := range l.held {
		if h.handle != nil {
			all = append(all, h.handle)
		}
	}
	l.m.mu.Unlock()
	var failed error
	for _, h := range all {
		if err := h.Release(context.Background()); err != nil && !errors.Is(err, lock.ErrLost) {
			failed = errors.Join(failed, err)
		}
	}
	l.tasks.Wait()
	return failed
}
