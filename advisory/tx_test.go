package advisory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

var postgresOnly = []sqldb.Kind{sqldb.Postgres}

// aTx is a transaction of the caller's, of database/sql or of pgx.
type aTx struct {
	*sqldb.Tx
	commit, rollback func() error
}

// beginners begin transactions in both ways. They are rolled back with the test.
func beginners(t *testing.T, db *dbtest.DB) map[string]func(level sql.IsolationLevel) aTx {
	ctx := context.Background()
	return map[string]func(sql.IsolationLevel) aTx{
		"sql": func(level sql.IsolationLevel) aTx {
			raw, err := db.SQL.BeginTx(ctx, &sql.TxOptions{Isolation: level})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = raw.Rollback() })
			return aTx{db.Tx(raw), raw.Commit, raw.Rollback}
		},
		"pgx": func(level sql.IsolationLevel) aTx {
			raw, err := db.Pool.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.TxIsoLevel(strings.ToLower(map[sql.IsolationLevel]string{0: "", sql.LevelReadUncommitted: "read uncommitted", sql.LevelRepeatableRead: "repeatable read", sql.LevelSerializable: "serializable"}[level]))})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = raw.Rollback(ctx) })
			return aTx{db.Tx(raw), func() error { return raw.Commit(ctx) }, func() error { return raw.Rollback(ctx) }}
		},
	}
}

// inBoth runs f with transactions of database/sql and of pgx.
func inBoth(t *testing.T, f func(t *testing.T, db *dbtest.DB, begin func(sql.IsolationLevel) aTx)) {
	dbtest.On(t, postgresOnly, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"sql", "pgx"} {
			t.Run(name, func(t *testing.T) { f(t, db, beginners(t, db)[name]) })
		}
	})
}

