package main

import (
	"context"
	"fmt"
	"time"

	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

const (
	slotsWorkers = 64
	slotsCount   = 16
)

// slotsRatio is how many takes a second get through one counter that is spread over
// several rows.
func slotsRatio(rounds int, each time.Duration) figure {
	return figure{
		name: "slots-ratio",
		unit: "ratio",
		about: fmt.Sprintf("takes per second of 1 from one counter: Slotted.Take of %d slots over the guarded UPDATE by hand of one row, in autocommit (on MySQL and MariaDB with its arguments in the text); "+
			"%d goroutines, both with a pool of %d connections.", slotsCount, slotsWorkers, conns),
		on: []target{
			{sqldb.Postgres, atLeast(2.5), takePostgres},
			{sqldb.MySQL, atLeast(1.5), takeMySQL},
			// One row gets nearly as much done there as 16.
			{sqldb.MariaDB, bound{}, takeMySQL},
			// One writer: slots cannot be faster.
			{sqldb.SQLite, bound{}, takeSQLite},
		},
		measure: func(ctx context.Context, b *bed) (m measurement, err error) {
			err = b.exec(ctx, "CREATE TABLE t_bonus (id BIGINT PRIMARY KEY, left_count BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 0)",
				"INSERT INTO t_bonus (id, left_count) VALUES (10001, 1000000000000)",
				"CREATE TABLE t_bonus_slots (id BIGINT NOT NULL, slot INT NOT NULL, left_count BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (id, slot))",
				"INSERT INTO t_bonus_slots (id, slot, left_count) VALUES (10001, 0, 1000000000000)")
			if err != nil {
				return m, err
			}
			sale, err := stock.NewSlotted(b.db, stock.Table{Name: "t_bonus_slots", ID: "id", Slot: "slot", Count: "left_count", Version: "version"})
			if err != nil {
				return m, err
			}
			if err := sale.Split(ctx, b.db, 10001, slotsCount); err != nil {
				return m, err
			}
			workers := slotsWorkers
			floor := func(ctx context.Context, _ int) error { return b.takeByHand(ctx) }
			if b.kind == sqldb.SQLite {
				workers = 1 // who waits for its write lock sleeps: only that would be measured
			}
			ours := func(ctx context.Context, _ int) error { return sale.Take(ctx, b.db, 10001, 1) }
			return crowdRatio(ctx, min(b.rounds, rounds), workers, each, ours, floor)
		},
	}
}
