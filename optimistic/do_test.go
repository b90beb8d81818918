package optimistic_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic"
	"github.com/sqlnative/locks/sqldb"
)

// observed is the default policy, and hands every error that fn ends with to f.
func observed(f func(err error)) sqldb.Policy {
	return sqldb.Policy{Retryable: func(err error) bool {
		f(err)
		return sqldb.Retryable(err)
	}}
}

// version reads in a transaction.
func version(ctx context.Context, h sqldb.Handle, id int) (v int64, err error) {
	err = h.QueryRow(ctx, fmt.Sprintf("SELECT version FROM article WHERE id = %d", id)).Scan(&v)
	return v, err
}

// raise is what Do's function does most often: read, and update with what was read.
func raise(a *optimistic.Table, set optimistic.Set) func(ctx context.Context, tx *sqldb.Tx) error {
	return func(ctx context.Context, tx *sqldb.Tx) error {
		v, err := version(ctx, tx, 7)
		if err != nil {
			return err
		}
		_, err = a.Update(ctx, tx, seven, v, set)
		return err
	}
}

// A stale version is read again. The interleaving: fn reads, another one updates, fn
// updates.
func TestDoStale(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		var met []error
		tries := 0
		err := optimistic.Do(t.Context(), db.DB, observed(func(err error) { met = append(met, err) }), func(ctx context.Context, tx *sqldb.Tx) error {
			tries++
			v, err := version(ctx, tx, 7)
			if err != nil {
				return err
			}
			if tries == 1 {
				if _, err := a.Update(ctx, db.DB, seven, v, optimistic.Set{"title": "other"}); err != nil {
					t.Error(err)
				}
			}
			_, err = a.Update(ctx, tx, seven, v, title)
			return err
		})
		if err != nil || tries != 2 || len(met) != 1 {
			t.Fatalf("%d tries, %v, met %v", tries, err, met)
		}
		conflict(t, met[0], optimistic.Stale)
		is(t, db, "new", 2)
	})
}

// What stays so is not tried again.
func TestDoConflicts(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		for kind, update := range map[optimistic.Conflict]func(ctx context.Context, tx *sqldb.Tx) error{
			optimistic.Gone: func(ctx context.Context, tx *sqldb.Tx) error { return a.Delete(ctx, tx, optimistic.Key(8), 0) },
			optimistic.Condition: func(ctx context.Context, tx *sqldb.Tx) error {
				return a.Delete(ctx, tx, seven, 0, optimistic.If("state", 2))
			},
		} {
			tries := 0
			err := optimistic.Do(t.Context(), db.DB, sqldb.Policy{}, func(ctx context.Context, tx *sqldb.Tx) error {
				tries++
				return update(ctx, tx)
			})
			if conflict(t, err, kind); tries != 1 {
				t.Errorf("%v: %d tries", kind, tries)
			}
		}
		// One that never ends gives up, and tells the conflict.
		tries := 0
		err := optimistic.Do(t.Context(), db.DB, sqldb.Policy{Attempts: 4}, func(ctx context.Context, tx *sqldb.Tx) error {
			tries++
			return a.Delete(ctx, tx, seven, 99)
		})
		var gave *sqldb.RetryError
		if conflict(t, err, optimistic.Stale); !errors.As(err, &gave) || tries != 4 {
			t.Errorf("%d tries: %v", tries, err)
		}
	})
}

