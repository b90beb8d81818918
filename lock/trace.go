package lock

import (
	"context"
	"log/slog"
	"sync/atomic"
	"time"
)

// Trace is a set of functions that are told what happens to locks, as
// net/http/httptrace's is for requests. Any of them may be nil. They are called
// synchronously: they must be quick, be safe for concurrent use, and not call back
// into the lock.
type Trace struct {
	// Waiting: the lock was held at the first try, and is now waited for.
	Waiting func(e Event)
	// Acquired: it was granted. Event.Took is how long that took.
	Acquired func(e Event)
	// Refused: Acquire ends without the lock; Event.Err says why.
	Refused func(e Event)
	// Renewed: the lease was renewed. Event.Took is how long that took.
	Renewed func(e Event)
	// RenewFailed: a renewal failed, and is tried again until the lease can no longer
	// be trusted.
	RenewFailed func(e Event)
	// Lost: the lock was lost; Event.Err is the [*LostError].
	Lost func(e Event)
	// Released: it was released. Event.Took is for how long it was held.
	Released func(e Event)
	// ReleaseFailed: the database did not answer the release; the lock is left to its
	// TTL.
	ReleaseFailed func(e Event)
}

// Event says what a function of [Trace] is told.
type Event struct {
	Name  string
	Token int64
	Took  time.Duration
	Err   error
}

// And returns a Trace that tells both. Either may be nil.
func (t *Trace) And(u *Trace) *Trace {
	switch {
	case t == nil:
		return u
	case u == nil:
		return t
	}
	both := func(a, b func(Event)) func(Event) {
		switch {
		case a == nil:
			return b
		case b == nil:
			return a
		}
		return func(e Event) { a(e); b(e) }
	}
	return &Trace{
		Waiting: both(t.Waiting, u.Waiting), Acquired: both(t.Acquired, u.Acquired), Refused: both(t.Refused, u.Refused),
		Renewed: both(t.Renewed, u.Renewed), RenewFailed: both(t.RenewFailed, u.RenewFailed), Lost: both(t.Lost, u.Lost),
		Released: both(t.Released, u.Released), ReleaseFailed: both(t.ReleaseFailed, u.ReleaseFailed),
	}
}

// Tell calls the function that f picks, if there is one. It is for strategies.
func (t *Trace) Tell(pick func(*Trace) func(Event), e Event) {
	if t == nil {
		return
	}
	if f := pick(t); f != nil {
		f(e)
	}
}

// Stats counts what happens. Its zero value is ready; give its Trace to a Locker.
type Stats struct {
	Waiting, Acquired, Refused, Renewed, RenewFailed, Lost, Released, ReleaseFailed atomic.Int64
	// HeldFor is for how long the released locks were held, in total; WaitedFor how
	// long the granted ones took to be had. Nanoseconds.
	HeldFor, WaitedFor atomic.Int64
}

// Trace returns the Trace that counts into s.
func (s *Stats) Trace() *Trace {
	count := func(n, sum *atomic.Int64) func(Event) {
		return func(e Event) {
			n.Add(1)
			if sum != nil {
				sum.Add(int64(e.Took))
			}
		}
	}
	return &Trace{
		Waiting: count(&s.Waiting, nil), Acquired: count(&s.Acquired, &s.WaitedFor), Refused: count(&s.Refused, nil),
		Renewed: count(&s.Renewed, nil), RenewFailed: count(&s.RenewFailed, nil), Lost: count(&s.Lost, nil),
		Released: count(&s.Released, &s.HeldFor), ReleaseFailed: count(&s.ReleaseFailed, nil),
	}
}

// SlogTrace returns a Trace that logs: losses as errors, failed renewals and
// releases as warnings, the rest for debugging.
func SlogTrace(log *slog.Logger) *Trace {
	at := func(level slog.Level, msg string) func(Event) {
		return func(e Event) {
			attrs := []slog.Attr{slog.String("lock", e.Name)}
			if e.Token != 0 {
				attrs = append(attrs, slog.Int64("token", e.Token))
			}
			if e.Took != 0 {
				attrs = append(attrs, slog.Duration("took", e.Took))
			}
			if e.Err != nil {
				attrs = append(attrs, slog.String("error", e.Err.Error()))
			}
			log.LogAttrs(context.Background(), level, msg, attrs...)
		}
	}
	return &Trace{
		Waiting: at(slog.LevelDebug, "lock waiting"), Acquired: at(slog.LevelDebug, "lock acquired"), Refused: at(slog.LevelDebug, "lock refused"),
		Renewed: at(slog.LevelDebug, "lock renewed"), RenewFailed: at(slog.LevelWarn, "lock renewal failed"), Lost: at(slog.LevelError, "lock lost"),
		Released: at(slog.LevelDebug, "lock released"), ReleaseFailed: at(slog.LevelWarn, "lock release failed"),
	}
}
