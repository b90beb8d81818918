//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/internal/guardian"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
)

// runner is one run of a command under a lock.
type runner struct {
	*app
	o       *runOptions
	w       *ward
	signals chan os.Signal
	renewed chan struct{} // capacity 1
	result  runResult
	err     error // what the command has ended with, as the history has it
}

// runResult is the JSON of run.
type runResult struct {
	Name     string      `json:"name"`
	Lock     string      `json:"lock"`
	Ran      bool        `json:"ran"`
	Token    int64       `json:"token"`
	ExitCode int         `json:"exit_code"`
	Lost     bool        `json:"lost"`
	Reason   string      `json:"reason"` // why it did not run: held, not_due, disabled, error
	Holder   *holderJSON `json:"holder"`
	Next     *time.Time  `json:"next"`
	Message  string      `json:"message"`
}

// exitError is how the command has ended, if not well.
type exitError struct {
	code int
	text string
}

func (e *exitError) Error() string { return e.text }

// ExitCode is what goes into the history.
func (e *exitError) ExitCode() int { return e.code }

// signalled is the cause of a waiting that a signal has ended.
type signalled struct{ sig syscall.Signal }

func (s signalled) Error() string { return "ended by " + s.sig.String() }

// underLock runs the command, and returns with which code sqllock ends.
func (a *app) underLock(ctx context.Context, o *runOptions) (code int, err error) {
	r := &runner{app: a, o: o, signals: make(chan os.Signal, 64), renewed: make(chan struct{}, 1)}
	r.result = runResult{Name: o.name, Lock: joblock.LockName(o.name)}
	signal.Notify(r.signals, guardian.Forwarded()...)
	// A stderr that nobody reads any more must not end sqllock.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	r.w = newWard(o)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	waiting := make(chan struct{})
	done := make(chan struct{})
	go func() { // until the command runs; then supervise reads them
		defer close(done)
		for {
			select {
			case s := <-r.signals:
				if sig, ok := s.(syscall.Signal); ok && !guardian.Harmless(sig) {
					cancel(signalled{sig})
					return
				}
			case <-waiting:
				return
			}
		}
	}()
	res, err := r.connectAndRun(ctx, func() {
		close(waiting)
		<-done
	})
	r.w.dismiss()
	code, err = r.verdict(ctx, res, err)
	r.result.ExitCode = code
	if err != nil {
		r.result.Message = a.out.Clean(err.Error())
	}
	if a.out.JSON {
		line, jsonErr := cli.JSONLine(r.result)
		if jsonErr != nil {
			return exitInternal, jsonErr
		}
		_, _ = fmt.Fprintf(a.out.Stderr, "%s\n", line)
		if isUsage(err) {
			return code, err
		}
		return code, nil
	}
	if o.quiet && r.result.Reason != "" && r.result.Reason != "error" {
		return code, nil
	}
	if err != nil && code == 0 {
		a.out.Say("%v", err)
		err = nil
	}
	return code, err
}

// connectAndRun connects, and runs the command if the lock is had. begun is called
// when it is.
func (r *runner) connectAndRun(ctx context.Context, begun func()) (res joblock.Result, err error) {
	o := r.o
	conns := 1 // a lock is no reason for a server to have two
	if o.strategy == strategyAdvisory {
		conns = 2 // its session is kept apart from the pool
	}
	s, err := r.connect(ctx, conns)
	if err != nil {
		return res, err
	}
	defer s.leave()
	var locker lock.Locker
	if o.strategy == strategyAdvisory {
		if locker, err = advisory.New(ctx, s.db); err != nil {
			return res, err
		}
		defer func() { _ = locker.Close() }()
	}
	tables := o.strategy == strategyTable || o.every > 0
	if tables {
		if err := s.withTables(ctx); err != nil {
			return res, err
		}
		if locker == nil {
			locker = s.locker
		}
	}
	c := &catcher{Locker: locker, opts: []lock.Option{lock.Wait(o.wait), lock.WithTrace(r.trace())}}
	outer := ctx
	fn := func(ctx context.Context) error {
		begun()
		// A signal may have come between the grant and begun: then nothing is started.
		if err := context.Cause(outer); err != nil {
			return err
		}
		return r.supervise(ctx, c.got)
	}
	if err := r.w.ready(); err != nil {
		return res, &exitError{exitInternal, err.Error()}
	}
	if !tables {
		return r.plain(ctx, c, fn)
	}
	jobs, err := joblock.New(ctx, s.db, c)
	if err != nil {
		return res, err
	}
	return jobs.Run(ctx, o.job(), fn)
}