// A deadlock is tried again: 40P01, 1213. The interleaving: one updates 7 and then 8,
// the other one 8 and then 7, each its second row when both have their first.
func TestDoDeadlock(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		db.MustExec(t, "INSERT INTO article VALUES (8, 'old', 1, 0)")
		var first sync.WaitGroup
		first.Add(2)
		var deadlocks atomic.Int32
		policy := observed(func(err error) {
			if sqldb.ClassOf(err) == sqldb.Deadlock {
				deadlocks.Add(1)
			}
		})
		var both sync.WaitGroup
		for _, order := range [][]int{{7, 8}, {8, 7}} {
			tries := 0
			both.Go(func() {
				err := optimistic.Do(context.Background(), db.DB, policy, func(ctx context.Context, tx *sqldb.Tx) error {
					tries++
					for i, id := range order {
						v, err := version(ctx, tx, id)
						if err != nil {
							return err
						}
						if _, err := a.Update(ctx, tx, optimistic.Key(id), v, title); err != nil {
							return err
						}
						if tries == 1 && i == 0 {
							first.Done()
							first.Wait()
						}
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
		if deadlocks.Load() == 0 {
			t.Error("there was no deadlock: the test has shown nothing")
		}
		is(t, db, "new", 2)
	})
}

// A lock timeout is tried again: 55P03, 1205, SQLITE_BUSY. The interleaving: another
// transaction has the row, and ends when the first try has failed.
func TestDoLockTimeout(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		holder := db.Another(t)
		switch db.Kind() {
		case sqldb.Postgres:
			parameter(t, db, "lock_timeout", "100ms")
		case sqldb.SQLite:
			busy(t, db, "_pragma=busy_timeout(20)&_txlock=immediate")
		default:
			parameter(t, db, "innodb_lock_wait_timeout", "1")
		}
		tx, err := holder.SQL.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.Exec("UPDATE article SET title = 'held', version = version + 1 WHERE id = 7"); err != nil {
			t.Fatal(err)
		}
		var met []sqldb.Class
		err = optimistic.Do(t.Context(), db.DB, observed(func(err error) {
			met = append(met, sqldb.ClassOf(err))
			if len(met) == 1 {
				if err := tx.Commit(); err != nil {
					t.Error(err)
				}
			}
		}), raise(a, title))
		if err != nil || len(met) == 0 || met[0] != sqldb.LockTimeout {
			t.Errorf("%v, met %v", err, met)
		}
		is(t, db, "new", 2)
	})
}

// busy opens the SQLite file with other settings.
func busy(t testing.TB, db *dbtest.DB, settings string) {
	t.Helper()
	file, _, _ := strings.Cut(db.DSN, "?")
	pool, err := sql.Open("sqlite", file+"?"+settings)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	db.SQL, db.DB = pool, reopen(t, pool)
}

// A serialization failure is tried again: 40001, 1020 of MariaDB, SQLITE_BUSY_SNAPSHOT.
// The interleaving: the transaction reads, another one changes the row and commits, and
// the transaction updates. On MySQL, which knows no such error, the conflict is told by
// the update itself.
func TestRetrySerialization(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		other := db.Another(t)
		switch db.Kind() {
		case sqldb.MariaDB:
			parameter(t, db, "innodb_snapshot_isolation", "ON")
		case sqldb.SQLite:
			busy(t, db, "_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)") // BEGIN DEFERRED
		}
		var met []error
		tries := 0
		change := func(ctx context.Context, tx *sqldb.Tx) error {
			tries++
			v, err := version(ctx, tx, 7)
			if err != nil {
				return err
			}
			if tries == 1 {
				if _, err := a.Update(ctx, other.DB, seven, v, optimistic.Set{"title": "other"}); err != nil {
					t.Error(err)
				}
			}
			_, err = a.Update(ctx, tx, seven, v, title)
			return err
		}
		err := sqldb.Retry(t.Context(), observed(func(err error) { met = append(met, err) }), func(ctx context.Context) error {
			if db.Kind() != sqldb.SQLite {
				return db.InTx(ctx, repeatable, change)
			}
			tx, err := db.SQL.BeginTx(ctx, nil) // InTx begins IMMEDIATE
			if err != nil {
				return err
			}
			defer func() { _ = tx.Rollback() }()
			if err := change(ctx, db.Tx(tx)); err != nil {
				return err
			}
			return tx.Commit()
		})
		if err != nil || tries != 2 || len(met) != 1 {
			t.Fatalf("%d tries, %v, met %v", tries, err, met)
		}
		if db.Kind() == sqldb.MySQL {
			conflict(t, met[0], optimistic.Stale)
		} else if sqldb.ClassOf(met[0]) != sqldb.Serialization {
			t.Errorf("met %v", met[0])
		}
		is(t, db, "new", 2)
	})
}

// A conflict that COMMIT tells is tried again. The interleaving, on PostgreSQL at
// SERIALIZABLE: the one has read 8 and updated 7, the other one has read 7 and updates
// 8, and commits first; each would have to come before the other.
func TestRetryAtCommit(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		db.MustExec(t, "INSERT INTO article VALUES (8, 'old', 1, 0)")
		serializable := sqldb.TxOptions{Isolation: sql.LevelSerializable}
		readAndUpdate := func(ctx context.Context, tx *sqldb.Tx, read, update int) error {
			if _, err := version(ctx, tx, read); err != nil {
				return err
			}
			v, err := version(ctx, tx, update)
			if err != nil {
				return err
			}
			_, err = a.Update(ctx, tx, optimistic.Key(update), v, title)
			return err
		}
		var met []error
		tries := 0
		err := sqldb.Retry(t.Context(), observed(func(err error) { met = append(met, err) }), func(ctx context.Context) error {
			return db.InTx(ctx, serializable, func(ctx context.Context, tx *sqldb.Tx) error {
				tries++
				if err := readAndUpdate(ctx, tx, 8, 7); err != nil || tries > 1 {
					return err
				}
				return db.InTx(ctx, serializable, func(ctx context.Context, tx *sqldb.Tx) error { return readAndUpdate(ctx, tx, 7, 8) })
			})
		})
		if err != nil || tries != 2 || len(met) != 1 || sqldb.ClassOf(met[0]) != sqldb.Serialization || !strings.Contains(met[0].Error(), "commit") {
			t.Fatalf("%d tries, %v, met %v", tries, err, met)
		}
		is(t, db, "new", 1)
	})
}

