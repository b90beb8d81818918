package lock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// Margin is how much of a lease its holder does not trust: what it takes to stop.
func Margin(ttl time.Duration) time.Duration { return max(ttl/10, 50*time.Millisecond) }

// TrustedUntil is how long a holder may act on a lease that was granted or renewed
// by a statement that it began to send at sent, by its own monotonic clock.
func TrustedUntil(sent time.Time, ttl time.Duration) time.Time { return sent.Add(ttl - Margin(ttl)) }

// ReleaseBound is how long a release may take before the lock is left to its TTL.
const ReleaseBound = 5 * time.Second

// Strategy is what a strategy does with one lock that it has granted. It is called
// by [Lock]; deadlines, causes, counting and idempotence live there.
type Strategy interface {
	// Release gives the lock back: it ends its renewal first. It returns ErrLost if
	// the lock was no longer ours. ctx is detached and bounded.
	Release(ctx context.Context) error
	// ReleaseIn gives it back with the commit of the caller's transaction.
	ReleaseIn(ctx context.Context, tx *sqldb.Tx) error
	// Guard pins it inside the caller's transaction.
	Guard(ctx context.Context, tx *sqldb.Tx) error
	// Extend makes its lease ttl long from now, and returns until when that can be
	// trusted.
	Extend(ctx context.Context, ttl time.Duration) (time.Time, error)
	// Lost is told that the lock was lost, to end its renewal.
	Lost()
}

// Grant is a lock that a strategy has granted.
type Grant struct {
	Name  string
	Owner string
	Token int64
	// Scope is the Locker, for re-entrance; Shared is the mode.
	Scope  any
	Shared bool
	// Until is until when the lease can be trusted; zero: as long as nobody says
	// otherwise.
	Until time.Time
	Trace *Trace
}

// core is one granted lock, whatever the number of its handles.
type core struct {
	g        Grant
	s        Strategy
	acquired time.Time

	mu      sync.Mutex
	ctx     context.Context // ends with the lock; its cause says how. nil: nobody has asked for it
	end     context.CancelCauseFunc
	until   time.Time
	timer   *time.Timer
	err     error // nil while it is held; then *LostError or ErrReleased
	handles int
}

// Controller is how a strategy tells a lock what has become of it.
type Controller struct{ c *core }

// New makes the [*Lock] of a grant, and its Controller.
func New(g Grant, s Strategy) (*Lock, *Controller) {
	c := &core{g: g, s: s, acquired: time.Now()}
	l := c.handle() // before the timer, which may end the lock at once
	if !g.Until.IsZero() {
		c.mu.Lock()
		c.until = g.Until
		c.timer = time.AfterFunc(time.Until(g.Until), func() { _ = c.look() })
		c.mu.Unlock()
	}
	return l, &Controller{c}
}

// Renewed says that the lease can be trusted until then. It cannot bring back a
// lock that was lost meanwhile, and reports false for one.
func (t *Controller) Renewed(until time.Time) bool {
	c := t.c
	if c.look() != nil {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return false
	}
	c.until = until
	if c.timer == nil {
		c.timer = time.AfterFunc(time.Until(until), func() { _ = c.look() })
	} else {
		c.timer.Reset(time.Until(until))
	}
	return true
}

// Lose says that the lock is lost.
func (t *Controller) Lose(reason string, err error) { t.c.lose(reason, err) }

// look is what has become of the lock. It looks at the clock itself: code may run
// before the timer does.
func (c *core) look() error {
	c.mu.Lock()
	err, late := c.err, !c.until.IsZero() && !time.Now().Before(c.until)
	c.mu.Unlock()
	if err == nil && late {
		return c.lose("its lease could not be renewed in time", nil)
	}
	return err
}

// lose ends the lock as lost, once, and returns what it has ended as.
func (c *core) lose(reason string, cause error) error {
	c.mu.Lock()
	if c.err != nil {
		defer c.mu.Unlock()
		return c.err
	}
	lost := &LostError{Name: c.g.Name, Token: c.g.Token, Reason: reason, Err: cause}
	c.finish(lost)
	c.mu.Unlock()
	c.s.Lost()
	c.g.Trace.Tell(func(t *Trace) func(Event) { return t.Lost }, Event{Name: c.g.Name, Token: c.g.Token, Took: time.Since(c.acquired), Err: lost})
	return lost
}

// finish sets the end. c.mu is held.
func (c *core) finish(err error) {
	c.err = err
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.end != nil {
		c.end(err)
	}
}

// handle makes a further handle; nil if the lock has ended. c.mu is not held.
func (c *core) handle() *Lock {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return nil
	}
	c.handles++
	return &Lock{c: c}
}

// context is the ctx of one handle, made when somebody asks for it: a lock that is
// held for a moment is not asked.
func (l *Lock) context() context.Context {
	c := l.c
	c.mu.Lock()
	defer c.mu.Unlock()
	if l.ctx != nil {
		return l.ctx
	}
	if c.ctx == nil {
		c.ctx, c.end = context.WithCancelCause(context.Background())
		if c.err != nil {
			c.end(c.err)
		}
	}
	l.ctx, l.cancel = context.WithCancelCause(c.ctx)
	if l.gone {
		l.cancel(ErrReleased)
	}
	return l.ctx
}

// leave ends one handle.
func (l *Lock) leave() {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	l.gone = true
	if l.cancel != nil {
		l.cancel(ErrReleased)
	}
}

func (l *Lock) hasLeft() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.gone
}

// heldKey is the key of the locks that a ctx holds.
type heldKey struct{}

// chain is the list of them, the innermost first.
type chain struct {
	l    *Lock
	next *chain
}

// Enter is for strategies, at the beginning of Acquire: it looks whether ctx holds
// the lock already. With [Reentrant] the answer is a further handle, without it
// [ErrDeadlock]; nil and nil if ctx does not hold it.
func Enter(ctx context.Context, scope any, name string, o Options) (*Lock, error) {
	held, _ := ctx.Value(heldKey{}).(*chain)
	for ; held != nil; held = held.next {
		c := held.l.c
		if c.g.Scope != scope || c.g.Name != name {
			continue
		}
		err := held.l.Err()
		switch {
		case errors.Is(err, ErrReleased), err != nil && !o.Reentrant:
			continue // it is not held any more
		case err != nil:
			return nil, err
		case !o.Reentrant:
			return nil, fmt.Errorf("%w: %q; lock.Reentrant counts", ErrDeadlock, name)
		case c.g.Shared != o.Shared:
			return nil, fmt.Errorf("%w: %q, in the other mode", ErrDeadlock, name)
		}
		if l := c.handle(); l != nil {
			return l, nil
		}
	}
	return nil, nil
}
