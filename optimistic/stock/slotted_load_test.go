package stock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// 64 goroutines, of two processes, and of programs that take from a slot by hand, take
// until nothing is left: what they have is what there was.
func TestSlottedCrowd(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const start = 1000
		counts := make([]int64, 16)
		counts[0] = start
		sales := []*stock.Slotted{makeSlots(t, db, counts...), slotted(t, db.DB)}
		if err := sales[0].Rebalance(t.Context(), db.DB, 10001); err != nil {
			t.Fatal(err)
		}
		var taken, refused atomic.Int64
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for {
					var left, n int64
					err := sqldb.Retry(context.Background(), sqldb.Policy{}, func(ctx context.Context) error {
						res, err := db.Exec(ctx, fmt.Sprintf("UPDATE t_bonus_slots SET left_count = left_count - 1 WHERE id = 10001 AND slot = %d AND left_count >= 1", rand.IntN(16)))
						n = res.RowsAffected
						return err
					})
					if err == nil {
						taken.Add(n)
						left, err = sales[0].Total(context.Background(), db.DB, 10001)
					}
					if err != nil || left == 0 {
						if err != nil {
							t.Error(err)
						}
						return
					}
				}
			})
		}
		for g := range goroutines {
			wg.Go(func() {
				for n := int64(3); n > 0; {
					err := sales[g%2].Take(context.Background(), db.DB, 10001, n)
					var short *stock.ShortError
					switch {
					case err == nil:
						taken.Add(n)
					case errors.As(err, &short) && short.Lines[0].Left < n:
						refused.Add(1)
						n--
					default:
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		counts, _ = slots(t, db)
		if taken.Load() != start || sum(counts) != 0 || slices.Min(counts) < 0 || refused.Load() != 3*goroutines {
			t.Errorf("%d taken of %d, %d refused, %v left", taken.Load(), start, refused.Load(), counts)
		}
	})
}

// The same in transactions of the server's own level, which is REPEATABLE READ on MySQL
// and MariaDB: what the server ends there is repeated, and the sum is exact.
func TestSlottedCrowdTx(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const start = 300
		s := makeSlots(t, db, 100, 100, 100, 0)
		var taken atomic.Int64
		var wg sync.WaitGroup
		for range 32 {
			wg.Go(func() {
				for {
					err := sqldb.Retry(context.Background(), sqldb.Policy{Attempts: 1000, Elapsed: 5 * time.Minute}, func(ctx context.Context) error {
						return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error { return s.Take(ctx, tx, 10001, 2) })
					})
					if err != nil {
						if !errors.Is(err, stock.ErrSoldOut) {
							t.Error(err)
						}
						return
					}
					taken.Add(2)
				}
			})
		}
		wg.Wait()
		if counts, _ := slots(t, db); taken.Load() != start || sum(counts) != 0 {
			t.Errorf("%d taken of %d, %v left", taken.Load(), start, counts)
		}
	})
}

// slotMix does what users do with slots, at random. What is taken, and, below zero,
// put, stands in a ledger, written in the same transaction.
type slotMix struct {
	s     *stock.Slotted
	db    *sqldb.DB
	opts  sqldb.TxOptions
	takes int64 // the most that is taken at once
	moves atomic.Int64
	sales atomic.Int64
}

func slotLedger(t testing.TB, db *dbtest.DB) {
	t.Helper()
	db.MustExec(t, "CREATE TABLE ledger (n BIGINT NOT NULL)")
}

func (m *slotMix) move(ctx context.Context) error {
	m.moves.Add(1)
	switch rand.IntN(4) {
	case 0:
		return m.s.Merge(ctx, m.db, 10001)
	case 1:
		return m.s.Rebalance(ctx, m.db, 10001)
	}
	return m.s.Split(ctx, m.db, 10001, 1+rand.IntN(24))
}

// sell takes n, or puts -n, in a transaction together with its line in the ledger.
func (m *slotMix) sell(ctx context.Context, n int64) error {
	err := sqldb.Retry(ctx, sqldb.Policy{Attempts: 1000, Elapsed: 5 * time.Minute}, func(ctx context.Context) error {
		return m.db.InTx(ctx, m.opts, func(ctx context.Context, tx *sqldb.Tx) (err error) {
			if n > 0 {
				err = m.s.Take(ctx, tx, 10001, n)
			} else {
				err = m.s.Put(ctx, tx, 10001, -n)
			}
			if err != nil {
				return err
			}
			_, err = tx.Exec(ctx, fmt.Sprintf("INSERT INTO ledger (n) VALUES (%d)", n))
			return err
		})
	})
	if err == nil {
		m.sales.Add(1)
	}
	return err
}

