package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// strategy is one way of counting the gifts.
type strategy struct {
	name string
	// protected: nothing may be oversold, and nobody served twice.
	protected bool
	// open prepares it in one process. claim is one attempt of one user; it reports
	// whether the user was served. Each goroutine calls left when it has no more
	// users.
	open func(db *sqldb.DB, goroutines int) (claim func(ctx context.Context, user int) (bool, error), left func(), err error)
}

func strategies() []strategy {
	return []strategy{
		{name: "naive", open: naive},
		{name: "guarded", protected: true, open: guarded},
	}
}

func names() (list []string) {
	for _, s := range strategies() {
		list = append(list, s.name)
	}
	return list
}

func find(name string) strategy {
	for _, s := range strategies() {
		if s.name == name {
			return s
		}
	}
	panic("redpacket: no strategy " + name)
}

// serve writes down that the user has got a gift.
func serve(ctx context.Context, h sqldb.Handle, user int) error {
	_, err := h.Exec(ctx, fmt.Sprintf("INSERT INTO t_bonus_record (id, user_id) VALUES (%d, %d)", bonusID, user))
	return err
}

// naive is the faulty flow of the story: read the count, and if there is one left,
// write back one less. The barrier makes of bad luck a certainty: all that are at
// it have read before one of them writes.
func naive(db *sqldb.DB, goroutines int) (func(context.Context, int) (bool, error), func(), error) {
	all := newBarrier(goroutines)
	claim := func(ctx context.Context, user int) (bool, error) {
		var left int64
		err := db.QueryRow(ctx, fmt.Sprintf("SELECT left_count FROM t_bonus WHERE id = %d", bonusID)).Scan(&left)
		all.wait()
		if err != nil || left < 1 {
			return false, err
		}
		_, err = db.Exec(ctx, fmt.Sprintf("UPDATE t_bonus SET left_count = %d, version = version + 1 WHERE id = %d", left-1, bonusID))
		if err != nil {
			return false, err
		}
		return true, serve(ctx, db, user)
	}
	return claim, all.leave, nil
}

// guarded takes with the condition in the statement; the record commits with it.
func guarded(db *sqldb.DB, _ int) (func(context.Context, int) (bool, error), func(), error) {
	bonus, err := stock.New(db, stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"})
	if err != nil {
		return nil, nil, err
	}
	claim := func(ctx context.Context, user int) (bool, error) {
		err := sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
			return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				if _, err := bonus.Take(ctx, tx, bonusID, 1); err != nil {
					return err
				}
				return serve(ctx, tx, user)
			})
		})
		if errors.Is(err, stock.ErrSoldOut) {
			return false, nil
		}
		return err == nil, err
	}
	return claim, func() {}, nil
}
