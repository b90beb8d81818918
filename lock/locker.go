package lock

import "context"

// Locker grants locks. It is safe for concurrent use. Each strategy has one:
// sqllock.New, advisory.New; locktest has one in memory for unit tests.
type Locker interface {
	// Acquire waits until the lock of that name is granted, until ctx is done, or
	// until the option [Wait] has passed; with [Try] it answers at once. ctx bounds
	// the waiting only: the lock outlives it. A ctx that is done wins over a grant,
	// and the grant is given back.
	//
	// A wait that ends without the lock is a [*HeldError] (errors.Is ErrHeld), and
	// matches ctx's error too if that is what ended it. If the database has not
	// answered by then who holds the lock, nobody need hold it: then the error is
	// ctx's, or that of the database, and no HeldError.
	Acquire(ctx context.Context, name string, opts ...Option) (*Lock, error)
	// Close releases what is held, which takes at most 5 s for all of it; what could
	// not be released is left to its TTL. Acquire then answers [ErrClosed].
	Close() error
}

// With returns a Locker whose every Acquire has opts, which its own options
// override. Closing it closes locker.
func With(locker Locker, opts ...Option) Locker {
	return &with{locker, opts}
}

type with struct {
	Locker
	opts []Option
}

func (w *with) Acquire(ctx context.Context, name string, opts ...Option) (*Lock, error) {
	return w.Locker.Acquire(ctx, name, append(w.opts[:len(w.opts):len(w.opts)], opts...)...)
}
