package stock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

// levels are the isolation levels under which the first statements of a crowd of
// transactions have to get on with each other.
func levels(kind sqldb.Kind) []string {
	switch kind {
	case sqldb.SQLite:
		return []string{""}
	case sqldb.Postgres:
		return []string{"read committed"} // at the others it is 40001 that comes back
	}
	return []string{"read committed", "repeatable read"}
}

// crowd runs f in transactions of 8 goroutines, committed without any repetition,
// and returns what failed. n is how many transactions each goroutine makes.
func crowd(t *testing.T, db *dbtest.DB, level string, n int, f func(ctx context.Context, g int, tx *sqldb.Tx) error) []error {
	t.Helper()
	var mu sync.Mutex
	var failed []error
	var wg sync.WaitGroup
	opts := sqldb.TxOptions{Isolation: map[string]sql.IsolationLevel{"read committed": sql.LevelReadCommitted, "repeatable read": sql.LevelRepeatableRead}[level]}
	for g := range 8 {
		wg.Go(func() {
			for range n {
				err := db.InTx(context.Background(), opts, func(ctx context.Context, tx *sqldb.Tx) error { return f(ctx, g, tx) })
				if err != nil {
					mu.Lock()
					failed = append(failed, err)
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	return failed
}

// TakeAlls that are the first of their transactions never deadlock, whatever the
// order of their lines, however much of the table they take, and whatever the
// column thinks of 'a', 'B' and 'c'. Nothing is repeated here: one deadlock fails
// the test.
func TestTakeAllNoDeadlock(t *testing.T) {
	ids := []any{"a", "B", "c", "D", "e", "F", "g", "H"}
	tables := map[string]struct {
		make func(t testing.TB, db *dbtest.DB) *stock.Stock
		ids  []any
	}{
		"integers": {func(t testing.TB, db *dbtest.DB) *stock.Stock { return goods(t, db, 8) }, []any{1, 2, 3, 4, 5, 6, 7, 8}},
		"texts": {func(t testing.TB, db *dbtest.DB) *stock.Stock {
			return texts(t, db, "a", "B", "c", "D", "e", "F", "g", "H")
		}, ids},
	}
	for name, c := range tables {
		t.Run(name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
				t.Parallel()
				s := c.make(t, db)
				db.MustExec(t, "UPDATE goods SET n = 1000000")
				var took atomic.Int64
				for _, level := range levels(db.Kind()) {
					n := 20
					if db.Kind() == sqldb.SQLite {
						n = 3 // one writer: there is no order to keep
					}
					failed := crowd(t, db, level, n, func(ctx context.Context, g int, tx *sqldb.Tx) error {
						lines := make([]stock.Line, 2+rand.IntN(len(c.ids)-1))
						for i, j := range rand.Perm(len(c.ids))[:len(lines)] {
							id := c.ids[j]
							if text, ok := id.(string); ok && folds(db) && rand.IntN(2) == 0 {
								id = strings.ToLower(text)
							}
							lines[i] = stock.Line{ID: id, N: 1}
						}
						_, err := s.TakeAll(ctx, tx, lines)
						if err == nil {
							took.Add(int64(len(lines)))
						}
						return err
					})
					if len(failed) > 0 {
						t.Errorf("%s: %d transactions failed, the first with %v", level, len(failed), failed[0])
					}
				}
				n, _ := counts(t, db)
				if sum := 8_000_000 - took.Load(); sumOf(n) != sum {
					t.Errorf("%d left, want %d", sumOf(n), sum)
				}
			})
		})
	}
}

func sumOf(n []int64) (sum int64) {
	for _, v := range n {
		sum += v
	}
	return sum
}

// The control: the same lines taken one by one, in the callers' order, deadlock. Both
// transactions hold their first row before either asks for its second.
func TestTakeOneByOneDeadlocks(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := goods(t, db, 2)
		var first, done sync.WaitGroup
		first.Add(2)
		var deadlocks atomic.Int64
		for g := range 2 {
			done.Go(func() {
				err := db.InTx(context.Background(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
					_, err := s.Take(ctx, tx, 1+g, 1)
					first.Done()
					first.Wait()
					if err == nil {
						_, err = s.Take(ctx, tx, 2-g, 1)
					}
					return err
				})
				if sqldb.ClassOf(err) == sqldb.Deadlock {
					deadlocks.Add(1)
				} else if err != nil {
					t.Error(err)
				}
			})
		}
		done.Wait()
		if deadlocks.Load() != 1 {
			t.Errorf("%d deadlocks: the control has shown nothing", deadlocks.Load())
		}
	})
}

