package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

const (
	// lockTTL is how long a process that was killed keeps the others waiting.
	lockTTL = 5 * time.Second
	// stallTTL is the TTL with -stall, the shortest that every server's advisory locks
	// have, and stall how long a holder is stopped: half of it lies behind the end of its
	// lease, when others have the lock.
	stallTTL = time.Second
	stall    = 2 * stallTTL
	// stallFirst and stallEvery say who is stopped: in each process the third that
	// holds the lock while there are gifts, and then every fiftieth.
	stallFirst, stallEvery = 3, 50
	// lostTries is how often somebody who was told to try again does.
	lostTries = 10
	// Who finds the lock held knocks again after a pause of knockMin to knockMax: the
	// lock is held for a few milliseconds, and waiting in Acquire, which asks about
	// every 100 ms, would make a long race of it.
	knockMin, knockMax = 2 * time.Millisecond, 10 * time.Millisecond
)

// lockName is the lock's name.
var lockName = lock.Name("redpacket", strconv.Itoa(bonusID))

// makeLockTables makes the tables of sqllock, if there are none; those that are
// there are used as they are.
func makeLockTables(ctx context.Context, db *sqldb.DB) (made bool, err error) {
	version, err := migrations.Version(ctx, db)
	if err != nil || version > 0 {
		return false, err
	}
	return true, migrations.Up(ctx, db)
}

// removeLockTables takes them away, also after Ctrl-C.
func removeLockTables(ctx context.Context, db *sqldb.DB) error {
	return migrations.Down(context.WithoutCancel(ctx), db, migrations.To(0))
}

// locked is the flow of [naive], one user at a time: it reads, and then writes what
// it computed from that, under a lock. It holds as long as whoever has the lock is
// not stopped for longer than its lease.
func locked(ctx context.Context, db *sqldb.DB, c config) (*contest, error) {
	return underLock(ctx, db, c, func(context.Context, *lock.Lock, *sqldb.Tx) error { return nil })
}

// lockedGuard is the same, and the transaction that writes guards the lock: whoever
// was stopped for too long is refused, and nobody else can have the lock until the
// transaction has ended.
func lockedGuard(ctx context.Context, db *sqldb.DB, c config) (*contest, error) {
	return underLock(ctx, db, c, func(ctx context.Context, l *lock.Lock, tx *sqldb.Tx) error { return l.Guard(ctx, tx) })
}

func underLock(ctx context.Context, db *sqldb.DB, c config, guard func(context.Context, *lock.Lock, *sqldb.Tx) error) (*contest, error) {
	opts := []lock.Option{lock.TTL(lockTTL), lock.Label("redpacket")}
	if c.Stall {
		// A process that is stopped renews nothing. Here only one goroutine of it is, so
		// its lease is not renewed in the first place.
		opts = []lock.Option{lock.TTL(stallTTL), lock.NoRenew(), lock.Label("redpacket")}
	}
	locker, err := sqllock.New(ctx, db, opts...)
	if err != nil {
		return nil, err
	}
	return oneAtATime(db, c, func(int) (lock.Locker, func()) {
		return locker, func() { time.Sleep(stall) }
	}, guard, locker.Close), nil
}

// oneAtATime is the race under a lock. locker is the Locker of a user, and what stops
// its process for longer than a lease.
func oneAtATime(db *sqldb.DB, c config, locker func(user int) (lock.Locker, func()), guard func(context.Context, *lock.Lock, *sqldb.Tx) error, closeAll func() error) *contest {
	var holders atomic.Int64
	once := func(ctx context.Context, user int) (served bool, err error) {
		its, stop := locker(user)
		err = lock.Do(ctx, its, lockName, func(ctx context.Context, l *lock.Lock) error {
			var left int64
			if err := db.QueryRow(ctx, fmt.Sprintf("SELECT left_count FROM t_bonus WHERE id = %d", bonusID)).Scan(&left); err != nil || left < 1 {
				return err
			}
			if n := holders.Add(1); c.Stall && n%stallEvery == stallFirst {
				// What was stopped between the last look at its ctx and the write that it
				// sends does not see that the ctx has ended.
				stop()
				ctx = context.WithoutCancel(ctx)
			}
			return sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
				served = false
				err := db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
					if err := guard(ctx, l, tx); err != nil {
						return err
					}
					if _, err := tx.Exec(ctx, fmt.Sprintf("UPDATE t_bonus SET left_count = %d, version = version + 1 WHERE id = %d", left-1, bonusID)); err != nil {
						return err
					}
					return serve(ctx, tx, user)
				})
				served = err == nil
				return err
			})
		}, lock.Try())
		if served {
			return true, nil // also if the lock was lost meanwhile: the gift is gone
		}
		return false, err
	}
	claim := func(ctx context.Context, user int) (served bool, err error) {
		for lost := 0; lost < lostTries; {
			served, err = once(ctx, user)
			switch {
			case errors.Is(err, lock.ErrHeld):
				time.Sleep(knockMin + rand.N(knockMax-knockMin))
			case errors.Is(err, lock.ErrLost), errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil:
				lost++ // or had too late: nothing was written, and the user is told to try again
			default:
				return served, err
			}
		}
		return served, err
	}
	return &contest{claim: claim, left: func() {}, close: closeAll}
}