// plain is a run without a table: no history, no period.
func (r *runner) plain(ctx context.Context, locker lock.Locker, fn func(context.Context) error) (res joblock.Result, err error) {
	l, err := locker.Acquire(ctx, joblock.LockName(r.o.name), lock.TTL(r.o.ttl))
	var held *lock.HeldError
	switch {
	case errors.As(err, &held) && ctx.Err() == nil:
		return joblock.Result{Held: held}, nil
	case err != nil:
		return res, err
	}
	fctx := l.Context(ctx)
	if r.o.atMost > 0 {
		var cancel context.CancelFunc
		fctx, cancel = context.WithTimeoutCause(fctx, r.o.atMost, joblock.ErrTimedOut)
		defer cancel()
	}
	err = fn(fctx)
	res.Ran = true
	if lost := l.Release(ctx); lost != nil {
		err = errors.Join(err, lost)
	}
	return res, err
}

// catcher hands on the lock that joblock takes.
type catcher struct {
	lock.Locker
	opts []lock.Option
	got  *lock.Lock
}

func (c *catcher) Acquire(ctx context.Context, name string, opts ...lock.Option) (l *lock.Lock, err error) {
	c.got, err = c.Locker.Acquire(ctx, name, append(opts[:len(opts):len(opts)], c.opts...)...)
	return c.got, err
}

// trace notes renewals, and tells of those that fail.
func (r *runner) trace() *lock.Trace {
	return &lock.Trace{
		Renewed: func(lock.Event) {
			select {
			case r.renewed <- struct{}{}:
			default: // it reads the newest deadline anyway
			}
		},
		RenewFailed: func(e lock.Event) {
			if !r.out.JSON {
				r.out.Say("the lock %q could not be renewed, and is tried again: %v", e.Name, e.Err)
			}
		},
		Waiting: func(e lock.Event) {
			if !r.out.JSON && !r.o.quiet {
				r.out.Say("waiting for up to %v: %v", r.o.wait, e.Err)
			}
		},
	}
}

// supervise has the command started, and stays with it until nothing of it is left.
func (r *runner) supervise(ctx context.Context, l *lock.Lock) error {
	w, ttl := r.w, r.o.ttl
	r.result.Ran, r.result.Token = true, l.Token()
	defer w.leave()
	w.start(l, ttl)
	backup := time.NewTimer(time.Hour)
	defer backup.Stop()
	watch := func() {
		if w.killAt.IsZero() {
			backup.Stop()
		} else {
			backup.Reset(time.Until(w.killAt))
		}
	}
	watch()
	ends := ctx.Done()
	var late <-chan time.Time // SIGKILL after AtMost
	for {
		select {
		case s := <-r.signals:
			if sig, ok := s.(syscall.Signal); ok {
				w.signal(sig)
			}
		case <-r.renewed:
			if !r.result.Lost {
				w.renewed(l, ttl)
				watch()
			}
		case <-ends:
			ends = nil
			if errors.Is(context.Cause(ctx), joblock.ErrTimedOut) {
				if !r.out.JSON {
					r.out.Say("%q has taken %v (--at-most): SIGTERM, and SIGKILL in %v", r.o.name, r.o.atMost, atMostGrace)
				}
				w.signal(syscall.SIGTERM)
				late = time.After(atMostGrace)
				ends = l.Done() // it may still be lost
				continue
			}
			r.result.Lost = true
			w.lost(ttl)
			watch()
		case <-late:
			w.signal(syscall.SIGKILL)
		case <-backup.C:
			// The guardian was told the same, unless it is stopped.
			r.result.Lost = true
			w.killGroup()
			w.wake()
		case line, ok := <-w.reports:
			if !ok {
				w.abandoned()
				r.err = &exitError{exitInternal, "the guardian of the command has died: the command was ended, and how is not known"}
				return r.err
			}
			if r.reported(line) {
				return r.err
			}
		}
	}
}

