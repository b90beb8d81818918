package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

const (
	renewLocks     = 1000
	renewIntervals = 10
	renewTTL       = 3 * time.Second // renewed every second
)

// renewStatements is what it costs a database that a program holds many locks: not
// one statement for each of them.
func renewStatements(locks int, ttl time.Duration) figure {
	f := figure{
		name: "renew-statements",
		unit: "statements",
		about: fmt.Sprintf("Statements of a Locker that holds %d locks with a TTL of %v, over %d intervals of renewal (a third of the TTL); "+
			"counted once, from two intervals after the last lock was had.", locks, ttl, renewIntervals),
		measure: func(ctx context.Context, b *bed) (m measurement, err error) {
			statements := new(atomic.Int64)
			db := b.db.Wrap(func(d sqldb.Driver) sqldb.Driver { return counting{d, statements} })
			var stats lock.Stats
			l, err := b.locker(ctx, db, lock.TTL(ttl), lock.WithTrace(stats.Trace()))
			if err != nil {
				return m, err
			}
			begun := time.Now()
			if err := acquireMany(ctx, l, locks); err != nil {
				return m, err
			}
			had := time.Since(begun)
			interval := ttl / 3
			if err := pause(ctx, 2*interval); err != nil {
				return m, err
			}
			sent, renewed := statements.Load(), stats.Renewed.Load()
			if err := pause(ctx, renewIntervals*interval); err != nil {
				return m, err
			}
			m.values = []float64{float64(statements.Load() - sent)}
			renewed = stats.Renewed.Load() - renewed
			m.note = fmt.Sprintf("%d renewals; the locks were had in %v", renewed, had.Round(time.Millisecond))
			// What is not renewed costs nothing: that would be no figure.
			if lost := stats.Lost.Load(); lost > 0 || renewed < int64((renewIntervals-1)*locks) {
				return m, fmt.Errorf("%d of %d locks were lost, with %d renewals", lost, locks, renewed)
			}
			return m, nil
		},
	}
	for _, kind := range sqldb.Kinds() {
		f.on = append(f.on, target{kind: kind, bound: atMost(renewIntervals + 2)})
	}
	return f
}

// acquireMany acquires locks of different names, a few at a time: the leases of the
// first ones are not to run out before the last one is had.
func acquireMany(ctx context.Context, l lock.Locker, n int) error {
	const workers = 8
	errs := make(chan error, workers)
	for w := range workers {
		go func() {
			for i := w; i < n; i += workers {
				if _, err := l.Acquire(ctx, lock.Name("bench", strconv.Itoa(i))); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	var all error
	for range workers {
		all = errors.Join(all, <-errs)
	}
	return all
}

func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// counting counts the statements that go through a driver and its connections.
// Transactions are not looked into: a Locker's own statements run on connections,
// inside of one on SQLite.
type counting struct {
	sqldb.Driver
	n *atomic.Int64
}

func (d counting) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	d.n.Add(1)
	return d.Driver.Exec(ctx, query, args)
}

func (d counting) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	d.n.Add(1)
	return d.Driver.Query(ctx, query, args)
}

func (d counting) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := d.Driver.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return countingConn{c, d.n}, nil
}

type countingConn struct {
	sqldb.DriverConn
	n *atomic.Int64
}

func (c countingConn) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	c.n.Add(1)
	return c.DriverConn.Exec(ctx, query, args)
}

func (c countingConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	c.n.Add(1)
	return c.DriverConn.Query(ctx, query, args)
}

// Begin counts a transaction as the one statement that it is made for.
func (c countingConn) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	c.n.Add(1)
	return c.DriverConn.Begin(ctx, o)
}
