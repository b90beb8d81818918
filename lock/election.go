package lock

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Election elects one leader among those who campaign under one name: whoever holds
// the lock of that name leads. It is safe for concurrent use.
type Election struct {
	locker Locker
	name   string
	opts   []Option

	running atomic.Bool
	term    atomic.Pointer[Lock] // nil: it does not lead

	mu    sync.Mutex // held while the functions are told
	leads bool
	told  []func(leader bool)
}

// NewElection returns an Election under a name. opts go into every Acquire: [TTL] above
// all, which is how long there is no leader when one has died. [Wait], [Try] and [Shared]
// are refused: a candidate waits, and there is one leader.
func NewElection(locker Locker, name string, opts ...Option) (*Election, error) {
	if locker == nil {
		return nil, fmt.Errorf("%w: NewElection: the Locker is nil", ErrInvalid)
	}
	if err := CheckName(name); err != nil {
		return nil, err
	}
	o := Options{Wait: Forever}
	for _, opt := range opts {
		if opt == nil {
			return nil, fmt.Errorf("%w: election %q: an option is nil", ErrInvalid, name)
		}
		if err := opt(&o); err != nil {
			return nil, fmt.Errorf("%w: election %q: %w", ErrInvalid, name, err)
		}
	}
	if o.Wait != Forever || o.Shared {
		return nil, fmt.Errorf("%w: election %q: Wait, Try and Shared are no options of an election", ErrInvalid, name)
	}
	return &Election{locker: locker, name: name, opts: append(opts[:len(opts):len(opts)], Wait(Forever))}, nil
}

// The pauses of an Election.
const (
	// resignPause is how long a leader that has resigned does not campaign: longer than
	// the others' polls are apart, so that one of them is elected.
	resignPause = 500 * time.Millisecond
	// firstPause and maxPause are between two tries of a database that does not answer.
	firstPause = 100 * time.Millisecond
	maxPause   = 10 * time.Second
)

// Run campaigns until it is elected, and then runs fn, whose ctx ends when the
// leadership is lost ([context.Cause] is a [*LostError]) or ctx ends. l has the fencing
// token, and Guard.
//
//   - fn returns nil: it resigns, pauses for half a second, so that others can be
//     elected, and campaigns again. So does one that has lost the leadership, also if fn
//     then returns its ctx's error or [ErrLost].
//   - fn returns another error, or panics: it resigns, and Run returns that error.
//   - ctx ends: once fn has returned it resigns, and Run returns ctx's error, or fn's if
//     that is another. Whoever waits is elected as soon as its strategy notices.
//
// An error of Acquire that no further try would change ([ErrInvalid],
// [ErrNotMigrated], [ErrClosed], [ErrDeadlock], [errors.ErrUnsupported]) ends Run. Any
// other, as of a database that does not answer, is tried again, with pauses of up to
// 10 s; [Trace].Refused is told. A second Run while one runs is [ErrInvalid].
func (e *Election) Run(ctx context.Context, fn func(ctx context.Context, l *Lock) error) error {
	if fn == nil {
		return fmt.Errorf("%w: election %q: the function is nil", ErrInvalid, e.name)
	}
	if !e.running.CompareAndSwap(false, true) {
		return fmt.Errorf("%w: election %q: it runs already; a second candidate needs an Election of its own", ErrInvalid, e.name)
	}
	defer e.running.Store(false)
	for pause := firstPause; ; {
		l, err := e.locker.Acquire(ctx, e.name, e.opts...)
		switch {
		case err == nil:
			pause = firstPause
			if err := e.lead(ctx, l, fn); err != nil {
				return err
			}
			if err := rest(ctx, resignPause); err != nil {
				return err
			}
			continue
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrInvalid), errors.Is(err, ErrNotMigrated), errors.Is(err, ErrClosed), errors.Is(err, ErrDeadlock), errors.Is(err, errors.ErrUnsupported):
			return err
		}
		if err := rest(ctx, pause/2+rand.N(pause/2)); err != nil {
			return err
		}
		pause = min(2*pause, maxPause)
	}
}

// rest waits for d, or until ctx ends.
func rest(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}

// lead runs fn for one term; nil: it is to campaign again.
func (e *Election) lead(ctx context.Context, l *Lock, fn func(ctx context.Context, l *Lock) error) error {
	tctx := l.Context(ctx)
	e.term.Store(l)
	e.tell(true)
	// The loss is told when it happens, and not when fn comes back. The interleaving that
	// over closes: this term ends, the next begins and is told, and only then the end of
	// this one would be told, by a goroutine that was late.
	over := make(chan struct{})
	stop := context.AfterFunc(l.context(), func() {
		defer close(over)
		e.resigned()
	})
	defer func() {
		if !stop() {
			<-over
		}
		e.resigned() // before others can be elected
		_ = l.Release(ctx)
	}()
	err := fn(tctx, l)
	switch lost := l.Err(); {
	case ctx.Err() != nil && (err == nil || errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx))):
		return ctx.Err()
	case errors.Is(lost, ErrLost) && (errors.Is(err, context.Canceled) || errors.Is(err, ErrLost)):
		return nil
	}
	return err
}

func (e *Election) resigned() {
	e.term.Store(nil)
	e.tell(false)
}

// tell tells a change, once.
func (e *Election) tell(leads bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.leads == leads {
		return
	}
	e.leads = leads
	for _, f := range e.told {
		f(leads)
	}
}

// IsLeader reports whether it leads just now. It looks at the clock itself, and so says
// no as soon as the lease cannot be trusted any more, whatever has been told. A moment
// later it may be otherwise: what must not be done twice is done under fn's ctx, with
// [Lock.Guard] or the token.
func (e *Election) IsLeader() bool {
	l := e.term.Load()
	return l != nil && l.Err() == nil
}

// OnChange has f called with true when it is elected, before fn runs, and with false
// when the leadership is lost, or given back, before others can be elected by that.
// Calls come one after the other, in turn; f must be quick, and call neither OnChange nor
// Run. Set it before Run.
func (e *Election) OnChange(f func(leader bool)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, f)
}
