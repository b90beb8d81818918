package lock

import (
	"context"
	"errors"
)

// Do runs fn while it holds the lock of that name, and releases it whatever fn
// does. fn's ctx is derived from ctx and ends, with the cause, when the lock is lost
// ([context.Cause] is a [*LostError]).
//
// Do returns what fn returned, joined with [ErrLost] if the lock was lost while fn
// ran: fn may then have run beside another holder's. If the lock was not had, fn is
// not run, and the error is Acquire's. A panic of fn goes on after the release. A
// release that the database did not answer leaves the lock to its TTL; fn's work is
// done, so that is no error of Do, but told to [Trace].ReleaseFailed.
func Do(ctx context.Context, locker Locker, name string, fn func(ctx context.Context, l *Lock) error, opts ...Option) (err error) {
	l, err := locker.Acquire(ctx, name, opts...)
	if err != nil {
		return err
	}
	defer func() {
		// fn may have returned the cause of its ctx: it need not stand there twice.
		if lost := l.Release(ctx); errors.Is(lost, ErrLost) && !errors.Is(err, lost) {
			err = errors.Join(err, lost)
		}
	}()
	return fn(l.Context(ctx), l)
}

// Wrap returns fn as a function that holds a lock while it runs, whose name comes
// from its argument: what an annotated method with a key expression is elsewhere.
//
//	ship := lock.Wrap(locker, func(id int64) string { return lock.Name("order", strconv.FormatInt(id, 10)) }, shipOrder, lock.Try())
//	err := ship(ctx, 42)
func Wrap[A any](locker Locker, name func(A) string, fn func(ctx context.Context, arg A) error, opts ...Option) func(ctx context.Context, arg A) error {
	return func(ctx context.Context, arg A) error {
		return Do(ctx, locker, name(arg), func(ctx context.Context, _ *Lock) error { return fn(ctx, arg) }, opts...)
	}
}
