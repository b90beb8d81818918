package stock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
)

// holdSlots locks slots as somebody's transaction does, until release is called.
func holdSlots(t *testing.T, db *dbtest.DB, slots ...int) (release func()) {
	t.Helper()
	tx, err := db.SQL.Begin()
	if err != nil {
		t.Fatal(err)
	}
	for _, slot := range slots {
		if _, err := tx.Exec(fmt.Sprintf("UPDATE t_bonus_slots SET version = version + 1 WHERE id = 10001 AND slot = %d", slot)); err != nil {
			t.Fatal(err)
		}
	}
	done := false
	release = func() {
		if !done {
			done = true
			if err := tx.Rollback(); err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(release)
	return release
}

// schemaSlots is the table with its schema in front: by it, awaitWaiting finds who waits.
func schemaSlots(t *testing.T, db *sqldb.DB) *stock.Slotted {
	t.Helper()
	x := slotTable
	x.Name = db.Schema() + "." + x.Name
	s, err := stock.NewSlotted(db, x)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// hurried is a ctx for what must not wait.
func hurried(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// A take does not wait for a slot if another has enough; if all are locked, it waits
// for one, and no longer than its ctx.
func TestSlottedPassesOver(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		makeSlots(t, db, 5, 5, 6, 5)
		s := schemaSlots(t, db.DB)
		ctx := hurried(t)
		release := holdSlots(t, db, 0, 1, 3)
		for i := range 3 {
			if err := s.Take(ctx, db.DB, 10001, 1); err != nil {
				t.Fatalf("take %d: %v", i, err)
			}
			err := db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error { return s.Take(ctx, tx, 10001, 1) })
			if err != nil {
				t.Fatalf("take %d in a transaction: %v", i, err)
			}
		}
		if err := s.Put(ctx, db.DB, 10001, 2); err != nil {
			t.Fatal(err)
		}
		err := db.InTx(ctx, readCommitted, func(ctx context.Context, tx *sqldb.Tx) error { return s.Put(ctx, tx, 10001, 1) })
		if err != nil {
			t.Fatal(err)
		}
		if counts, _ := slots(t, db); !slices.Equal(counts, []int64{5, 5, 3, 5}) {
			t.Errorf("%v", counts)
		}
		// No free slot has 4, and three that are locked have.
		for _, f := range []func(ctx context.Context) error{
			func(ctx context.Context) error { return s.Take(ctx, db.DB, 10001, 4) },
			func(ctx context.Context) error {
				return db.InTx(ctx, readCommitted, func(ctx context.Context, tx *sqldb.Tx) error { return s.Take(ctx, tx, 10001, 4) })
			},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			answer := make(chan error, 1)
			go func() { answer <- f(ctx) }()
			awaitWaiting(t, db, 1)
			cancel()
			if err := <-answer; !errors.Is(err, context.Canceled) || sqldb.Uncertain(err) {
				t.Errorf("ctx ended: %v", err)
			}
			go func() { answer <- f(t.Context()) }()
			awaitWaiting(t, db, 1)
			release()
			if err := <-answer; err != nil {
				t.Error(err)
			}
			release = holdSlots(t, db, 0, 1, 3)
		}
		release()
		if left, err := s.Total(ctx, db.DB, 10001); err != nil || left != 10 {
			t.Errorf("%d left, %v", left, err)
		}
		// A Put waits only if all are locked.
		release = holdSlots(t, db, 0, 1, 2, 3)
		answer := make(chan error, 1)
		go func() { answer <- s.Put(t.Context(), db.DB, 10001, 1) }()
		awaitWaiting(t, db, 1)
		release()
		if err := <-answer; err != nil {
			t.Error(err)
		}
	})
}

// It waits for a slot that has enough, and for no other: not for slot 0, which is held
// all the time.
func TestSlottedWaitsForWhatHasEnough(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		makeSlots(t, db, 0, 5, 0)
		s := schemaSlots(t, db.DB)
		holdSlots(t, db, 0)
		release := holdSlots(t, db, 1)
		answer := make(chan error, 1)
		go func() { answer <- s.Take(hurried(t), db.DB, 10001, 4) }()
		awaitWaiting(t, db, 1)
		release()
		if err := <-answer; err != nil {
			t.Error(err)
		}
	})
}

// A take in a transaction that has waited for a slot, and finds it emptied, does not keep
// it from who moves stock: the interleaving of waitTx.
func TestSlottedWaitsForNothing(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		makeSlots(t, db, 2, 5)
		handle, d := countedDeadlocks(t, db)
		s := schemaSlots(t, handle)
		other, err := db.SQL.Begin()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = other.Rollback() })
		if _, err := other.Exec("UPDATE t_bonus_slots SET left_count = 1 WHERE id = 10001 AND slot = 1"); err != nil {
			t.Fatal(err)
		}
		taken, moved := make(chan error, 1), make(chan error, 1)
		go func() {
			taken <- handle.InTx(hurried(t), readCommitted, func(ctx context.Context, tx *sqldb.Tx) error { return s.Take(ctx, tx, 10001, 3) })
		}()
		awaitWaiting(t, db, 1)
		go func() { moved <- s.Rebalance(hurried(t), handle, 10001) }()
		awaitWaiting(t, db, 2)
		if err := other.Commit(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(<-taken, <-moved); err != nil || len(d.victims) != 0 {
			t.Errorf("%v, %d deadlocks: %q", err, len(d.victims), d.victims)
		}
		if counts, _ := slots(t, db); sum(counts) != 0 {
			t.Errorf("%v left", counts)
		}
	})
}

