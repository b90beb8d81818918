package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// attempts are how long the attempts of some users took, in microseconds.
type attempts []int64

// runStrategy fills the packet and lets the users race for it.
func runStrategy(ctx context.Context, db *sqldb.DB, c config, name string) (row, error) {
	if err := fill(ctx, db, c.Gifts); err != nil {
		return row{}, err
	}
	var took attempts
	var elapsed time.Duration
	var err error
	if c.Processes == 1 {
		begun := time.Now()
		took, err = goroutines(ctx, db, c, name, 0)
		elapsed = time.Since(begun)
	} else {
		took, elapsed, err = processes(ctx, c, name)
	}
	if err != nil {
		return row{}, err
	}
	r, err := count(ctx, db, c.Gifts)
	r.Strategy = name
	r.times(took, elapsed)
	return r, err
}

// goroutines lets one process's share of the users race: those whose number is
// process modulo the number of processes. Each goroutine has its own share, so that
// those of the naive barrier have equally many.
func goroutines(ctx context.Context, db *sqldb.DB, c config, name string, process int) (attempts, error) {
	// The first error ends the race of all: a barrier must not wait for one that
	// has given up.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	claim, leave, err := find(name).open(db, c.Goroutines)
	if err != nil {
		return nil, err
	}
	took := make([]attempts, c.Goroutines)
	var wg sync.WaitGroup
	for g := range c.Goroutines {
		wg.Go(func() {
			defer leave()
			for user := process + g*c.Processes; user < c.Users && ctx.Err() == nil; user += c.Processes * c.Goroutines {
				begun := time.Now()
				if _, err := claim(ctx, user); err != nil {
					cancel(err)
					return
				}
				took[g] = append(took[g], time.Since(begun).Microseconds())
			}
		})
	}
	wg.Wait()
	var all attempts
	for _, t := range took {
		all = append(all, t...)
	}
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return nil, err
	}
	return all, ctx.Err()
}
