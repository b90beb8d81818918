package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// What people write by hand to see who has a lock: one SELECT of the row.
const (
	lookPostgres = `SELECT * FROM sqllock_locks WHERE name = $1 AND slot = 0`
	lookMySQL    = `SELECT * FROM sqllock_locks WHERE name = ? AND slot = 0`
	lookSQLite   = `SELECT * FROM sqllock_locks WHERE name = ?1 AND slot = 0`
	lookColumns  = 12
)

// tryHeldRatio is what it costs to be told that somebody else has the lock: what
// most of those who ask are told, where many start the same job.
func tryHeldRatio() figure {
	return figure{
		name: "try-held-ratio",
		unit: "ratio",
		about: "Acquire with Try of a name that another Locker holds, over one SELECT of the row by its key, through the same handle with the same ctx, " +
			"which can be cancelled; 1 goroutine.",
		on: []target{
			{sqldb.Postgres, atMost(1.3), lookPostgres},
			{sqldb.MySQL, atMost(2.2), lookMySQL},
			{sqldb.MariaDB, atMost(2.2), lookMySQL},
			{sqldb.SQLite, atMost(1.3), lookSQLite},
		},
		measure: func(ctx context.Context, b *bed) (measurement, error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			l, _, err := b.heldByAnother(ctx)
			if err != nil {
				return measurement{}, err
			}
			return b.timeRatio(ctx, failingTry(l), b.lookByHand)
		},
	}
}

// heldByAnother makes a Locker, and another one that holds the lock.
func (b *bed) heldByAnother(ctx context.Context) (l lock.Locker, held *lock.Lock, err error) {
	holder, err := b.locker(ctx, b.db)
	if err != nil {
		return nil, nil, err
	}
	if held, err = holder.Acquire(ctx, benchName, lock.Label("the holder")); err != nil {
		return nil, nil, err
	}
	l, err = b.locker(ctx, b.db)
	return l, held, err
}

// lookByHand reads who has the lock.
func (b *bed) lookByHand(ctx context.Context) error {
	query := map[sqldb.Kind]string{sqldb.Postgres: lookPostgres, sqldb.SQLite: lookSQLite}[b.kind]
	var name any = benchName
	if b.kind.InnoDB() {
		query, name = lookMySQL, []byte(benchName)
	}
	var row [lookColumns]any
	dest := make([]any, lookColumns)
	for i := range row {
		dest[i] = &row[i]
	}
	return b.db.QueryRow(ctx, query, name).Scan(dest...)
}

// tryPinned is how long it takes to be told so while somebody's transaction has the
// row locked: a try that waited for it would take as long as that transaction does.
func tryPinned() figure {
	f := figure{
		name: "try-pinned-ms",
		unit: "ms",
		about: "Acquire with Try of a name that another Locker holds, while a transaction has the row locked " +
			"(FOR UPDATE; on SQLite, which has one lock for the whole file, the holder's Guard); 1 goroutine.",
		measure: func(ctx context.Context, b *bed) (m measurement, err error) {
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			l, held, err := b.heldByAnother(ctx)
			if err != nil {
				return m, err
			}
			errDone := errors.New("measured")
			err = b.db.InTx(ctx, sqldb.TxOptions{}, func(txctx context.Context, tx *sqldb.Tx) error {
				if b.kind == sqldb.SQLite {
					err = held.Guard(txctx, tx)
				} else {
					_, err = tx.Exec(txctx, "SELECT 1 FROM sqllock_locks WHERE name = '"+benchName+"' AND slot = 0 FOR UPDATE")
				}
				if err == nil {
					m, err = b.times(ctx, failingTry(l))
				}
				return errors.Join(err, errDone) // rolled back
			})
			if errors.Is(err, errDone) && m.values != nil {
				err = nil
			}
			return m, err
		},
	}
	for _, kind := range sqldb.Kinds() {
		f.on = append(f.on, target{kind: kind, bound: atMost(2)})
	}
	return f
}

// times measures how many milliseconds an operation takes, alone; a round is the
// median of a few.
func (b *bed) times(ctx context.Context, op operation) (m measurement, err error) {
	var all []float64
	for range b.rounds + 1 { // the first one makes connections
		var round []float64
		for range minOps {
			ns, err := timed(op)(ctx)
			if err != nil {
				return m, err
			}
			round = append(round, ns/float64(time.Millisecond))
		}
		m.values = append(m.values, median(round))
		all = append(all, round...)
	}
	m.values, all = m.values[1:], all[minOps:]
	m.note = fmt.Sprintf("%d of each per round; p99 %s ms, the longest %s ms", minOps, number(quantile(all, 0.99)), number(quantile(all, 1)))
	return m, nil
}
