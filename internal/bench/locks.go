package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// benchName is the lock that figures about one lock are about.
const benchName = "bench:10001"

// locker makes the tables in the bed's database, if they are not there yet, and a
// Locker on db. What comes back with it closes it: a figure that fails does so as
// well, since its renewal would go on under the next one.
func (b *bed) locker(ctx context.Context, db *sqldb.DB, opts ...lock.Option) (*sqllock.Locker, error) {
	if err := migrations.Up(ctx, b.db); err != nil {
		return nil, err
	}
	l, err := sqllock.New(ctx, db, opts...)
	if err != nil {
		return nil, err
	}
	b.closing = append(b.closing, l.Close)
	return l, nil
}

// pairOf is one Acquire and one Release of one name.
func pairOf(l lock.Locker) operation {
	return func(ctx context.Context) error {
		got, err := l.Acquire(ctx, benchName)
		if err != nil {
			return err
		}
		return got.Release(ctx)
	}
}

// failingTry is a Try of a name that another Locker holds.
func failingTry(l lock.Locker) operation {
	return func(ctx context.Context) error {
		got, err := l.Acquire(ctx, benchName, lock.Try())
		switch {
		case err == nil:
			return errors.Join(fmt.Errorf("%q was held, and a try has got it", benchName), got.Release(ctx))
		case !errors.Is(err, lock.ErrHeld):
			return err
		}
		return nil
	}
}
