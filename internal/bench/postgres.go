package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// walPairs is how many pairs a round of walSyncs is long: some 100 ms, so that
// what the WAL writer flushes by itself, every 200 ms, is in its measure.
const walPairs = 200

// walSyncs is how often a lock makes PostgreSQL wait for the disk.
func walSyncs() figure {
	return figure{
		name: "wal-syncs-per-pair",
		unit: "syncs",
		about: fmt.Sprintf("How often the server flushes its WAL to disk for one Acquire and Release, by pg_stat_wal (pg_stat_io on PostgreSQL 18); "+
			"rounds of %d pairs, 1 goroutine. The server's count is of all its sessions: only on a quiet one is it a pair's.", walPairs),
		on: []target{{kind: sqldb.Postgres, bound: atMost(1.05)}},
		measure: func(ctx context.Context, b *bed) (m measurement, err error) {
			// One connection for the pairs, one for renewals: a session hands in what it has
			// counted when it is asked to.
			p, err := b.open(ctx, 2)
			if err != nil {
				return m, err
			}
			l, err := b.locker(ctx, p.db)
			if err != nil {
				return m, err
			}
			op := pairOf(l)
			if err := repeat(ctx, walPairs, op); err != nil {
				return m, err
			}
			var quietest float64
			for range min(b.rounds, 20) {
				before, err := p.walFlushes(ctx)
				if err != nil {
					return m, err
				}
				if err := repeat(ctx, walPairs, op); err != nil {
					return m, err
				}
				after, err := p.walFlushes(ctx)
				if err != nil {
					return m, err
				}
				syncs := float64(after-before) / walPairs
				m.values = append(m.values, syncs)
				if quietest == 0 || syncs < quietest {
					quietest = syncs
				}
			}
			m.note = "the quietest round " + number(quietest)
			return m, nil
		},
	}
}

func repeat(ctx context.Context, n int, op operation) error {
	for range n {
		if err := op(ctx); err != nil {
			return err
		}
	}
	return nil
}

// walFlushes is how often the WAL has been flushed since the server began to count.
func (p *pools) walFlushes(ctx context.Context) (n int64, err error) {
	query := "SELECT wal_sync FROM pg_stat_wal"
	switch version := p.db.VersionNumber(); {
	case version >= 180000:
		query = "SELECT sum(fsyncs)::bigint FROM pg_stat_io WHERE object = 'wal'"
		fallthrough
	case version >= 150000:
		// Handed in when the statement has ended; the next one sees it.
		if _, err := p.db.Exec(ctx, "SELECT pg_stat_force_next_flush()"); err != nil {
			return 0, err
		}
	default:
		// PostgreSQL 14 sends it to a process of its own, every half second at most.
		if err := pause(ctx, time.Second); err != nil {
			return 0, err
		}
		if _, err := p.db.Exec(ctx, "SELECT 1"); err != nil {
			return 0, err
		}
		if err := pause(ctx, time.Second); err != nil {
			return 0, err
		}
	}
	var fsync, method string
	err = p.db.QueryRow(ctx, "SELECT ("+query+"), current_setting('fsync'), current_setting('wal_sync_method')").Scan(&n, &fsync, &method)
	if err == nil && (fsync != "on" || method != "fdatasync" && method != "fsync" && method != "fsync_writethrough") {
		return 0, fmt.Errorf("the server counts no flushes with fsync=%s and wal_sync_method=%s", fsync, method)
	}
	return n, err
}

const (
	snapshotPairs = 15_000
	snapshotRound = 10 // pairs
	// snapshotTime bounds each half: on a slow machine there are fewer pairs.
	snapshotTime = 25 * time.Second
)

// pairSnapshot is what a transaction that somebody keeps open makes of a lock: no
// version of the row that it could still read can be cleaned up.
func pairSnapshot(pairs int) figure {
	return figure{
		name: "pair-ms-snapshot",
		unit: "ms",
		about: fmt.Sprintf("Acquire and Release after %d pairs on one row beside an open REPEATABLE READ transaction, which keeps every old version of it; "+
			"the same without the transaction, just before, is told with it; 1 goroutine.", pairs),
		on: []target{{kind: sqldb.Postgres}},
		measure: func(ctx context.Context, b *bed) (m measurement, err error) {
			l, err := b.locker(ctx, b.db)
			if err != nil {
				return m, err
			}
			without, _, err := b.age(ctx, l, pairs)
			if err != nil {
				return m, err
			}
			made := 0
			errDone := errors.New("measured")
			err = b.db.InTx(ctx, sqldb.TxOptions{Isolation: sql.LevelRepeatableRead, ReadOnly: true}, func(txctx context.Context, tx *sqldb.Tx) error {
				var one int
				if err := tx.QueryRow(txctx, "SELECT 1").Scan(&one); err != nil { // the snapshot is made here
					return err
				}
				m.values, made, err = b.age(ctx, l, pairs)
				return errors.Join(err, errDone)
			})
			if errors.Is(err, errDone) && m.values != nil {
				err = nil
			}
			with, base := median(m.values), median(without)
			m.note = fmt.Sprintf("after %d pairs; %s ms without the transaction: %s times that", made, number(base), number(with/base))
			return m, err
		},
	}
}

// age makes so many pairs, or as many as there is time for, and then measures
// rounds of them: the median of each in milliseconds.
func (b *bed) age(ctx context.Context, l lock.Locker, pairs int) (rounds []float64, made int, err error) {
	op := pairOf(l)
	for begun := time.Now(); made < pairs && time.Since(begun) < snapshotTime; made++ {
		if err := op(ctx); err != nil {
			return nil, made, err
		}
	}
	for range b.rounds {
		var round []float64
		for range snapshotRound {
			ns, err := timed(op)(ctx)
			if err != nil {
				return nil, made, err
			}
			round = append(round, ns/float64(time.Millisecond))
		}
		rounds = append(rounds, median(round))
	}
	return rounds, made, nil
}