// A transaction that holds locks before it takes can deadlock: the error is
// retryable, and nothing of the transaction can be committed.
func TestTakeAllDeadlock(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := goods(t, db, 3)
		var first, done sync.WaitGroup
		first.Add(2)
		var deadlocks, committed atomic.Int64
		for g := range 2 {
			tx := begin(t, db, "")
			done.Go(func() {
				_, err := s.Take(context.Background(), tx.tx, 1+2*g, 1) // rows 1 and 3
				first.Done()
				first.Wait()
				if err == nil {
					_, err = s.TakeAll(context.Background(), tx.tx, []stock.Line{{2, 1}, {3 - 2*g, 1}})
				}
				if err != nil {
					if !sqldb.Retryable(err) || sqldb.ClassOf(err) != sqldb.Deadlock {
						t.Errorf("the error is %v", err)
					}
					deadlocks.Add(1)
				}
				if cerr := tx.commit(); cerr == nil {
					committed.Add(1)
				} else if err == nil {
					t.Error(cerr)
				}
			})
		}
		done.Wait()
		if deadlocks.Load() != 1 || committed.Load() != 1 {
			t.Errorf("%d deadlocks, %d commits", deadlocks.Load(), committed.Load())
		}
		wantCounts(t, db, 99, 99, 99)
	})
}

// A lock timeout ends only the statement on MySQL and MariaDB: what is committed
// then has nothing of the order in it. The control shows that lines taken one by one
// leave half of it.
func TestTakeAllLockTimeout(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := goods(t, db, 3)
		hurried, err := mysqldb.New(t.Context(), db.OpenSQL(t, func(c *mysql.Config) {
			c.Params = map[string]string{"innodb_lock_wait_timeout": "1"}
		}))
		if err != nil {
			t.Fatal(err)
		}
		holder := begin(t, db, "")
		if _, err := s.Take(t.Context(), holder.tx, 2, 1); err != nil {
			t.Fatal(err)
		}
		swallow := func(f func(ctx context.Context, tx *sqldb.Tx) error) {
			t.Helper()
			err := hurried.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				if err := f(ctx, tx); sqldb.ClassOf(err) != sqldb.LockTimeout || !sqldb.Retryable(err) {
					t.Errorf("the error is %v", err)
				}
				return nil // and it commits
			})
			if err != nil {
				t.Error(err)
			}
		}
		swallow(func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := s.TakeAll(ctx, tx, []stock.Line{{3, 1}, {1, 1}, {2, 1}})
			return err
		})
		wantCounts(t, db, 100, 100, 100)
		swallow(func(ctx context.Context, tx *sqldb.Tx) error {
			for id := range 2 {
				if _, err := s.Take(ctx, tx, 1+id, 1); err != nil {
					return err
				}
			}
			return nil
		})
		wantCounts(t, db, 99, 100, 100)
	})
}

// What is judged is the rows as they are, and not what the transaction's snapshot
// shows of them; where the server does not allow that, it says so, and the
// transaction has to begin anew.
func TestTakeAllOldSnapshot(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		s := goods(t, db, 2)
		db.MustExec(t, "UPDATE goods SET n = 0 WHERE id = 1")
		tx := begin(t, db, "repeatable read")
		if left, err := s.Left(t.Context(), tx.tx, 1); err != nil || left != 0 {
			t.Fatalf("%d, %v", left, err)
		}
		if _, err := s.Put(t.Context(), db.DB, 1, 5); err != nil {
			t.Fatal(err)
		}
		lefts, err := s.TakeAll(t.Context(), tx.tx, []stock.Line{{2, 1}, {1, 2}})
		if err == nil {
			if !slices.Equal(lefts, []int64{99, 3}) {
				t.Errorf("%v", lefts)
			}
			if err := tx.commit(); err != nil {
				t.Error(err)
			}
			wantCounts(t, db, 3, 99)
			return
		}
		if sqldb.ClassOf(err) != sqldb.Serialization || !sqldb.Retryable(err) || db.Kind() == sqldb.MySQL {
			t.Errorf("the answer is %v", err)
		}
		if err := tx.commit(); err == nil {
			t.Error("the transaction could be committed")
		}
		wantCounts(t, db, 5, 100)
	})
}

