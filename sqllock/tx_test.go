package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
	"github.com/sqlnative/locks/sqllock"
)

// beginner begins a transaction of the caller's, of database/sql or pgx.
type beginner func() (tx *sqldb.Tx, commit, rollback func() error)

func beginners(t *testing.T, db *dbtest.DB) map[string]beginner {
	b := map[string]beginner{"sql": func() (*sqldb.Tx, func() error, func() error) {
		raw, tx := openTx(t, db, 0)
		return tx, raw.Commit, raw.Rollback
	}}
	if db.Pool != nil {
		b["pgx"] = func() (*sqldb.Tx, func() error, func() error) {
			ctx := context.Background()
			raw, err := db.Pool.Begin(ctx)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = raw.Rollback(ctx) })
			return db.Tx(raw), func() error { return raw.Commit(ctx) }, func() error { return raw.Rollback(ctx) }
		}
	}
	return b
}

func TestAcquireTx(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		l := table(t, db)
		for name, begin := range beginners(t, db) {
			for _, end := range []string{"commit", "rollback"} {
				tx, commit, rollback := begin()
				if err := sqllock.AcquireTx(t.Context(), tx, name); err != nil {
					t.Fatal(err)
				}
				other, _, leave := begin()
				if err := soon(t, "TryAcquireTx", func() error { return sqllock.TryAcquireTx(t.Context(), other, name) }); !errors.Is(err, lock.ErrHeld) {
					t.Errorf("a second transaction: %v", err)
				}
				_ = leave()
				refused(t, l, name) // a lease neither
				waiting, finish, _ := begin()
				got := make(chan error, 1)
				go func() { got <- sqllock.AcquireTx(context.Background(), waiting, name) }()
				select {
				case err := <-got:
					t.Fatalf("it did not wait: %v", err)
				case <-time.After(150 * time.Millisecond):
				}
				if end == "commit" {
					_ = commit()
				} else {
					_ = rollback()
				}
				if err := <-got; err != nil {
					t.Errorf("%s, %s: who waited: %v", name, end, err)
				}
				if err := finish(); err != nil {
					t.Error(err)
				}
				release(t, must(t, l, name, lock.Try()))
			}
		}
	})
}

// A lease that somebody holds is refused at once, also while a guard pins it, and
// its holder goes on.
func TestAcquireTxBesideLease(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db, lock.TTL(time.Second))
		k := must(t, l, "job", lock.Label("me"))
		if db.Kind() != sqldb.SQLite {
			guarded, tx := openTx(t, db, 0)
			if err := k.Guard(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = guarded.Rollback() }()
			_, other := openTx(t, db, 0)
			for _, f := range []func(context.Context, *sqldb.Tx, string, ...lock.Option) error{sqllock.AcquireTx, sqllock.TryAcquireTx} {
				var held *lock.HeldError
				if err := soon(t, "it", func() error { return f(t.Context(), other, "job") }); !errors.As(err, &held) || held.Holder.Label != "me" {
					t.Errorf("%v", err)
				}
			}
			_ = guarded.Rollback()
			for begun := time.Now(); time.Since(begun) < 2*time.Second; time.Sleep(50 * time.Millisecond) {
				if err := k.Err(); err != nil {
					t.Fatalf("the refusal has cost the holder its lock: %v", err)
				}
			}
			release(t, k)
			return
		}
		raw, tx := openTx(t, db, 0)
		if err := sqllock.AcquireTx(t.Context(), tx, "job"); !errors.Is(err, lock.ErrHeld) {
			t.Error(err)
		}
		_ = raw.Rollback()
		release(t, k)
	})
}

// Whoever held an expired lease before can guard it no more.
func TestAcquireTxEndsExpiredLease(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		k := must(t, l, "job", lock.NoRenew(), lock.TTL(time.Minute))
		db.MustExec(t, "UPDATE "+db.Table("locks")+" SET expires_at = acquired_at")
		if err := inTx(t, db, func(tx *sqldb.Tx) error { return k.Guard(t.Context(), tx) }); err != nil {
			t.Fatalf("nobody has taken it yet: %v", err)
		}
		if err := inTx(t, db, func(tx *sqldb.Tx) error { return sqllock.AcquireTx(t.Context(), tx, "job") }); err != nil {
			t.Fatal(err)
		}
		if err := inTx(t, db, func(tx *sqldb.Tx) error { return k.Guard(t.Context(), tx) }); !errors.Is(err, lock.ErrLost) {
			t.Errorf("after the transaction: %v", err)
		}
	})
}

// Many transactions touch a name for the first time at once, and count under it.
func TestAcquireTxFirstTouch(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		table(t, db)
		db.MustExec(t, "CREATE TABLE t (n BIGINT)", "INSERT INTO t VALUES (0)")
		const workers = 20
		for round := range 3 {
			var wg sync.WaitGroup
			for range workers {
				wg.Add(1)
				go func() {
					defer wg.Done()
					ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
					defer cancel()
					err := db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
						if err := sqllock.AcquireTx(ctx, tx, fmt.Sprint("job ", round)); err != nil {
							return err
						}
						var n int64
						if err := tx.QueryRow(ctx, "SELECT n FROM t").Scan(&n); err != nil {
							return err
						}
						_, err := tx.Exec(ctx, fmt.Sprintf("UPDATE t SET n = %d", n+1))
						return err
					})
					if err != nil {
						t.Error(err)
					}
				}()
			}
			wg.Wait()
			var n int
			if err := db.QueryRow(t.Context(), "SELECT n FROM t").Scan(&n); err != nil || n != workers*(round+1) {
				t.Fatalf("%d, %v", n, err)
			}
		}
	})
}

