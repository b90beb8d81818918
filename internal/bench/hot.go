package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

const (
	// hotTime is for how long a crowd works at the hot row in one round, for each side.
	hotTime   = time.Second
	hotRounds = 7
	// hotFloor is what the bench says the floor is, for people.
	hotFloor = "\nby the pool of 4, 16 or 64 connections that gets the most done"
)

// hotPools are the pools of which the best is the floor: more connections are not more
// takes, where each waits for the one before.
var hotPools = []int{4, 16, 64}

// hotRatio is how many takes a second get through one row.
func hotRatio(workers, rounds int, each time.Duration, postgres, mysql, mariadb float64) figure {
	return figure{
		name: fmt.Sprintf("hot-row-ratio-%d", workers),
		unit: "ratio",
		about: fmt.Sprintf("takes per second of 1 from one row: Combined.Take, a pool of %d connections, over the guarded UPDATE by hand in autocommit (on MySQL and MariaDB with its arguments in the text); %d goroutines. "+
			"Both are durable, as the server is.", conns, workers),
		on: []target{
			{sqldb.Postgres, atLeast(postgres), takePostgres + hotFloor},
			{sqldb.MySQL, atLeast(mysql), takeMySQL + hotFloor},
			{sqldb.MariaDB, atLeast(mariadb), takeMySQL + hotFloor},
		},
		measure: func(ctx context.Context, b *bed) (m measurement, err error) {
			h, err := b.hot(ctx, each)
			if err != nil {
				return m, err
			}
			defer h.close()
			floor, pool, err := h.bestByHand(ctx, workers, each)
			if err != nil {
				return m, err
			}
			m, err = crowdRatio(ctx, min(b.rounds, rounds), workers, each, h.combined, floor)
			m.note += fmt.Sprintf(", with a pool of %d; %s", pool, h)
			return m, err
		},
	}
}

// hotP99 is how long the slowest wait.
func hotP99(workers, rounds int, each time.Duration) figure {
	return figure{
		name:  fmt.Sprintf("hot-row-p99-ratio-%d", workers),
		unit:  "ratio",
		about: fmt.Sprintf("the 99th percentile of how long a take of 1 from one row needs: Combined.Take over the guarded UPDATE by hand, as in hot-row-ratio-%d; %d goroutines.", workers, workers),
		on: []target{
			{sqldb.Postgres, atMost(1), takePostgres + hotFloor},
			{sqldb.MySQL, atMost(1), takeMySQL + hotFloor},
			{sqldb.MariaDB, atMost(1), takeMySQL + hotFloor},
		},
		measure: func(ctx context.Context, b *bed) (m measurement, err error) {
			h, err := b.hot(ctx, each)
			if err != nil {
				return m, err
			}
			defer h.close()
			floor, pool, err := h.bestByHand(ctx, workers, each)
			if err != nil {
				return m, err
			}
			p99 := func(op crowdOperation) side {
				return func(ctx context.Context) (float64, error) {
					times := make([][]float64, workers)
					_, err := perSecond(ctx, workers, each, func(ctx context.Context, worker int) error {
						ns, err := timed(func(ctx context.Context) error { return op(ctx, worker) })(ctx)
						times[worker] = append(times[worker], ns)
						return err
					})
					return quantile(slices.Concat(times...), 0.99), err
				}
			}
			pairs, err := alternate(ctx, min(b.rounds, rounds), p99(h.combined), p99(floor))
			for _, p := range pairs {
				m.values = append(m.values, p.ours/p.floor)
			}
			o, f := split(pairs)
			m.note = fmt.Sprintf("ours %v, the floor %v with a pool of %d", nanoseconds(median(o)), nanoseconds(median(f)), pool)
			return m, err
		},
	}
}

