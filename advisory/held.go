package advisory

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// held is a lock that was granted, or is asked for: what [lock.Lock] asks of the
// strategy.
type held struct {
	l      *Locker
	s      *conn  // that holds it
	name   string // what people call it
	key    Key
	shared bool
	scope  any
	trace  *lock.Trace
	handle *lock.Lock
	ctrl   *lock.Controller
}

var _ lock.Strategy = (*held)(nil)

// Release gives it back. What the server has not answered when ctx ends, the session
// goes on with.
func (h *held) Release(ctx context.Context) error {
	defer h.l.forget(h)
	if c := closingOf(ctx); c != nil {
		ctx = c
	}
	err := h.s.do(ctx, &request{op: opUnlock, h: h, ctx: ctx})
	if errors.Is(err, errGone) {
		return lock.ErrLost // its session has ended before, and the lock with it
	}
	return err
}

// Lost ends the session: its clock has run out, so that the server has ended it, or is
// about to, and every other lock of it has run out too, or will. Not so if the lock was
// given back before, as Close does for one with further handles: then nothing is
// wrong with the session.
func (h *held) Lost() {
	h.l.forget(h)
	if h.s.has(h) {
		h.s.die("its pings were not answered in time", errSilent)
	}
}

// errSilent: no answer came.
var errSilent = errors.New("the server has not answered")

// ReleaseIn is for locks that are rows.
func (h *held) ReleaseIn(context.Context, *sqldb.Tx) error { return h.unsupported("ReleaseIn") }

// Guard is for locks that are rows.
func (h *held) Guard(context.Context, *sqldb.Tx) error { return h.unsupported("Guard") }

// Extend is for locks with a lease of their own.
func (h *held) Extend(context.Context, time.Duration) (time.Time, error) {
	return time.Time{}, h.unsupported("Extend")
}

func (h *held) unsupported(what string) error {
	return fmt.Errorf("lock: %q: an advisory lock has no %s: it is a session's, and no row; the lock table has it (sqllock.New): %w", h.name, what, errUnsupported)
}

func (h *held) tell(pick func(*lock.Trace) func(lock.Event), e lock.Event) {
	e.Name = h.name
	h.trace.Tell(pick, e)
}