// Two names in opposite orders: one of the two is told to begin anew, and which
// name it was about.
func TestAcquireTxDeadlock(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		release(t, must(t, l, "first"))
		release(t, must(t, l, "second"))
		rawA, a := openTx(t, db, 0)
		rawB, b := openTx(t, db, 0)
		if err := errors.Join(sqllock.AcquireTx(t.Context(), a, "first"), sqllock.AcquireTx(t.Context(), b, "second")); err != nil {
			t.Fatal(err)
		}
		errs := make(chan error, 2)
		go func() {
			err := sqllock.AcquireTx(context.Background(), a, "second")
			errs <- err
			_ = rawA.Rollback()
		}()
		go func() {
			err := sqllock.AcquireTx(context.Background(), b, "first")
			errs <- err
			_ = rawB.Rollback()
		}()
		one, two := <-errs, <-errs
		if one == nil {
			one, two = two, one
		}
		if two != nil || sqldb.ClassOf(one) != sqldb.Deadlock || !sqldb.Retryable(one) || !strings.Contains(one.Error(), `"first"`) && !strings.Contains(one.Error(), `"second"`) {
			t.Errorf("%v, %v", one, two)
		}
	})
}

// A transaction that has read before another had the lock sees what was then.
func TestAcquireTxStale(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		release(t, must(t, l, "job"))
		raw, tx := openTx(t, db, sql.LevelRepeatableRead)
		if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM "+db.Table("jobs")).Scan(new(int)); err != nil {
			t.Fatal(err)
		}
		release(t, must(t, l, "job"))
		if err := sqllock.AcquireTx(t.Context(), tx, "job"); !sqldb.Retryable(err) || db.Kind() == sqldb.MySQL && !errors.Is(err, lock.ErrStaleSnapshot) {
			t.Error(err)
		}
		_ = raw.Rollback()
		raw, tx = openTx(t, db, sql.LevelRepeatableRead)
		if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM "+db.Table("jobs")).Scan(new(int)); err != nil {
			t.Fatal(err)
		}
		if err := sqllock.AcquireTx(t.Context(), tx, "new name"); err == nil || !sqldb.Retryable(err) {
			t.Errorf("a row that is newer than the snapshot: %v", err)
		}
		_ = raw.Rollback()
		raw, tx = openTx(t, db, sql.LevelRepeatableRead)
		if err := errors.Join(sqllock.AcquireTx(t.Context(), tx, "new name"), sqllock.AcquireTx(t.Context(), tx, "new name"), raw.Commit()); err != nil {
			t.Errorf("twice: %v", err)
		}
	})
}

// A pool of one has no connection for a first touch beside the transaction.
func TestAcquireTxPoolOfOne(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		release(t, must(t, l, "old"))
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		db.SQL.SetMaxOpenConns(1)
		if db.Pool != nil {
			var err error
			if db.DB, err = pgdb.SQL(t.Context(), db.SQL); err != nil {
				t.Fatal(err)
			}
		}
		for _, name := range []string{"old", "new"} {
			if err := inTx(t, db, func(tx *sqldb.Tx) error { return sqllock.AcquireTx(t.Context(), tx, name) }); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if err := inTx(t, db, func(tx *sqldb.Tx) error { return sqllock.TryAcquireTx(t.Context(), tx, name) }); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		err := soon(t, "a first touch by a try", func() error {
			return inTx(t, db, func(tx *sqldb.Tx) error { return sqllock.TryAcquireTx(t.Context(), tx, "newer") })
		})
		switch {
		case db.Kind() == sqldb.SQLite && err != nil:
			t.Error(err)
		case db.Kind() != sqldb.SQLite && (err == nil || !strings.Contains(err.Error(), "pool")):
			t.Errorf("it does not name the pool: %v", err)
		}
	})
}

func TestAcquireTxBadInput(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	table(t, db)
	counting, c := dbtest.Count(db.DB)
	raw, _ := openTx(t, db, 0)
	tx := counting.Tx(raw)
	for what, err := range map[string]error{
		"no name":   sqllock.AcquireTx(t.Context(), tx, ""),
		"nil":       sqllock.AcquireTx(t.Context(), nil, "job"),
		"a pool":    sqllock.AcquireTx(t.Context(), counting.Tx(db.SQL), "job"),
		"TTL":       sqllock.AcquireTx(t.Context(), tx, "job", lock.TTL(time.Second)),
		"Try":       sqllock.AcquireTx(t.Context(), tx, "job", lock.Try()),
		"Reentrant": sqllock.TryAcquireTx(t.Context(), tx, "job", lock.Reentrant()),
		"AtMost":    sqllock.TryAcquireTx(t.Context(), tx, "job", lock.AtMost(time.Second)),
	} {
		if !errors.Is(err, lock.ErrInvalid) && !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if q := c.Take(); len(q) != 0 {
		t.Errorf("statements were run: %q", q)
	}
}