// On a DB, whoever waits can leave: nothing was taken then, and no lock stays.
func TestTakeAllCanceled(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		goods(t, db, 3)
		named := goodsTable
		named.Name = db.Schema() + ".goods" // by which awaitWaiting knows the statement
		s := open(t, db.DB, named)
		holder := begin(t, db, "")
		if _, err := s.Take(t.Context(), holder.tx, 2, 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := s.TakeAll(ctx, db.DB, []stock.Line{{3, 1}, {2, 1}, {1, 1}})
			done <- err
		}()
		awaitWaiting(t, db, 1)
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) || sqldb.Uncertain(err) {
			t.Errorf("the error is %v", err)
		}
		if err := holder.commit(); err != nil {
			t.Fatal(err)
		}
		if _, err := s.TakeAll(t.Context(), db.DB, []stock.Line{{3, 1}, {1, 1}}); err != nil {
			t.Error(err)
		}
		wantCounts(t, db, 99, 99, 99)
	})
}

// An order line with a foreign key to the row, inserted by somebody who has not
// committed, does not keep a TakeAll waiting on PostgreSQL.
func TestTakeAllPassesForeignKeys(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		s := goods(t, db, 2)
		db.MustExec(t, "CREATE TABLE order_lines (good BIGINT REFERENCES goods (id))")
		other := begin(t, db, "")
		for id := range 2 {
			if _, err := other.tx.Exec(t.Context(), fmt.Sprintf("INSERT INTO order_lines VALUES (%d)", id+1)); err != nil {
				t.Fatal(err)
			}
		}
		err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			if _, err := tx.Exec(ctx, "SET LOCAL lock_timeout = '10s'"); err != nil {
				return err
			}
			_, err := s.TakeAll(ctx, tx, []stock.Line{{2, 1}, {1, 1}})
			return err
		})
		if err != nil {
			t.Error(err)
		}
	})
}

// Whatever the plan is, the rows are locked as they come out of the sort.
func TestTakeAllPlan(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		goods(t, db, 3)
		handle, counter := dbtest.Count(db.DB)
		s := open(t, handle, goodsTable)
		if _, err := s.TakeAll(t.Context(), handle, []stock.Line{{2, 1}, {1, 1}}); err != nil {
			t.Fatal(err)
		}
		q := counter.Take()[0]
		for _, off := range []string{"", "enable_indexscan", "enable_seqscan"} {
			err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				if off != "" {
					if _, err := tx.Exec(ctx, "SET LOCAL "+off+" = off"); err != nil {
						return err
					}
				}
				rows, err := tx.Query(ctx, "EXPLAIN (COSTS OFF) "+q, 2, 1)
				if err != nil {
					return err
				}
				defer func() { _ = rows.Close() }()
				var plan []string
				for rows.Next() {
					var line string
					if err := rows.Scan(&line); err != nil {
						return err
					}
					plan = append(plan, line)
				}
				text := strings.Join(plan, "\n")
				if plan[0] != "LockRows" || !strings.Contains(plan[1], "Sort") && !strings.Contains(plan[1], "Index Scan") {
					t.Errorf("without %s the plan is\n%s", off, text)
				}
				return rows.Err()
			})
			if err != nil {
				t.Error(err)
			}
		}
	})
}

// A transaction of SQLite that was begun without the write lock takes it before it
// reads: otherwise somebody could write in between, and the UPDATE would fail at
// once, whatever busy_timeout says.
func TestTakeAllDeferred(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	s := goods(t, db, 2)
	pool, err := sql.Open("sqlite", strings.Replace(db.DSN, "_txlock=immediate", "_txlock=deferred", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	deferred, err := sqlitedb.New(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	impatient, err := sql.Open("sqlite", strings.Replace(db.DSN, "busy_timeout(5000)", "busy_timeout(0)", 1))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = impatient.Close() }()
	wrapped := deferred.Wrap(func(d sqldb.Driver) sqldb.Driver {
		return stopper{d, "WHERE \"id\" IN", func() { _, _ = impatient.Exec("UPDATE goods SET n = n + 1") }}
	})
	tx, err := pool.Begin()
	if err != nil {
		t.Fatal(err)
	}
	if lefts, err := s.TakeAll(t.Context(), wrapped.Tx(tx), []stock.Line{{2, 1}, {1, 2}}); err != nil || !slices.Equal(lefts, []int64{99, 98}) {
		t.Errorf("%v, %v", lefts, err)
	}
	if err := tx.Commit(); err != nil {
		t.Error(err)
	}
}
