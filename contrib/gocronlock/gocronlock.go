// Package gocronlock lets the schedulers of several machines share their jobs with
// gocron v2 (github.com/go-co-op/gocron): by a lock for each run, or by an election.
//
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(gocronlock.NewLocker(locker, lock.HoldAtLeast(time.Minute))))
//
// or
//
//	go func() { _ = e.Run(ctx, lead) }()
//	scheduler, err := gocron.NewScheduler(gocron.WithDistributedElector(gocronlock.NewElector(e)))
//
// With a period by the database's clock, and a history, package joblock does more: a
// task that calls Jobs.Run needs neither of the two.
package gocronlock

import (
	"context"
	"errors"
	"fmt"

	"github.com/go-co-op/gocron/v2"

	"github.com/sqlnative/locks/lock"
)

// NewLocker returns a gocron.Locker: a run whose job's name is locked elsewhere is
// skipped, without waiting. The names of the locks are lock.Name("gocron", job): give
// the jobs names.
//
// opts go into every Acquire; without [lock.TTL] the lease is the Locker's, 30 s by default.
// It is renewed until the run has ended; a machine that dies keeps the job from the others
// until it has run out.
//
// [lock.HoldAtLeast] belongs there, with a duration longer than the machines' clocks differ
// by, with the jitter of their schedules, and shorter than the period: a run that has ended
// on one machine before the next fires would be run again there. Advisory locks refuse it:
// with them every job has to take longer than that, or be one of package joblock.
//
// Whatever Lock answers, gocron skips the run, and tells nobody but
// [gocron.AfterLockError]: listen there, and take what does not match [lock.ErrHeld] for a
// fault. A database that does not answer, a name of more than 248 bytes, or an option that
// the strategy refuses keeps the job from running on every machine.
//
// gocron does not hand the lock to the task: when it is lost the task's ctx goes on, and
// another machine may run the job beside it. [lock.WithTrace] tells (Lost). Unlock then
// answers [lock.ErrLost], which gocron drops, and touches nobody else's lock. At Shutdown
// the lock is released as soon as the task has returned.
func NewLocker(locker lock.Locker, opts ...lock.Option) gocron.Locker {
	return locked{locker, append(opts[:len(opts):len(opts)], lock.Try())}
}

type locked struct {
	locker lock.Locker
	opts   []lock.Option
}

// Lock tries the lock of a job.
func (l locked) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	got, err := l.locker.Acquire(ctx, lock.Name("gocron", key), l.opts...)
	if err != nil {
		return nil, err
	}
	return unlock{got}, nil
}

type unlock struct{ l *lock.Lock }

// Unlock releases it.
func (u unlock) Unlock(ctx context.Context) error { return u.l.Release(ctx) }

// ErrNotLeader is what an Elector says where another leads, or nobody.
var ErrNotLeader = errors.New("gocronlock: this scheduler does not lead")

// NewElector returns a gocron.Elector: only the scheduler whose election is won runs
// jobs. Somebody has to call e.Run. It is asked when a run begins: one that runs when the
// leadership is lost goes on, beside those of the next leader.
func NewElector(e *lock.Election) gocron.Elector { return elector{e} }

type elector struct{ e *lock.Election }

// IsLeader is nil where it leads.
func (e elector) IsLeader(ctx context.Context) error {
	switch {
	case ctx.Err() != nil:
		return fmt.Errorf("gocronlock: %w", ctx.Err())
	case !e.e.IsLeader():
		return ErrNotLeader
	}
	return nil
}