// COMMIT answers 1213 on Galera and 3101 under group replication, and nothing was
// applied.
func TestDoAtCommit(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		article(t, db)
		for i, number := range []uint16{1213, 3101} {
			handle, faults := faulty(db.DB)
			a := open(t, handle, articles)
			tries := 0
			faults.commit = &fault{err: &mysql.MySQLError{Number: number, Message: "certification failed"}}
			err := optimistic.Do(t.Context(), handle, sqldb.Policy{}, func(ctx context.Context, tx *sqldb.Tx) error {
				tries++
				return raise(a, title)(ctx, tx)
			})
			if err != nil || tries != 2 {
				t.Errorf("%d: %d tries, %v", number, tries, err)
			}
			is(t, db, "new", int64(i)+1)
		}
	})
}

// Do is READ COMMITTED, and where the server's binary log does not allow that, what the
// server has.
func TestDoIsolation(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		a := article(t, db)
		check := func(want ...string) {
			t.Helper()
			var levels []string
			err := optimistic.Do(t.Context(), db.DB, sqldb.Policy{}, func(ctx context.Context, tx *sqldb.Tx) error {
				levels = append(levels, level(t, ctx, db, tx))
				return raise(a, title)(ctx, tx)
			})
			if err != nil || !slices.Equal(levels, want) {
				t.Errorf("%q, %v; want %q", levels, err, want)
			}
		}
		check("read committed")
		var logs string
		if db.Kind() == sqldb.MySQL {
			if err := db.SQL.QueryRow("SELECT @@log_bin").Scan(&logs); err != nil {
				t.Fatal(err)
			}
		}
		if logs == "1" { // only a server that keeps a binary log refuses
			parameter(t, db, "binlog_format", "STATEMENT")
			// The control: READ COMMITTED alone is refused.
			err := db.InTx(t.Context(), sqldb.TxOptions{Isolation: sql.LevelReadCommitted}, raise(a, title))
			if sqldb.ClassOf(err) != sqldb.Unsafe {
				t.Errorf("the server allows it: %v", err)
			}
			check("read committed", "repeatable read")
		}
	})
}

// level is the isolation level of a transaction, by what it sees of another one's
// commit.
func level(t testing.TB, ctx context.Context, db *dbtest.DB, tx *sqldb.Tx) string {
	t.Helper()
	var before, after int64
	read := func(state *int64) {
		if err := tx.QueryRow(ctx, "SELECT state FROM article WHERE id = 7").Scan(state); err != nil {
			t.Error(err)
		}
	}
	read(&before)
	if _, err := db.Another(t).DB.Exec(ctx, "UPDATE article SET state = state + 1 WHERE id = 7"); err != nil {
		t.Error(err)
	}
	if read(&after); after != before {
		return "read committed"
	}
	return "repeatable read"
}

// Nothing is lost: 64 goroutines add to what they have read, each again until it is
// through, and some give up by the default policy and begin anew.
func TestNothingIsLost(t *testing.T) {
	const goroutines, each = 64, 3
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		a := article(t, db)
		var gaveUp atomic.Int32
		var wg sync.WaitGroup
		for range goroutines {
			wg.Go(func() {
				for range each {
					for {
						err := optimistic.Do(context.Background(), db.DB, sqldb.Policy{}, func(ctx context.Context, tx *sqldb.Tx) error {
							var state, v int64
							if err := tx.QueryRow(ctx, "SELECT state, version FROM article WHERE id = 7").Scan(&state, &v); err != nil {
								return err
							}
							_, err := a.Update(ctx, tx, seven, v, optimistic.Set{"state": state + 1})
							return err
						})
						var gave *sqldb.RetryError
						if errors.As(err, &gave) {
							gaveUp.Add(1)
							continue
						}
						if err != nil {
							t.Error(err)
						}
						break
					}
				}
			})
		}
		wg.Wait()
		var state, v int64
		if err := db.SQL.QueryRow("SELECT state, version FROM article WHERE id = 7").Scan(&state, &v); err != nil || state != 1+goroutines*each || v != goroutines*each {
			t.Errorf("state %d, version %d, %v", state, v, err)
		}
		t.Logf("%d of %d gave up once", gaveUp.Load(), goroutines*each)
	})
}

// The control: whoever compares no version loses what another one has written. The
// barrier between reading and writing makes it certain.
func TestLostUpdate(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		article(t, db)
		var read, wrote sync.WaitGroup
		read.Add(2)
		for range 2 {
			wrote.Go(func() {
				var state int64
				err := db.QueryRow(context.Background(), "SELECT state FROM article WHERE id = 7").Scan(&state)
				read.Done()
				read.Wait()
				if err == nil {
					_, err = db.Exec(context.Background(), fmt.Sprintf("UPDATE article SET state = %d, version = version + 1 WHERE id = 7", state+1))
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		wrote.Wait()
		var state int64
		if err := db.SQL.QueryRow("SELECT state FROM article WHERE id = 7").Scan(&state); err != nil || state != 2 {
			t.Errorf("state %d, %v: two that added one to 1 should have lost one of them", state, err)
		}
	})
}
