package main

import (
	"context"
	"database/sql"

	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// placeSQL places an order with database/sql. The goods come first: a transaction of
// which TakeAll is the first statement that locks anything never deadlocks with
// another of the kind. What may fail all the same, and can be tried again (a database
// that is SERIALIZABLE by default, say), [sqldb.Retry] tries again, from BEGIN on.
func (s *shop) placeSQL(ctx context.Context, who string, lines []stock.Line) (lefts []int64, err error) {
	err = s.inTx(ctx, func(tx *sql.Tx) (err error) {
		if lefts, err = s.goods.TakeAll(ctx, s.db.Tx(tx), lines); err != nil {
			return err
		}
		return s.record(ctx, tx, who, lines)
	})
	return lefts, err
}

// pay makes an order of a cart whose goods are reserved. If the reservation has
// expired, the error says so ([stock.ErrExpired]), and there is no order.
func (s *shop) pay(ctx context.Context, who string, lines []stock.Line, hold string) error {
	return s.inTx(ctx, func(tx *sql.Tx) error {
		if err := s.goods.Confirm(ctx, s.db.Tx(tx), hold); err != nil {
			return err
		}
		return s.record(ctx, tx, who, lines)
	})
}

func (s *shop) inTx(ctx context.Context, f func(tx *sql.Tx) error) error {
	return sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
		tx, err := s.sql.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer func() { _ = tx.Rollback() }()
		if err := f(tx); err != nil {
			return err
		}
		return tx.Commit()
	})
}

// record writes the rows of an order.
func (s *shop) record(ctx context.Context, tx *sql.Tx, who string, lines []stock.Line) error {
	id := newID()
	if _, err := tx.ExecContext(ctx, s.text("INSERT INTO t_order (id, who) VALUES (?, ?)"), id, who); err != nil {
		return err
	}
	for _, line := range lines {
		if _, err := tx.ExecContext(ctx, s.text("INSERT INTO t_order_line (order_id, goods_id, n) VALUES (?, ?, ?)"), id, line.ID, line.N); err != nil {
			return err
		}
	}
	return nil
}