// hotClaims is how many takes with a claim a second get through one row.
func hotClaims(workers, rounds int, each time.Duration, postgres, mysql, mariadb float64) figure {
	const floor = "stock.TakeOnce"
	return figure{
		name:  fmt.Sprintf("hot-row-claims-ratio-%d", workers),
		unit:  "ratio",
		about: fmt.Sprintf("takes per second of 1 from one row, each with a claim of its own: Combined.TakeOnce over stock.TakeOnce, both on a pool of %d connections; %d goroutines.", conns, workers),
		on: []target{
			{sqldb.Postgres, atLeast(postgres), floor},
			{sqldb.MySQL, atLeast(mysql), floor},
			{sqldb.MariaDB, atLeast(mariadb), floor},
		},
		measure: func(ctx context.Context, b *bed) (m measurement, err error) {
			h, err := b.hot(ctx, each)
			if err != nil {
				return m, err
			}
			defer h.close()
			m, err = crowdRatio(ctx, min(b.rounds, rounds), workers, each, h.combinedOnce, func(ctx context.Context, _ int) error {
				_, err := h.bonus.TakeOnce(ctx, b.db, 10001, 1, h.claim())
				return err
			})
			m.note += "; " + h.String()
			return m, err
		},
	}
}

// combineLone is what one goroutine pays for what many gain.
func combineLone() figure {
	const floor = "stock.Take"
	return figure{
		name:  "combine-lone-ratio",
		unit:  "ratio",
		about: "Combined.Take of 1 over stock.Take of 1 on a DB, from the same row through the same pool; 1 goroutine.",
		on: []target{
			{sqldb.Postgres, atMost(1.1), floor},
			{sqldb.MySQL, atMost(1.1), floor},
			{sqldb.MariaDB, atMost(1.1), floor},
			{sqldb.SQLite, atMost(1.1), floor},
		},
		measure: func(ctx context.Context, b *bed) (m measurement, err error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			h, err := b.hot(ctx, 0)
			if err != nil {
				return m, err
			}
			defer h.close()
			return b.timeRatio(ctx, func(ctx context.Context) error { return h.combined(ctx, 0) }, func(ctx context.Context) error {
				_, err := h.bonus.Take(ctx, b.db, 10001, 1)
				return err
			})
		},
	}
}

// hot is the red packet's one row, and what takes from it.
type hot struct {
	b     *bed
	bonus *stock.Stock
	sale  *stock.Combined
	name  string       // claims of two runs are two
	next  atomic.Int64 // number of the next claim

	batches, served atomic.Int64
}

func (b *bed) hot(ctx context.Context, each time.Duration) (*hot, error) {
	err := b.exec(ctx, "CREATE TABLE t_bonus (id BIGINT PRIMARY KEY, left_count BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 0)",
		"INSERT INTO t_bonus (id, left_count) VALUES (10001, 1000000000000)")
	if err != nil {
		return nil, err
	}
	if err := migrations.Up(ctx, b.db); err != nil {
		return nil, err
	}
	h := &hot{b: b, name: "user:"}
	if h.bonus, err = stock.New(b.db, stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"}); err != nil {
		return nil, err
	}
	var opts []stock.CombineOption
	if each > 0 {
		opts = append(opts, stock.TraceCombine(&stock.CombineTrace{Batch: func(x stock.Batch) {
			h.batches.Add(1)
			h.served.Add(int64(x.Served))
		}}))
	}
	h.sale, err = h.bonus.Combine(b.db, opts...)
	return h, err
}

func (h *hot) close() { _ = h.sale.Close() }

// String is how large the batches were.
func (h *hot) String() string {
	return fmt.Sprintf("%.0f to a batch", float64(h.served.Load())/float64(max(1, h.batches.Load())))
}

func (h *hot) claim() string { return h.name + strconv.FormatInt(h.next.Add(1), 10) }

func (h *hot) combined(ctx context.Context, _ int) error {
	_, err := h.sale.Take(ctx, 10001, 1)
	return err
}

func (h *hot) combinedOnce(ctx context.Context, _ int) error {
	_, err := h.sale.TakeOnce(ctx, 10001, 1, h.claim())
	return err
}

// bestByHand is the guarded UPDATE by hand, through the pool that gets the most done.
func (h *hot) bestByHand(ctx context.Context, workers int, each time.Duration) (best crowdOperation, pool int, err error) {
	most := 0.0
	for _, n := range hotPools {
		p, err := h.b.open(ctx, n)
		if err != nil {
			return nil, 0, err
		}
		hand := &bed{pools: p, kind: h.b.kind}
		op := func(ctx context.Context, _ int) error { return hand.takeByHand(ctx) }
		var v float64
		for range 2 { // connections, prepared statements
			if v, err = perSecond(ctx, workers, each, op); err != nil {
				return nil, 0, err
			}
		}
		if v > most {
			best, pool, most = op, n, v
		}
	}
	return best, pool, nil
}
