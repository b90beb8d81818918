package cli

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"syscall"
)

// The causes of the contexts of [Interrupts].
var (
	ErrStopped = errors.New("stopped by a signal")
	ErrAborted = errors.New("aborted by a second signal")
)

// Interrupts turns signals into two requests: the first asks the command to end
// what it is at and to stop, the second to abort at once. A third one kills the
// process as if nobody had listened.
type Interrupts struct {
	soft, hard context.Context
	end        func()
}

// CatchInterrupts listens to SIGINT and SIGTERM until [Interrupts.Close]. The
// functions are called as the first and the second arrive; they may be nil.
func CatchInterrupts(ctx context.Context, onFirst, onSecond func()) *Interrupts {
	signals := make(chan os.Signal, 3)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	return watch(ctx, signals, func() { signal.Stop(signals) }, onFirst, onSecond)
}

func watch(ctx context.Context, signals <-chan os.Signal, release, onFirst, onSecond func()) *Interrupts {
	hard, abort := context.WithCancelCause(ctx)
	soft, stop := context.WithCancelCause(hard)
	i := &Interrupts{soft: soft, hard: hard}
	closed, gone := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		// Who reads what is said after the first signal may rely on it; after the second
		// the process may end as soon as the context does.
		first := []func(){func() { stop(ErrStopped) }, onFirst}
		second := []func(){release, onSecond, func() { abort(ErrAborted) }}
		for _, actions := range [][]func(){first, second} {
			select {
			case <-signals:
			case <-closed:
				return
			}
			for _, do := range actions {
				if do != nil {
					do()
				}
			}
		}
	}()
	i.end = sync.OnceFunc(func() {
		release()
		close(closed)
		<-gone
		abort(nil)
	})
	return i
}

// Soft ends when the command has been asked to stop.
func (i *Interrupts) Soft() context.Context { return i.soft }

// Hard ends when the command has to abort.
func (i *Interrupts) Hard() context.Context { return i.hard }

// Stopped reports whether the command has been asked to stop, or to abort.
func (i *Interrupts) Stopped() bool {
	cause := context.Cause(i.soft)
	return errors.Is(cause, ErrStopped) || errors.Is(cause, ErrAborted)
}

// Aborted reports whether the command has to abort.
func (i *Interrupts) Aborted() bool { return errors.Is(context.Cause(i.hard), ErrAborted) }

// Close stops listening, and ends both contexts.
func (i *Interrupts) Close() { i.end() }
