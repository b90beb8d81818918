package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlnative/locks/sqldb"
)

// bonusID is the red packet that everybody wants.
const bonusID = 10001

// tables are those of the race.
var tables = []string{"t_bonus", "t_bonus_slots", "t_bonus_record"}

// schema makes them. The record has no unique key, so that whoever is served
// twice is seen.
var schema = []string{
	"CREATE TABLE t_bonus (id BIGINT NOT NULL PRIMARY KEY, left_count INT NOT NULL, version BIGINT NOT NULL DEFAULT 0)",
	"CREATE TABLE t_bonus_slots (id BIGINT NOT NULL, slot INT NOT NULL, left_count INT NOT NULL, version BIGINT NOT NULL DEFAULT 0, PRIMARY KEY (id, slot))",
	"CREATE TABLE t_bonus_record (id BIGINT NOT NULL, user_id BIGINT NOT NULL)",
}

// makeTables makes the tables; those of somebody else are refused.
func makeTables(ctx context.Context, db *sqldb.DB, reset bool) error {
	if reset {
		for _, t := range tables {
			if _, err := db.Exec(ctx, "DROP TABLE IF EXISTS "+t); err != nil {
				return err
			}
		}
	}
	for _, t := range tables {
		var n int64
		err := db.QueryRow(ctx, "SELECT COUNT(*) FROM "+t).Scan(&n)
		switch {
		case err == nil:
			return fmt.Errorf("there is a table %s already; -reset drops it", t)
		case sqldb.ClassOf(err) != sqldb.NoTable:
			return err
		}
	}
	for _, q := range schema {
		if _, err := db.Exec(ctx, q); err != nil {
			return err
		}
	}
	return nil
}

// fill puts the packet back to full.
func fill(ctx context.Context, db *sqldb.DB, gifts int) error {
	return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
		for _, q := range []string{
			"DELETE FROM t_bonus_record",
			"DELETE FROM t_bonus_slots",
			"DELETE FROM t_bonus",
			fmt.Sprintf("INSERT INTO t_bonus (id, left_count) VALUES (%d, %d)", bonusID, gifts),
		} {
			if _, err := tx.Exec(ctx, q); err != nil {
				return err
			}
		}
		return nil
	})
}

// count reads what came out. Gifts are in the packet's row or in its slots.
func count(ctx context.Context, db *sqldb.DB, gifts int) (r row, err error) {
	var served int64
	err = errors.Join(
		db.QueryRow(ctx, "SELECT COUNT(*), COUNT(DISTINCT user_id) FROM t_bonus_record").Scan(&r.Claimed, &served),
		db.QueryRow(ctx, fmt.Sprintf("SELECT SUM(n) FROM (SELECT left_count AS n FROM t_bonus WHERE id = %[1]d UNION ALL SELECT left_count FROM t_bonus_slots WHERE id = %[1]d) AS gifts", bonusID)).Scan(&r.Left),
	)
	r.Oversold = max(0, r.Claimed-int64(gifts))
	r.Duplicates = r.Claimed - served
	return r, err
}
