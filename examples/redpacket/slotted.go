package main

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// slots is over how many rows slotted spreads the gifts.
const slots = 16

func slottedStock(db *sqldb.DB) (*stock.Slotted, error) {
	return stock.NewSlotted(db, stock.Table{Name: "t_bonus_slots", ID: "id", Slot: "slot", Count: "left_count", Version: "version"})
}

// slotted is guarded with the gifts spread over several rows, so that those who come at
// the same time, from however many processes, do not wait for each other's commit.
func slotted(_ context.Context, db *sqldb.DB, _ config) (*contest, error) {
	bonus, err := slottedStock(db)
	if err != nil {
		return nil, err
	}
	// See Slotted.Take; on SQLite there is one level.
	opts := sqldb.TxOptions{Isolation: sql.LevelReadCommitted}
	if db.Kind() == sqldb.SQLite {
		opts.Isolation = sql.LevelDefault
	}
	claim := func(ctx context.Context, user int) (bool, error) {
		return recorded(ctx, db, opts, user, func(ctx context.Context, tx *sqldb.Tx) error {
			return bonus.Take(ctx, tx, bonusID, 1)
		})
	}
	return &contest{claim: claim, left: func() {}, close: func() error { return nil }}, nil
}

// spread moves the gifts from the packet's row into slots.
func spread(ctx context.Context, db *sqldb.DB, gifts int) error {
	bonus, err := slottedStock(db)
	if err != nil {
		return err
	}
	if _, err := db.Exec(ctx, fmt.Sprintf("UPDATE t_bonus SET left_count = 0 WHERE id = %d", bonusID)); err != nil {
		return err
	}
	if _, err := db.Exec(ctx, fmt.Sprintf("INSERT INTO t_bonus_slots (id, slot, left_count) VALUES (%d, 0, %d)", bonusID, gifts)); err != nil {
		return err
	}
	return bonus.Split(ctx, db, bonusID, slots)
}
