package main

import (
	"context"
	"fmt"
	"math"

	"github.com/sqlnative/locks/optimistic"
	"github.com/sqlnative/locks/sqldb"
)

// versioned is the flow of [naive], and it writes only if the packet still has the
// version that was read. Whoever came second reads again and tries again. The record
// commits with the write.
func versioned(_ context.Context, db *sqldb.DB, _ config) (*contest, error) {
	packets, err := optimistic.New(db, optimistic.Table{Name: "t_bonus", Key: []string{"id"}, Version: "version"})
	if err != nil {
		return nil, err
	}
	// Everybody wants the same row, from several processes: Elapsed bounds it alone.
	policy := sqldb.Policy{Attempts: math.MaxInt}
	claim := func(ctx context.Context, user int) (served bool, err error) {
		err = optimistic.Do(ctx, db, policy, func(ctx context.Context, tx *sqldb.Tx) error {
			served = false
			var left, version int64
			row := tx.QueryRow(ctx, fmt.Sprintf("SELECT left_count, version FROM t_bonus WHERE id = %d", bonusID))
			if err := row.Scan(&left, &version); err != nil || left < 1 {
				return err
			}
			if _, err := packets.Update(ctx, tx, optimistic.Key(bonusID), version, optimistic.Set{"left_count": left - 1}); err != nil {
				return err
			}
			served = true
			return serve(ctx, tx, user)
		})
		return served && err == nil, err
	}
	return &contest{claim: claim, left: func() {}, close: func() error { return nil }}, nil
}
