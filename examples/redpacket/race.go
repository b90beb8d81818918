package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// attempts are those of some users.
type attempts struct {
	// Tries counts them; Served is how long those took that were served, in
	// microseconds: a refusal is another thing, and quicker.
	Tries  int64
	Served []int64
}

func (a *attempts) add(b attempts) {
	a.Tries += b.Tries
	a.Served = append(a.Served, b.Served...)
}

// runStrategy fills the packet and lets the users race for it.
func runStrategy(ctx context.Context, db *sqldb.DB, c config, name string) (row, error) {
	if err := fill(ctx, db, c.Gifts); err != nil {
		return row{}, err
	}
	if c.find(name).slots {
		if err := spread(ctx, db, c.Gifts); err != nil {
			return row{}, err
		}
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
	run, err := c.find(name).open(ctx, db, c)
	if err != nil {
		return attempts{}, err
	}
	took := make([]attempts, c.Goroutines)
	var wg sync.WaitGroup
	for g := range c.Goroutines {
		wg.Go(func() {
			defer run.left()
			for user := process + g*c.Processes; user < c.Users && ctx.Err() == nil; user += c.Processes * c.Goroutines {
				begun := time.Now()
				served, err := run.claim(ctx, user)
				if err != nil {
					cancel(err)
					return
				}
				took[g].Tries++
				if served {
					took[g].Served = append(took[g].Served, time.Since(begun).Microseconds())
				}
			}
		})
	}
	wg.Wait()
	var all attempts
	for _, t := range took {
		all.add(t)
	}
	closed := run.close()
	if err := context.Cause(ctx); err != nil && !errors.Is(err, context.Canceled) {
		return attempts{}, err
	}
	return all, errors.Join(ctx.Err(), closed)
}
