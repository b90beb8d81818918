package joblock

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"strings"
	"time"

	"github.com/sqlnative/locks/lock"
)

// Run runs fn if the job is on, due, and runs nowhere else; if not, it is skipped at
// once, which is no error: the Result says why. fn's ctx is derived from ctx, and
// ends when [Job.AtMost] has passed and when the lock is lost; its cause says which. The
// lock is held until fn has returned, and its end was written.
//
// Run returns what fn returned, joined with [ErrTimedOut] if AtMost had passed, and
// with [lock.ErrLost] if the lock was lost: fn may then have run beside another. A panic
// of fn is recorded, with its stack, and goes on. If the end could not be written, which
// is tried for at most 5 s and also when ctx is done, that is an error too; the run then
// reads as [Abandoned].
//
// With Result.Ran false and an error, fn was not run; it may be that the start was
// noted all the same, if the database did not answer in the end: the period then
// counts as used. AtLeast counts from the moment that the lock was had, also if fn was
// then not run.
func (j *Jobs) Run(ctx context.Context, job Job, fn func(ctx context.Context) error) (res Result, err error) {
	if err := job.Check(); err != nil {
		return res, err
	}
	job = job.withDefaults()
	if fn == nil {
		return res, fmt.Errorf("%w: job %q: the function is nil", lock.ErrInvalid, job.Name)
	}
	// Before the lock is had: what takes it for AtLeast and then finds that the job
	// is not due would keep it from those for whom it soon is.
	st, err := j.look(ctx, job)
	if err != nil || st.skip(job, &res) {
		return res, err
	}
	l, err := j.acquire(ctx, job)
	var held *lock.HeldError
	switch {
	case errors.As(err, &held) && ctx.Err() == nil:
		res.Held = held
		return res, nil
	case err != nil:
		return res, fmt.Errorf("joblock: %q: %w", job.Name, err)
	}
	var r *run
	defer func() {
		lost := l.Release(ctx)
		if !errors.Is(lost, lock.ErrLost) {
			return
		}
		if !errors.Is(err, lost) { // fn may have returned the cause of its ctx: it need not stand there twice
			err = errors.Join(err, lost)
		}
		if r != nil && res.Outcome != Lost { // only the release has found it out
			was := res.Outcome
			res.Outcome = Lost
			text := err.Error()
			if !strings.Contains(text, r.text) { // a panic is no error
				text = r.text + "\n" + text
			}
			err = errors.Join(err, r.end(ctx, was, Lost, text, err))
		}
	}()
	r, err = j.start(ctx, job, l, st.lastRun, &res)
	if err != nil || r == nil {
		return res, err
	}
	res.Ran, res.Run, res.Token = true, r.id, l.Token()
	return res, r.call(ctx, fn, &res)
}

// acquire tries the lock of the job. With a Locker that cannot HoldAtLeast, the job's
// row keeps others off.
func (j *Jobs) acquire(ctx context.Context, job Job) (*lock.Lock, error) {
	opts := job.options()
	if job.AtLeast > 0 && !j.noHold.Load() {
		l, err := j.locker.Acquire(ctx, LockName(job.Name), append(opts, lock.HoldAtLeast(job.AtLeast))...)
		if !errors.Is(err, errors.ErrUnsupported) {
			return l, err
		}
		l, err = j.locker.Acquire(ctx, LockName(job.Name), opts...)
		if !errors.Is(err, errors.ErrUnsupported) { // else it is another option
			j.noHold.Store(true)
		}
		return l, err
	}
	return j.locker.Acquire(ctx, LockName(job.Name), opts...)
}

// call calls fn and records how it ended.
func (r *run) call(ctx context.Context, fn func(ctx context.Context) error, res *Result) (err error) {
	fctx := r.l.Context(ctx)
	cancel := func() {}
	if r.job.AtMost > 0 {
		fctx, cancel = context.WithTimeoutCause(fctx, r.job.AtMost, ErrTimedOut)
	}
	begun := time.Now()
	stop := r.beat(ctx)
	// end may be called once fn has returned, or while it panics.
	end := func(text string, err error) error {
		res.Took = time.Since(begun)
		cause := context.Cause(fctx) // before cancel
		cancel()
		stop()
		// The lock looks at the clock itself: its ctx may not have been told yet.
		lost := r.l.Err()
		switch {
		case errors.Is(lost, lock.ErrLost):
			res.Outcome = Lost
			if !errors.Is(err, lost) {
				err = errors.Join(err, lost)
			}
		case errors.Is(cause, ErrTimedOut):
			res.Outcome = TimedOut
			if !errors.Is(err, ErrTimedOut) {
				err = errors.Join(err, ErrTimedOut)
			}
		case err != nil || text != "":
			res.Outcome = Failed
		default:
			res.Outcome = OK
		}
		if text == "" && err != nil {
			text = err.Error()
		}
		r.text = text
		if failed := r.end(ctx, Running, res.Outcome, text, err); failed != nil {
			err = errors.Join(err, failed)
		}
		return err
	}
	returned := false
	defer func() {
		if returned {
			return
		}
		p := recover()
		if p == nil { // fn has called runtime.Goexit, which goes on
			_ = end("runtime.Goexit was called", nil)
			return
		}
		_ = end(fmt.Sprintf("panic: %v\n\n%s", p, debug.Stack()), nil)
		panic(p)
	}()
	if err = context.Cause(fctx); err == nil { // the lock may have been lost since
		err = fn(fctx)
	}
	returned = true
	return end("", err)
}
