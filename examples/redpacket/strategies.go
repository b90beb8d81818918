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
	// stalls: it protects as long as nobody is stopped for longer than a lease.
	stalls bool
	// locks: it needs the tables of sqllock.
	locks bool
	// server: it needs one; SQLite is none.
	server bool
	// slots: the gifts are spread over several rows.
	slots bool
	// open prepares it in one process.
	open func(ctx context.Context, db *sqldb.DB, c config) (*contest, error)
}

// holds says whether it has to protect in this race.
func (s strategy) holds(c config) bool { return s.protected && !(s.stalls && c.Stall) }

// contest is a strategy in one process.
type contest struct {
	// claim is one attempt of one user; it reports whether the user was served.
	claim func(ctx context.Context, user int) (bool, error)
	// left is called by each goroutine when it has no more users.
	left func()
	// close is called at the end.
	close func() error
}

func strategies() []strategy {
	return []strategy{
		{name: "naive", open: naive},
		{name: "guarded", protected: true, open: guarded},
		{name: "version", protected: true, open: versioned},
		{name: "take-once", protected: true, locks: true, open: takeOnce},
		{name: "combined", protected: true, locks: true, open: combined},
		{name: "slotted", protected: true, slots: true, open: slotted},
		{name: "lock-table", protected: true, stalls: true, locks: true, open: locked},
		{name: "lock-table+guard", protected: true, locks: true, open: lockedGuard},
		{name: "advisory", protected: true, stalls: true, server: true, open: advised},
	}
}

func names() (list []string) {
	for _, s := range strategies() {
		list = append(list, s.name)
	}
	return list
}

// find returns a strategy of this race.
func (c config) find(name string) strategy {
	for _, s := range append(c.more, strategies()...) {
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
func naive(_ context.Context, db *sqldb.DB, c config) (*contest, error) {
	all := newBarrier(c.Goroutines)
	claim := func(ctx context.Context, user int) (bool, error) {
		var left int64
		err := db.QueryRow(ctx, fmt.Sprintf("SELECT left_count FROM t_bonus WHERE id = %d", bonusID)).Scan(&left)
		all.wait()
		if err != nil || left < 1 {
			return false, err
		}
		// On SQLite many writers may meet; that is not what this is about.
		err = sqldb.Retry(ctx, sqldb.Policy{Attempts: 100}, func(ctx context.Context) error {
			_, err := db.Exec(ctx, fmt.Sprintf("UPDATE t_bonus SET left_count = %d, version = version + 1 WHERE id = %d", left-1, bonusID))
			return err
		})
		if err != nil {
			return false, err
		}
		err = sqldb.Retry(ctx, sqldb.Policy{Attempts: 100}, func(ctx context.Context) error { return serve(ctx, db, user) })
		return err == nil, err
	}
	return &contest{claim: claim, left: all.leave, close: func() error { return nil }}, nil
}

// guarded takes with the condition in the statement; the record commits with it.
func guarded(_ context.Context, db *sqldb.DB, _ config) (*contest, error) {
	bonus, err := stock.New(db, stock.Table{Name: "t_bonus", ID: "id", Count: "left_count", Version: "version"})
	if err != nil {
		return nil, err
	}
	claim := func(ctx context.Context, user int) (bool, error) {
		return recorded(ctx, db, sqldb.TxOptions{}, user, func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := bonus.Take(ctx, tx, bonusID, 1)
			return err
		})
	}
	return &contest{claim: claim, left: func() {}, close: func() error { return nil }}, nil
}

// recorded is take and the record of it, which commit together.
func recorded(ctx context.Context, db *sqldb.DB, opts sqldb.TxOptions, user int, take func(ctx context.Context, tx *sqldb.Tx) error) (bool, error) {
	err := sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
		return db.InTx(ctx, opts, func(ctx context.Context, tx *sqldb.Tx) error {
			if err := take(ctx, tx); err != nil {
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
