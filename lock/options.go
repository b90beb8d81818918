package lock

import (
	"errors"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"
)

// Bounds and defaults of leases.
const (
	// DefaultTTL is the TTL of a lease where [TTL] says nothing else.
	DefaultTTL = 30 * time.Second
	// MinTTL is the shortest TTL: below it, a round trip and the scheduling of a busy
	// machine eat the lease up.
	MinTTL = 200 * time.Millisecond
	// MaxLabel is how long a [Label] may be, in bytes.
	MaxLabel = 200
	// maxDuration bounds every duration: a hundred years, so that no sum overflows.
	maxDuration = 100 * 365 * 24 * time.Hour
)

// Features are what a strategy can honour, one bit for each option that not every
// strategy can.
type Features uint32

// The features, each named after its option.
const (
	FeatureNoRenew Features = 1 << iota
	FeatureAtMost
	FeatureHoldAtLeast
	FeatureShared
)

var featureNames = map[Features]string{
	FeatureNoRenew: "NoRenew", FeatureAtMost: "AtMost", FeatureHoldAtLeast: "HoldAtLeast", FeatureShared: "Shared",
}

// Options are what the options of one Acquire come to. Strategies read them;
// programs write [Option]s.
type Options struct {
	// TTL is the length of the lease.
	TTL time.Duration
	// Wait bounds the waiting; 0: try once and answer; [Forever]: only ctx does.
	Wait time.Duration
	// NoRenew, AtMost, HoldAtLeast, Reentrant, Shared, Label: see the options.
	NoRenew     bool
	AtMost      time.Duration
	HoldAtLeast time.Duration
	Reentrant   bool
	Shared      bool
	Label       string
	// Trace is told what happens.
	Trace *Trace

	features Features
	own      []own
}

// Forever is the Wait of an Acquire that only its ctx ends.
const Forever time.Duration = math.MaxInt64

// Option is an option of Acquire, [Do], [Wrap] and [With]. A strategy that cannot
// honour one refuses it with an error that wraps [errors.ErrUnsupported]; none is
// ignored.
type Option func(*Options) error

// TTL sets the length of the lease: how long others wait for a holder that has
// died. Default 30 s; at least 200 ms. Honoured by every strategy.
func TTL(d time.Duration) Option {
	return func(o *Options) error {
		if d < MinTTL || d > maxDuration {
			return fmt.Errorf("TTL is %v; it can be %v to %v", d, MinTTL, maxDuration)
		}
		o.TTL = d
		return nil
	}
}

// Try answers at once: a lock that is held is a [*HeldError]. It is Wait(0).
func Try() Option { return Wait(0) }

// Wait bounds how long Acquire waits; when it has passed, the answer is a
// [*HeldError]. Default: as long as ctx allows.
func Wait(d time.Duration) Option {
	return func(o *Options) error {
		if d < 0 {
			return fmt.Errorf("Wait is %v; it cannot be negative", d)
		}
		o.Wait = d
		return nil
	}
}

// NoRenew takes a fixed lease: it ends when its TTL has passed, unless
// [Lock.Extend] is called. Honoured by the lock table.
func NoRenew() Option {
	return func(o *Options) error {
		o.NoRenew = true
		o.features |= FeatureNoRenew
		return nil
	}
}

// AtMost ends the lock when d has passed since it was granted, even if its holder
// lives and renews: the holder's context ends before that, and others can have the
// lock from then on. Honoured by the lock table.
func AtMost(d time.Duration) Option {
	return func(o *Options) error {
		if d < MinTTL || d > maxDuration {
			return fmt.Errorf("AtMost is %v; it can be %v to %v", d, MinTTL, maxDuration)
		}
		o.AtMost = d
		o.features |= FeatureAtMost
		return nil
	}
}

// HoldAtLeast keeps the lock from others until d has passed since it was granted,
// even if its holder releases it earlier, or dies: it is written by the statement
// that grants. It is for jobs that take less time than the clocks of the machines
// that start them differ by. Honoured by the lock table.
func HoldAtLeast(d time.Duration) Option {
	return func(o *Options) error {
		if d <= 0 || d > maxDuration {
			return fmt.Errorf("HoldAtLeast is %v; it has to be positive, at most %v", d, maxDuration)
		}
		o.HoldAtLeast = d
		o.features |= FeatureHoldAtLeast
		return nil
	}
}

// Shared takes the lock together with others that take it Shared. Honoured by
// advisory locks on PostgreSQL.
func Shared() Option {
	return func(o *Options) error {
		o.Shared = true
		o.features |= FeatureShared
		return nil
	}
}

// Reentrant counts: an Acquire whose ctx comes from [Lock.Context] of the same
// lock of the same Locker, in the same mode, gets another handle of it at once, and
// the lock is released with the last handle. A lost lock is never re-entered.
// Goroutines that share the ctx are not excluded from each other. Without it such an
// Acquire is [ErrDeadlock]. Honoured by every strategy.
func Reentrant() Option {
	return func(o *Options) error {
		o.Reentrant = true
		return nil
	}
}

// Label describes the holder to people, beside host and pid: at most 200 bytes of
// UTF-8 without NUL. Honoured by the lock table.
func Label(label string) Option {
	return func(o *Options) error {
		if len(label) > MaxLabel || !utf8.ValidString(label) || strings.IndexByte(label, 0) >= 0 {
			return fmt.Errorf("the label %.20q has to be UTF-8 without NUL, at most %d bytes", label, MaxLabel)
		}
		o.Label = label
		return nil
	}
}

// WithTrace has a [Trace] told what happens to the lock, in addition to the
// Locker's own. Honoured by every strategy.
func WithTrace(t *Trace) Option {
	return func(o *Options) error {
		o.Trace = o.Trace.And(t)
		return nil
	}
}

// Collect is for strategies: it makes Options of options, and refuses what the
// strategy has no feature for. base are the Locker's own.
func Collect(strategy string, supported Features, base, opts []Option) (Options, error) {
	o := Options{TTL: DefaultTTL, Wait: Forever}
	for _, list := range [][]Option{base, opts} {
		for _, opt := range list {
			if opt == nil {
				return o, fmt.Errorf("%w: %s: an option is nil", ErrInvalid, strategy)
			}
			if err := opt(&o); err != nil {
				return o, fmt.Errorf("%w: %s: %w", ErrInvalid, strategy, err)
			}
		}
	}
	if refused := o.features &^ supported; refused != 0 {
		for f, name := range featureNames {
			if refused&f != 0 {
				return o, fmt.Errorf("lock: %s cannot honour the option %s: %w", strategy, name, errors.ErrUnsupported)
			}
		}
	}
	if err := o.foreign(strategy); err != nil {
		return o, err
	}
	if o.AtMost > 0 && o.HoldAtLeast > o.AtMost {
		return o, fmt.Errorf("%w: %s: HoldAtLeast (%v) is longer than AtMost (%v)", ErrInvalid, strategy, o.HoldAtLeast, o.AtMost)
	}
	return o, nil
}