func keyOf(t testing.TB, db *dbtest.DB, name string) advisory.Key {
	t.Helper()
	k, err := advisory.KeyOf(db.DB, name)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// isFree says whether another session could have the key at once.
func isFree(t testing.TB, db *dbtest.DB, key advisory.Key) (free bool) {
	t.Helper()
	args := strings.Trim(key.String(), "()")
	// A session that holds it would be granted it again.
	err := db.SQL.QueryRowContext(t.Context(), `WITH mine AS MATERIALIZED (
			SELECT count(*) AS n FROM pg_locks WHERE locktype = 'advisory' AND granted AND pid = pg_backend_pid())
		SELECT n = 0 AND pg_try_advisory_xact_lock(`+args+`) FROM mine`).Scan(&free)
	if err != nil {
		t.Fatal(err)
	}
	return free
}

// waiters is how many sessions wait for the key in the server.
func waiters(t testing.TB, db *dbtest.DB, key advisory.Key) (n int) {
	t.Helper()
	err := db.SQL.QueryRowContext(context.Background(), `SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted
		AND (classid::bigint << 32) | objid::bigint = $1::bigint`, key.String()).Scan(&n)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// comesTrue waits until f says so.
func comesTrue(t testing.TB, what string, f func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !f(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long until %s", what)
		}
	}
}

func TestAcquireTx(t *testing.T) {
	inBoth(t, func(t *testing.T, db *dbtest.DB, begin func(sql.IsolationLevel) aTx) {
		key := keyOf(t, db, "job")
		for _, end := range []string{"commit", "rollback"} {
			if !isFree(t, db, key) {
				t.Fatal("it is not free to begin with")
			}
			tx := begin(0)
			if err := advisory.AcquireTx(t.Context(), tx.Tx, "job"); err != nil {
				t.Fatal(err)
			}
			if isFree(t, db, key) {
				t.Error("it was not taken")
			}
			if err := advisory.AcquireTx(t.Context(), tx.Tx, "job"); err != nil {
				t.Errorf("a second time: %v", err)
			}
			other := begin(0)
			var held *lock.HeldError
			if err := advisory.TryAcquireTx(t.Context(), other.Tx, "job"); !errors.As(err, &held) || held.Name != "job" || !strings.HasPrefix(held.Holder.Label, "connection ") {
				t.Errorf("a second transaction: %v", err)
			}
			if err := advisory.TryAcquireTx(t.Context(), other.Tx, "another job"); err != nil {
				t.Errorf("after the refusal, the transaction is not as it was: %v", err)
			}
			_ = other.rollback()

			waiting := begin(0)
			got := make(chan error, 1)
			go func() { got <- advisory.AcquireTx(context.Background(), waiting.Tx, "job") }()
			comesTrue(t, "it waits in the server", func() bool { return waiters(t, db, key) == 1 })
			if end == "commit" {
				_ = tx.commit()
			} else {
				_ = tx.rollback()
			}
			if err := <-got; err != nil {
				t.Errorf("after %s: %v", end, err)
			}
			if err := waiting.commit(); err != nil {
				t.Error(err)
			}
		}
	})
}

// Under READ COMMITTED whoever has waited sees what the holder before has committed.
// The negative control is two transactions that read before either writes.
func TestAcquireTxCounts(t *testing.T) {
	t.Parallel()
	dbtest.On(t, postgresOnly, func(t *testing.T, db *dbtest.DB) {
		db.MustExec(t, "CREATE TABLE t (n BIGINT)", "INSERT INTO t VALUES (0)")
		count := func(name string, read func()) error {
			return db.InTx(context.Background(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				if name != "" {
					if err := advisory.AcquireTx(ctx, tx, name); err != nil {
						return err
					}
				}
				var n int64
				if err := tx.QueryRow(ctx, "SELECT n FROM t").Scan(&n); err != nil {
					return err
				}
				read()
				_, err := tx.Exec(ctx, "UPDATE t SET n = $1::bigint", n+1)
				return err
			})
		}
		many := func(workers, rounds int, name string, read func()) (n int) {
			db.MustExec(t, "UPDATE t SET n = 0")
			var wg sync.WaitGroup
			for range workers {
				wg.Go(func() {
					for range rounds {
						if err := count(name, read); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wg.Wait()
			if err := db.QueryRow(t.Context(), "SELECT n FROM t").Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n
		}
		if n := many(8, 10, "counter", func() {}); n != 80 {
			t.Errorf("%d of 80 were counted", n)
		}
		var both sync.WaitGroup
		both.Add(2)
		if n := many(2, 1, "", func() { both.Done(); both.Wait() }); n != 1 {
			t.Errorf("the negative control has counted %d", n)
		}
	})
}

func TestAcquireTxShared(t *testing.T) {
	inBoth(t, func(t *testing.T, _ *dbtest.DB, begin func(sql.IsolationLevel) aTx) {
		one, two, writer := begin(0), begin(0), begin(0)
		if err := errors.Join(advisory.AcquireTx(t.Context(), one.Tx, "job", lock.Shared()), advisory.TryAcquireTx(t.Context(), two.Tx, "job", lock.Shared())); err != nil {
			t.Fatalf("two readers: %v", err)
		}
		if err := advisory.TryAcquireTx(t.Context(), writer.Tx, "job"); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("a writer beside readers: %v", err)
		}
		if err := errors.Join(one.commit(), two.commit()); err != nil {
			t.Fatal(err)
		}
		if err := advisory.TryAcquireTx(t.Context(), writer.Tx, "job"); err != nil {
			t.Fatal(err)
		}
		if err := advisory.TryAcquireTx(t.Context(), begin(0).Tx, "job", lock.Shared()); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("a reader beside the writer: %v", err)
		}
	})
}

// A key is what another program locks with the functions of the server.
func TestAcquireKeyTx(t *testing.T) {
	inBoth(t, func(t *testing.T, db *dbtest.DB, begin func(sql.IsolationLevel) aTx) {
		// Of this test alone: the server is shared with other tests.
		n := int64(1)<<40 | time.Now().UnixNano()&0xffffffff
		for key, call := range map[advisory.Key]string{
			advisory.Int64(n): fmt.Sprint(n), advisory.Int64(-n): fmt.Sprint(-n),
			advisory.Pair(-7, int32(n)): fmt.Sprintf("-7, %d", int32(n)), advisory.Pair(int32(n), -7): fmt.Sprintf("%d, -7", int32(n)),
		} {
			theirs := begin(0)
			if _, err := theirs.Exec(t.Context(), "SELECT pg_advisory_xact_lock("+call+")"); err != nil {
				t.Fatal(err)
			}
			ours := begin(0)
			var held *lock.HeldError
			if err := advisory.TryAcquireKeyTx(t.Context(), ours.Tx, key); !errors.As(err, &held) || held.Name != key.String() || held.Holder.Label == "" {
				t.Errorf("%s: %v", key, err)
			}
			_ = theirs.rollback()
			if err := advisory.AcquireKeyTx(t.Context(), ours.Tx, key); err != nil {
				t.Errorf("%s: %v", key, err)
			}
			if isFree(t, db, key) {
				t.Errorf("%s is free for others", key)
			}
			_ = ours.rollback()
		}
	})
}

// ctx ends the wait at once; the transaction is aborted, and nobody stays behind
// waiting.
func TestAcquireTxContext(t *testing.T) {
	inBoth(t, func(t *testing.T, db *dbtest.DB, begin func(sql.IsolationLevel) aTx) {
		key := keyOf(t, db, "job")
		tx, waiting := begin(0), begin(0)
		if err := advisory.AcquireTx(t.Context(), tx.Tx, "job"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		got := make(chan error, 1)
		go func() { got <- advisory.AcquireTx(ctx, waiting.Tx, "job") }()
		comesTrue(t, "it waits in the server", func() bool { return waiters(t, db, key) == 1 })
		cancel()
		err := <-got
		var held *lock.HeldError
		if !errors.As(err, &held) || !errors.Is(err, context.Canceled) || held.Waited <= 0 || sqldb.Retryable(err) {
			t.Errorf("%v", err)
		}
		comesTrue(t, "it waits in the server no longer", func() bool { return waiters(t, db, key) == 0 })
		if err := waiting.commit(); err == nil {
			t.Error("the transaction could be committed")
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		comesTrue(t, "it is free", func() bool { return isFree(t, db, key) })
	})
}

// The server's own time limits end a wait, and leave nothing behind.
func TestAcquireTxServerTimeouts(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, db *dbtest.DB, begin func(sql.IsolationLevel) aTx) {
		tx := begin(0)
		if err := advisory.AcquireTx(t.Context(), tx.Tx, "job"); err != nil {
			t.Fatal(err)
		}
		// Long enough for the try, on a busy machine, which comes before the wait.
		for setting, class := range map[string]sqldb.Class{"lock_timeout": sqldb.LockTimeout, "statement_timeout": sqldb.Canceled} {
			waiting := begin(0)
			if _, err := waiting.Exec(t.Context(), "SET LOCAL "+setting+" = 1000"); err != nil {
				t.Fatal(err)
			}
			err := advisory.AcquireTx(t.Context(), waiting.Tx, "job")
			var held *lock.HeldError
			if !errors.As(err, &held) || held.Name != "job" || sqldb.ClassOf(err) != class || sqldb.Retryable(err) != (class == sqldb.LockTimeout) {
				t.Errorf("%s: %v", setting, err)
			}
			if n := waiters(t, db, keyOf(t, db, "job")); n != 0 {
				t.Errorf("%s: %d sessions wait", setting, n)
			}
			_ = waiting.rollback()
		}
		if err := tx.commit(); err != nil || !isFree(t, db, keyOf(t, db, "job")) {
			t.Errorf("something was left behind: %v", err)
		}
	})
}

// Two names in opposite orders: one of the two is told to begin anew, and which
// name it was about.
func TestAcquireTxDeadlock(t *testing.T) {
	t.Parallel()
	inBoth(t, func(t *testing.T, _ *dbtest.DB, begin func(sql.IsolationLevel) aTx) {
		a, b := begin(0), begin(0)
		if err := errors.Join(advisory.AcquireTx(t.Context(), a.Tx, "first"), advisory.AcquireTx(t.Context(), b.Tx, "second")); err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 2)
		var wg sync.WaitGroup
		for tx, name := range map[*aTx]string{&a: "second", &b: "first"} {
			wg.Go(func() {
				errs <- advisory.AcquireTx(context.Background(), tx.Tx, name)
				_ = tx.rollback()
			})
		}
		wg.Wait()
		one, two := <-errs, <-errs
		if one == nil {
			one, two = two, one
		}
		if two != nil || sqldb.ClassOf(one) != sqldb.Deadlock || !sqldb.Retryable(one) || !strings.Contains(one.Error(), `"first"`) && !strings.Contains(one.Error(), `"second"`) {
			t.Errorf("%v, %v", one, two)
		}
	})
}
