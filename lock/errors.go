package lock

import (
	"errors"
	"fmt"
	"time"
)

// What [errors.Is] tells apart.
var (
	// ErrHeld: another holder has the lock. The error is a [*HeldError].
	ErrHeld = errors.New("lock: held by another")
	// ErrLost: the lock is no longer ours: its lease has run out before it could be
	// renewed, or somebody has taken it away. The error is a [*LostError].
	ErrLost = errors.New("lock: lost")
	// ErrReleased: the lock was released before.
	ErrReleased = errors.New("lock: released")
	// ErrDeadlock: the ctx of an Acquire holds this very lock already; to wait for it
	// would be to wait for oneself. [Reentrant] counts instead.
	ErrDeadlock = errors.New("lock: already held by this context")
	// ErrClosed: the Locker was closed.
	ErrClosed = errors.New("lock: the locker is closed")
	// ErrNotMigrated: the tables are missing, or those of an older release: run
	// "sqllock-migrate up".
	ErrNotMigrated = errors.New("lock: the tables of sqllock are not there or too old: run \"sqllock-migrate up\" or migrations.Up")
	// ErrInvalid: the call can't be right, and no statement was run.
	ErrInvalid = errors.New("lock: invalid")
	// ErrStaleSnapshot: the caller's transaction reads from before the lock was
	// had. Roll it back and begin it anew.
	ErrStaleSnapshot = errors.New("lock: the transaction's snapshot is older than the lock: begin the transaction after the lock was acquired")
)

// Holder says who holds a lock, as it described itself when it got it. It is for
// people: nothing is decided by it.
type Holder struct {
	// Host and PID are those of the holder's process; Label is its [Label].
	Host  string `json:"host,omitempty"`
	PID   int    `json:"pid,omitempty"`
	Label string `json:"label,omitempty"`
}

// String is "label (host, pid 4711)".
func (h Holder) String() string {
	at := "an unknown process"
	if h.Host != "" || h.PID != 0 {
		at = fmt.Sprintf("%s, pid %d", h.Host, h.PID)
	}
	if h.Label != "" {
		return fmt.Sprintf("%s (%s)", h.Label, at)
	}
	return at
}

// HeldError says who holds the lock that could not be had. It matches [ErrHeld];
// if it was ctx that ended the waiting, also ctx's error.
type HeldError struct {
	Name   string
	Holder Holder
	// Token is the holder's; 0 where the strategy has none.
	Token int64
	// Since is when the holder got it, by the database's clock; zero if unknown.
	Since time.Time
	// Left is how much of its lease was left when it was looked at; it is renewed
	// while the holder lives. 0 or less: it was free, but a transaction that is not
	// committed yet had it.
	Left time.Duration
	// Waited is how long it was waited for.
	Waited time.Duration
	// Err is why the waiting ended, nil if it was not waited for any longer.
	Err error
}

// Error says who holds it, since when, and for how long.
func (e *HeldError) Error() string {
	s := fmt.Sprintf("lock: %q is held by %s", e.Name, e.Holder)
	if !e.Since.IsZero() {
		s += " since " + e.Since.UTC().Format(time.RFC3339)
	}
	if e.Left > 0 {
		s += fmt.Sprintf(", lease left %v", e.Left.Round(time.Millisecond))
	}
	if e.Waited > 0 {
		s += fmt.Sprintf(", waited %v", e.Waited.Round(time.Millisecond))
	}
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is matches [ErrHeld].
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Unwrap returns why the waiting ended.
func (e *HeldError) Unwrap() error { return e.Err }

// LostError says which lock was lost, and how. It matches [ErrLost].
type LostError struct {
	Name  string
	Token int64
	// Reason says how it was lost.
	Reason string
	// Err is the last error on the way there, if there was one.
	Err error
}

// Error says which lock was lost, and how.
func (e *LostError) Error() string {
	s := fmt.Sprintf("lock: %q (token %d) was lost: %s", e.Name, e.Token, e.Reason)
	if e.Err != nil {
		s += ": " + e.Err.Error()
	}
	return s
}

// Is matches [ErrLost].
func (e *LostError) Is(target error) bool { return target == ErrLost }

// Unwrap returns the error on the way there.
func (e *LostError) Unwrap() error { return e.Err }