// reported notes what the guardian says; true: the command has ended.
func (r *runner) reported(line string) bool {
	switch word, n, text := report(line); word {
	case "started":
		r.w.pid = n
	case "term":
		r.result.Lost = true
		if !r.out.JSON {
			r.out.Say("the lock of %q could not be renewed in time: SIGTERM", r.o.name)
		}
	case "kill":
		r.result.Lost = true
	case "nostop":
		if !r.out.JSON {
			r.out.Say("%q goes on: who is stopped loses the lock", r.o.name)
		}
	case "failed":
		code := exitNotExecutable
		if syscall.Errno(n) == syscall.ENOENT {
			code = exitNotFound
		}
		r.err = &exitError{code, fmt.Sprintf("%s: %s", r.o.args[0], text)}
		return true
	case "exit":
		if n != 0 {
			r.err = &exitError{n, fmt.Sprintf("exit status %d", n)}
		}
		return true
	case "killed":
		r.err = &exitError{exitSignal + n, "killed by signal: " + syscall.Signal(n).String()}
		return true
	}
	return false
}

// verdict is with which code sqllock ends, and what there is to say.
func (r *runner) verdict(ctx context.Context, res joblock.Result, err error) (int, error) {
	var exit *exitError
	if r.result.Ran {
		lost := r.result.Lost || errors.Is(err, lock.ErrLost)
		r.result.Lost = lost
		switch {
		case lost && (err == nil || !errors.Is(err, lock.ErrLost)):
			return exitLost, fmt.Errorf("the lock of %q could not be kept, and the command was ended", r.o.name)
		case lost:
			return exitLost, fmt.Errorf("%q: %w", r.o.name, err)
		}
		code := 0
		if errors.As(r.err, &exit) {
			code = exit.code
			if code != exitInternal && code != exitNotFound && code != exitNotExecutable && err == r.err {
				err = nil // the code says it
			}
		}
		if errors.Is(err, joblock.ErrTimedOut) && r.err != nil {
			err = nil // it was said
		}
		return code, err
	}
	var sig signalled
	r.result.Reason = "error"
	switch {
	case errors.As(context.Cause(ctx), &sig):
		return exitSignal + int(sig.sig), fmt.Errorf("%q was not run: %w", r.o.name, sig)
	case isUsage(err):
		return exitUsage, err
	case errors.Is(err, lock.ErrInvalid), errors.Is(err, errors.ErrUnsupported):
		return exitUsage, err
	case errors.As(err, &exit):
		return exit.code, err
	case errors.Is(err, lock.ErrLost): // between the grant and the start
		r.result.Lost = true
		return exitLost, err
	case err != nil:
		return exitUnavailable, err
	case res.Held != nil:
		r.result.Reason = "held"
		holder := holderOf(res.Held.Holder)
		r.result.Holder = &holder
	case res.NotDue:
		r.result.Reason = "not_due"
		r.result.Next = &res.Next
	case res.Disabled:
		r.result.Reason = "disabled"
	}
	return r.o.conflict, fmt.Errorf("%q was not run: %s", r.o.name, strings.TrimPrefix(res.String(), "skipped: "))
}
