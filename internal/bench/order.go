package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

const (
	orderWorkers   = 8
	soldOutWorkers = 64
	// crowdTime is for how long a crowd works in one round, for each side; so there
	// are not more than crowdRounds of them.
	crowdTime   = 300 * time.Millisecond
	crowdRounds = 25
)

// orderRatio is what an order of several lines does over the same lines taken one by
// one.
func orderRatio(rounds int, each time.Duration) figure {
	return figure{
		name: "order-ratio",
		unit: "ratio",
		about: "orders per second: stock.TakeAll of 3 lines on a DB, over 3 stock.Takes in one transaction, which has sorted them by hand so that they do not deadlock; " +
			"8 goroutines in opposite orders, a connection each (SQLite: one for all), all on the same 3 rows.",
		on: []target{
			{sqldb.Postgres, atLeast(0.9), "3 times Take, sorted, in one transaction"},
			{sqldb.MySQL, atLeast(0.9), "3 times Take, sorted, in one transaction"},
			{sqldb.MariaDB, atLeast(0.9), "3 times Take, sorted, in one transaction"},
			{sqldb.SQLite, atLeast(0.9), "3 times Take, sorted, in one transaction"},
		},
		measure: func(ctx context.Context, b *bed) (measurement, error) {
			err := b.exec(ctx, "CREATE TABLE goods (id BIGINT PRIMARY KEY, n BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 0)",
				"INSERT INTO goods (id, n) VALUES (1, 1000000000), (2, 1000000000), (3, 1000000000)")
			if err != nil {
				return measurement{}, err
			}
			conns := orderWorkers
			if b.kind == sqldb.SQLite {
				conns = 1 // who waits for its write lock sleeps, for up to 100 ms: only that would be measured
			}
			p, err := b.open(ctx, conns)
			if err != nil {
				return measurement{}, err
			}
			goods, err := stock.New(p.db, stock.Table{Name: "goods", ID: "id", Count: "n", Version: "version"})
			if err != nil {
				return measurement{}, err
			}
			lines := func(worker int) []stock.Line {
				list := []stock.Line{{ID: 1, N: 1}, {ID: 2, N: 1}, {ID: 3, N: 1}}
				if worker%2 == 1 {
					slices.Reverse(list)
				}
				return list
			}
			all := func(ctx context.Context, worker int) error {
				_, err := goods.TakeAll(ctx, p.db, lines(worker))
				return err
			}
			sorted := func(ctx context.Context, worker int) error {
				list := lines(worker)
				slices.SortFunc(list, func(a, b stock.Line) int { return a.ID.(int) - b.ID.(int) })
				return sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
					return p.db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
						for _, l := range list {
							if _, err := goods.Take(ctx, tx, l.ID, l.N); err != nil {
								return err
							}
						}
						return nil
					})
				})
			}
			return crowdRatio(ctx, min(b.rounds, rounds), orderWorkers, each, all, sorted)
		},
	}
}

// soldOutRatio is how many can be told per second that nothing is left.
func soldOutRatio(rounds int, each time.Duration) figure {
	return figure{
		name: "sold-out-ratio",
		unit: "ratio",
		about: "refusals per second: stock.Take on a DB of a row with 0 left, over the guarded UPDATE by hand, which changes nothing there, through the same pool (its arguments in the text); " +
			"64 goroutines, a connection each, one row.",
		on: []target{
			{sqldb.Postgres, bound{}, takePostgres},
			{sqldb.MySQL, atLeast(5), takeMySQL},
			{sqldb.MariaDB, bound{}, takeMySQL},
		},
		measure: func(ctx context.Context, b *bed) (measurement, error) {
			err := b.exec(ctx, "CREATE TABLE t_bonus (id BIGINT PRIMARY KEY, left_count BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 0)",
				"INSERT INTO t_bonus (id, left_count) VALUES (10001, 0)")
			if err != nil {
				return measurement{}, err
			}
			p, err := b.open(ctx, soldOutWorkers)
			if err != nil {
				return measurement{}, err
			}
			bonus, err := stock.New(p.db, stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"})
			if err != nil {
				return measurement{}, err
			}
			ours := func(ctx context.Context, _ int) error {
				_, err := bonus.Take(ctx, p.db, 10001, 1)
				if errors.Is(err, stock.ErrSoldOut) {
					return nil
				}
				return fmt.Errorf("not refused: %w", err)
			}
			floor := func(ctx context.Context, _ int) error {
				if b.kind.InnoDB() {
					res, err := p.db.Exec(ctx, takeMySQL)
					if err == nil && res.RowsAffected != 0 {
						err = errors.New("not refused")
					}
					return err
				}
				res, err := p.db.Exec(ctx, takePostgres, 10001, 1)
				if err == nil && res.RowsAffected != 0 {
					err = errors.New("not refused")
				}
				return err
			}
			return crowdRatio(ctx, min(b.rounds, rounds), soldOutWorkers, each, ours, floor)
		},
	}
}

// crowdOperation is what one of many goroutines does again and again.
type crowdOperation func(ctx context.Context, worker int) error

// crowdRatio compares how many operations per second many goroutines get done,
// ours over the floor, in turns.
func crowdRatio(ctx context.Context, rounds, workers int, each time.Duration, ours, floor crowdOperation) (measurement, error) {
	for _, op := range []crowdOperation{ours, floor} { // connections, prepared statements
		if _, err := perSecond(ctx, workers, each, op); err != nil {
			return measurement{}, err
		}
	}
	side := func(op crowdOperation) side {
		return func(ctx context.Context) (float64, error) { return perSecond(ctx, workers, each, op) }
	}
	pairs, err := alternate(ctx, rounds, side(ours), side(floor))
	if err != nil {
		return measurement{}, err
	}
	var m measurement
	for _, p := range pairs {
		m.values = append(m.values, p.ours/p.floor)
	}
	o, f := split(pairs)
	m.note = fmt.Sprintf("%d goroutines; ours %.0f per second, the floor %.0f", workers, median(o), median(f))
	return m, nil
}

// perSecond lets goroutines do op for a while.
func perSecond(ctx context.Context, workers int, each time.Duration, op crowdOperation) (float64, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex
	var failed error
	total := 0
	var wg sync.WaitGroup
	start := time.Now()
	for w := range workers {
		wg.Go(func() {
			n := 0
			var err error
			for err == nil && time.Since(start) < each {
				if err = op(ctx, w); err == nil {
					n++
				}
			}
			mu.Lock()
			defer mu.Unlock()
			total += n
			if err != nil && failed == nil {
				failed = err
				cancel()
			}
		})
	}
	wg.Wait()
	return float64(total) / time.Since(start).Seconds(), failed
}
