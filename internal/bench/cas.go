package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sqlnative/locks/optimistic"
	"github.com/sqlnative/locks/sqldb"
)

// What people write by hand around a version column, in autocommit.
const (
	casRead   = `SELECT version FROM article WHERE id = 7`
	casUpdate = `UPDATE article SET version = version + 1 WHERE id = 7 AND version = %d`
	casFloor  = casRead + ";\n" + `UPDATE article SET version = version + 1 WHERE id = 7 AND version = ..;` + "\nagain at once, until it has changed a row"
)

// The crowd of cas-ratio, and how long each side works in a round.
const (
	casGoroutines = 64
	casTime       = time.Second
	// casRounds: a round takes casTime for each side, so there are fewer of them.
	casRounds = 10
)

// casRatio is what pausing is worth to a crowd that compares and swaps one row.
func casRatio(goroutines, rounds int, each time.Duration) figure {
	return figure{
		name: "cas-ratio",
		unit: "ratio",
		about: "Successes per second of a read and a compare-and-swap of one row by its version, in autocommit, under sqldb.Retry with its default policy, " +
			"over those of the same two statements tried again at once; 64 goroutines, a connection each.",
		on: []target{
			{sqldb.Postgres, atLeast(2.5), casFloor},
			{sqldb.MySQL, atLeast(5), casFloor},
			{sqldb.MariaDB, bound{}, casFloor},
			{sqldb.SQLite, bound{}, casFloor},
		},
		measure: func(ctx context.Context, b *bed) (m measurement, err error) {
			p, err := b.open(ctx, goroutines)
			if err != nil {
				return m, err
			}
			err = b.exec(ctx, "CREATE TABLE article (id BIGINT PRIMARY KEY, version BIGINT NOT NULL)", "INSERT INTO article VALUES (7, 0)")
			if err != nil {
				return m, err
			}
			var gaveUp atomic.Int64
			crowd := func(policy sqldb.Policy) side {
				return func(ctx context.Context) (float64, error) {
					return casCrowd(ctx, p.db, goroutines, each, policy, &gaveUp)
				}
			}
			ours, floor := crowd(sqldb.Policy{}), crowd(sqldb.Policy{Attempts: math.MaxInt, Base: 1, Max: 1})
			for _, warmUp := range []side{ours, floor} {
				if _, err := warmUp(ctx); err != nil {
					return m, err
				}
			}
			gaveUp.Store(0)
			pairs, err := alternate(ctx, min(b.rounds, rounds), ours, floor)
			if err != nil {
				return m, err
			}
			for _, p := range pairs {
				m.values = append(m.values, p.ours/p.floor)
			}
			o, f := split(pairs)
			m.note = fmt.Sprintf("successes per second: ours %.0f, the floor %.0f; %d of ours gave up, and began anew",
				median(o), median(f), gaveUp.Load())
			return m, nil
		},
	}
}

// casCrowd lets the goroutines work for a while, and returns their successes per
// second. What ends later than that is not counted, and a pause ends with it: neither
// side is measured by how long its last ones sleep.
func casCrowd(ctx context.Context, db *sqldb.DB, goroutines int, each time.Duration, policy sqldb.Policy, gaveUp *atomic.Int64) (float64, error) {
	timed, stop := context.WithTimeout(ctx, each)
	defer stop()
	var successes atomic.Int64
	errs := make([]error, goroutines)
	var wg sync.WaitGroup
	for g := range goroutines {
		wg.Go(func() {
			for timed.Err() == nil {
				// The statements have the ctx that goes on: one that ends would cut connections.
				err := sqldb.Retry(timed, policy, func(context.Context) error { return cas(ctx, db) })
				var gave *sqldb.RetryError
				switch {
				case timed.Err() != nil:
					return
				case err == nil:
					successes.Add(1)
				case errors.As(err, &gave):
					gaveUp.Add(1)
				default:
					errs[g] = err
					stop()
					return
				}
			}
		})
	}
	wg.Wait()
	return float64(successes.Load()) / each.Seconds(), errors.Join(append(errs, ctx.Err())...)
}

// cas reads the version, and raises it if it is still so.
func cas(ctx context.Context, db *sqldb.DB) error {
	var version int64
	if err := db.QueryRow(ctx, casRead).Scan(&version); err != nil {
		return err
	}
	res, err := db.Exec(ctx, fmt.Sprintf(casUpdate, version))
	return optimistic.Check(res.RowsAffected, err)
}