// step takes, sometimes more than any slot has, and puts it back.
func (m *slotMix) step(ctx context.Context) error {
	n := 1 + rand.Int64N(3)
	if rand.IntN(10) == 0 {
		n = 1 + rand.Int64N(m.takes)
	}
	if rand.IntN(2) == 0 {
		if err := m.s.Take(ctx, m.db, 10001, n); err != nil {
			return err
		}
		return m.s.Put(ctx, m.db, 10001, n)
	}
	if err := m.sell(ctx, n); err != nil {
		return err
	}
	return m.sell(ctx, -n)
}

// Stock moves between the slots all the time, and there is always enough: no take is
// ever refused, nothing is lost, and nothing deadlocks, on a DB and in READ COMMITTED
// transactions. What is counted is what the server says, whether it is retried or not.
func TestSlottedNeverMissesStock(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const start, workers, most = 4000, 12, 300
		makeSlots(t, db, start)
		slotLedger(t, db)
		handle, d := countedDeadlocks(t, db)
		opts := readCommitted
		if db.Kind() == sqldb.SQLite {
			opts = sqldb.TxOptions{}
		}
		m := &slotMix{s: slotted(t, handle), db: handle, opts: opts, takes: most}
		until := time.Now().Add(loadTime(2*time.Second, 10*time.Second))
		var wg sync.WaitGroup
		for w := range workers + 2 {
			f := m.step
			if w >= workers {
				f = m.move
			}
			wg.Go(func() {
				for time.Now().Before(until) {
					if err := f(context.Background()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
		counts, _ := slots(t, db)
		if sum(counts) != start || slices.Min(counts) < 0 {
			t.Errorf("%d left of %d: %v", sum(counts), start, counts)
		}
		if len(d.victims) != 0 {
			t.Errorf("%d deadlocks: %.1000q", len(d.victims), d.victims)
		}
		if m.moves.Load() == 0 || m.sales.Load() == 0 {
			t.Errorf("%d moves, %d sales: the test has shown nothing", m.moves.Load(), m.sales.Load())
		}
		t.Logf("%d moves, %d sales, %d deadlocks", m.moves.Load(), m.sales.Load(), len(d.victims))
	})
}

// The control: who asks the slots one after the other, and calls it sold out if none has
// enough, is refused what was there all the time.
func TestSlotBySlotMissesStock(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := makeSlots(t, db, 0, 10)
		swap := func(slot int) {
			db.MustExec(t, fmt.Sprintf("UPDATE t_bonus_slots SET left_count = CASE slot WHEN %d THEN 10 ELSE 0 END WHERE id = 10001", slot))
		}
		taken := false
		for slot := range 2 {
			res, err := db.SQL.Exec(fmt.Sprintf("UPDATE t_bonus_slots SET left_count = left_count - 1 WHERE id = 10001 AND slot = %d AND left_count >= 1", slot))
			if err != nil {
				t.Fatal(err)
			}
			n, _ := res.RowsAffected()
			taken = taken || n > 0
			swap(slot)
		}
		if taken {
			t.Error("the control has found the stock")
		}
		if err := s.Take(t.Context(), db.DB, 10001, 1); err != nil {
			t.Error(err)
		}
	})
}

// slotAudit is one statement, so it sees one moment.
func slotAudit(ctx context.Context, db *sqldb.DB, start int64) error {
	var left, least, sold int64
	err := db.QueryRow(ctx, "SELECT (SELECT SUM(left_count) FROM t_bonus_slots WHERE id = 10001), (SELECT MIN(left_count) FROM t_bonus_slots WHERE id = 10001), (SELECT COALESCE(SUM(n), 0) FROM ledger)").Scan(&left, &least, &sold)
	if err != nil {
		return fmt.Errorf("the audit itself: %w", err)
	}
	if left+sold != start || least < 0 {
		return fmt.Errorf("%w: %d left (one slot %d) and %d sold, of %d", errUnsound, left, least, sold, start)
	}
	return nil
}

// run does it until the time is over: takes that are recorded, and moves.
func (m *slotMix) run(ctx context.Context, workers int, until func() bool, bad func(error)) {
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for !until() {
				n := 1 + rand.Int64N(3)
				switch {
				case w == 0:
					n = 0
				case rand.IntN(20) == 0:
					n = 1 + rand.Int64N(m.takes)
				case rand.IntN(2) == 0:
					n = -n
				}
				var err error
				if n == 0 {
					err = m.move(ctx)
				} else {
					err = m.sell(ctx, n)
				}
				if err != nil && !errors.Is(err, stock.ErrSoldOut) {
					bad(err)
				}
			}
		})
	}
	wg.Wait()
}