// Where one slot has all there is, whoever finds it locked spreads it over all.
func TestSlottedMovesWhenDry(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		makeSlots(t, db, 0, 101, 0, 0)
		s := schemaSlots(t, db.DB)
		release := holdSlots(t, db, 1)
		answer := make(chan error, 1)
		go func() { answer <- s.Take(t.Context(), db.DB, 10001, 1) }()
		awaitWaiting(t, db, 1)
		release()
		if err := <-answer; err != nil {
			t.Error(err)
		}
		if counts, _ := slots(t, db); !slices.Equal(counts, []int64{25, 25, 25, 25}) {
			t.Errorf("%v", counts)
		}
	})
}

// Whoever locks several slots reads them after it has slot 0: what is split, put and
// merged while it waits is all there.
func TestSlottedReadsAfterTheWait(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		makeSlots(t, db, 10)
		s := schemaSlots(t, db.DB)
		ctx := t.Context()
		for _, f := range []func() error{
			func() error { return s.Take(ctx, db.DB, 10001, 19) },
			func() error {
				return db.InTx(ctx, readCommitted, func(ctx context.Context, tx *sqldb.Tx) error { return s.Take(ctx, tx, 10001, 19) })
			},
			func() error { return s.Merge(ctx, db.DB, 10001) },
		} {
			setSlots(t, db, 20)
			answer := make(chan error, 1)
			err := db.InTx(ctx, readCommitted, func(ctx context.Context, tx *sqldb.Tx) error {
				if err := s.Split(ctx, tx, 10001, 4); err != nil {
					return err
				}
				go func() { answer <- f() }()
				awaitWaiting(t, db, 1)
				return nil
			})
			if err := errors.Join(err, <-answer); err != nil {
				t.Error(err)
			}
			if counts, _ := slots(t, db); sum(counts) != 1 && !slices.Equal(counts, []int64{20}) {
				t.Errorf("%v", counts)
			}
		}
	})
}

// In a transaction: what is rolled back was not taken, and a refusal, which is current,
// leaves it usable.
func TestSlottedTx(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := makeSlots(t, db, 5, 5, 5)
		ctx := t.Context()
		errBack := errors.New("back")
		err := db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			for _, err := range []error{s.Take(ctx, tx, 10001, 2), s.Take(ctx, tx, 10001, 9), s.Put(ctx, tx, 10001, 1), s.Split(ctx, tx, 10001, 8), s.Merge(ctx, tx, 10001)} {
				if err != nil {
					t.Error(err)
				}
			}
			if err := s.Take(ctx, tx, 10001, 6); !errors.Is(err, stock.ErrSoldOut) {
				t.Error(err)
			}
			if err := s.Take(ctx, tx, 10001, 5); err != nil {
				t.Error(err)
			}
			return errBack
		})
		if counts, _ := slots(t, db); !errors.Is(err, errBack) || !slices.Equal(counts, []int64{5, 5, 5}) {
			t.Errorf("%v, %v", err, counts)
		}
		// What was remembered of a transaction that was rolled back is corrected.
		for i := range 15 {
			if err := s.Take(ctx, db.DB, 10001, 1); err != nil {
				t.Errorf("take %d: %v", i, err)
			}
		}
	})
}

// A transaction whose snapshot is old: what it takes and what it is refused is what is
// there, or it is told to begin anew; it is never refused what was put there since.
func TestSlottedOldSnapshot(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		makeSlots(t, db, 1)
		ctx := t.Context()
		repeatable := sqldb.TxOptions{Isolation: sql.LevelRepeatableRead}
		after := func(begin, n int64, change func(s *stock.Slotted)) error {
			setSlots(t, db, begin)
			s := slotted(t, db.DB) // knows nothing yet
			return db.InTx(ctx, repeatable, func(ctx context.Context, tx *sqldb.Tx) error {
				if left, err := s.Total(ctx, tx, 10001); err != nil || left != begin {
					return fmt.Errorf("%d left: %w", left, err)
				}
				change(s)
				return s.Take(ctx, tx, 10001, n)
			})
		}
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Error(err)
			}
		}
		for name, change := range map[string]func(s *stock.Slotted){
			"put": func(s *stock.Slotted) { must(s.Put(ctx, db.DB, 10001, 9)) },
			"split, and put where the snapshot has no slot": func(s *stock.Slotted) {
				must(s.Split(ctx, db.DB, 10001, 4))
				db.MustExec(t, "UPDATE t_bonus_slots SET left_count = left_count + 9 WHERE id = 10001 AND slot = 2")
			},
		} {
			for _, begin := range []int64{0, 1} { // 0: no slot but the new ones has anything
				for _, n := range []int64{2, 9} {
					err := after(begin, n, change)
					if err != nil && !sqldb.Retryable(err) || err == nil && db.Kind() == sqldb.Postgres {
						t.Errorf("%s, %d of %d: %v", name, n, begin, err)
					}
				}
			}
		}
		err := after(1, 1, func(s *stock.Slotted) { must(s.Take(ctx, db.DB, 10001, 1)) })
		if !errors.Is(err, stock.ErrSoldOut) && !sqldb.Retryable(err) || errors.Is(err, stock.ErrSoldOut) && !strings.Contains(err.Error(), " 0 left") {
			t.Errorf("sold: %v", err)
		}
		// A refusal that is true is none that has to be repeated.
		err = after(1, 2, func(*stock.Slotted) {})
		if !errors.Is(err, stock.ErrSoldOut) {
			t.Errorf("nothing was changed: %v", err)
		}
	})
}