// slotChild is a process of a mix, which is killed some time: kind, DSN.
func slotChild(args []string) int {
	return child(args, func(ctx context.Context, db *sqldb.DB) (func(func(error)), error) {
		s, err := stock.NewSlotted(db, slotTable)
		m := &slotMix{s: s, db: db, takes: 100}
		return func(bad func(error)) { m.run(ctx, 12, never, bad) }, err
	})
}

// Three processes take, put and move, two of them are killed (kill -9) and begun anew
// again and again, and connections are cut: at every moment what is left and what the
// ledger has is what there was.
func TestSlottedKilled(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const start = 500
		makeSlots(t, db, start)
		slotLedger(t, db)
		ctx := context.Background()
		k := &killing{child: "slots", n: 2, lives: 500 * time.Millisecond}
		k.audit = func(ctx context.Context, db *sqldb.DB) error { return slotAudit(ctx, db, start) }
		k.run(t, db, func(handle *sqldb.DB) func(func() bool) {
			m := &slotMix{s: slotted(t, handle), db: handle, takes: 100}
			k.enough = func() bool { return m.sales.Load() > 0 }
			return func(over func() bool) { m.run(ctx, 16, over, possible(t)) }
		})
		// And it goes on: all of it is there, and the slots are sound.
		left, err := slotted(t, db.DB).Total(ctx, db.DB, 10001)
		if err != nil {
			t.Fatal(err)
		}
		if left > 0 {
			if err := slotted(t, db.DB).Take(ctx, db.DB, 10001, left); err != nil {
				t.Error(err)
			}
		}
	})
}

// Two ids at once, whose rows stand beside each other, in a table with a key of its own:
// moves of one lock nothing of the other.
func TestSlottedIDsApart(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		serial := "INTEGER PRIMARY KEY AUTO_INCREMENT"
		if db.Kind() == sqldb.Postgres {
			serial = "SERIAL PRIMARY KEY"
		}
		db.MustExec(t, "CREATE TABLE t_bonus_slots (k "+serial+", id BIGINT NOT NULL, slot INT NOT NULL, left_count BIGINT NOT NULL, version BIGINT NOT NULL DEFAULT 0, UNIQUE (id, slot))",
			"INSERT INTO t_bonus_slots (id, slot, left_count) VALUES (1, 0, 100), (2, 0, 100), (3, 0, 100)")
		s := slotted(t, db.DB)
		ctx := hurried(t)
		for id := range 3 {
			if err := s.Split(ctx, db.DB, id+1, 5+id); err != nil {
				t.Fatal(err)
			}
		}
		for _, opts := range []sqldb.TxOptions{readCommitted, {Isolation: sql.LevelRepeatableRead}} {
			err := db.InTx(ctx, opts, func(ctx context.Context, tx *sqldb.Tx) error {
				if err := s.Take(ctx, tx, 2, 1); err != nil { // one slot,
					return err
				}
				if err := s.Rebalance(ctx, tx, 2); err != nil { // and all
					return err
				}
				for _, id := range []int{1, 3} {
					errs := []error{s.Take(ctx, db.DB, id, 1), s.Take(ctx, db.DB, id, 30), s.Put(ctx, db.DB, id, 31)}
					// REPEATABLE READ locks the gap too where a new slot of the id before would stand;
					// and to make again what was just deleted from an index that is not the primary
					// key, MariaDB locks the next row.
					if opts == readCommitted || db.Kind() == sqldb.Postgres {
						errs = append(errs, s.Split(ctx, db.DB, id, 9))
					}
					errs = append(errs, s.Rebalance(ctx, db.DB, id), s.Merge(ctx, db.DB, id))
					for i, err := range errs {
						if err != nil {
							return fmt.Errorf("id %d, step %d: %w", id, i, err)
						}
					}
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}
