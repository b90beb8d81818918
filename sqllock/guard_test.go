package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// short is a lease that is over soon, by itself.
func short() []lock.Option { return []lock.Option{lock.NoRenew(), lock.TTL(time.Second)} }

// A guard pins the row until its transaction ends: nobody takes the lock over, not
// even after its lease has passed.
func TestGuardPins(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		for _, replicated := range []bool{false, true} {
			if replicated && !db.Kind().InnoDB() {
				continue
			}
			a, b := table(t, db), locker(t, db.Another(t).DB)
			if replicated {
				a.Replicate()
			}
			k := must(t, a, "job", short()...)
			raw, tx := openTx(t, db, 0)
			if err := k.Guard(t.Context(), tx); err != nil {
				t.Fatal(err)
			}
			expired(t, db, "job")
			eventually(t, "the holder knows", func() bool { return errors.Is(k.Err(), lock.ErrLost) })
			held := refused(t, b, "job")
			if held.Left > 0 {
				t.Errorf("the lease has passed, and %v are left of it", held.Left)
			}
			if n, err := b.GCOlderThan(t.Context(), 0); err != nil || n != 0 {
				t.Errorf("gc removed %d rows, %v", n, err)
			}
			got := make(chan *lock.Lock, 1)
			go func() {
				m, err := b.Acquire(context.Background(), "job")
				if err != nil {
					t.Error(err)
				}
				got <- m
			}()
			select {
			case <-got:
				t.Fatal("a guarded lock was taken over")
			case <-time.After(500 * time.Millisecond):
			}
			if err := raw.Commit(); err != nil {
				t.Error(err)
			}
			m := <-got
			if m.Token() <= k.Token() {
				t.Errorf("token %d after %d", m.Token(), k.Token())
			}
			release(t, m)
		}
	})
}

// What goes on beside a guard, while its transaction stays open.
func TestNobodyWaitsForGuard(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const ttl = time.Second
		var stats lock.Stats
		a, b := table(t, db, lock.TTL(ttl), lock.WithTrace(stats.Trace())), locker(t, db.Another(t).DB)
		k, other := must(t, a, "job"), must(t, a, "other")
		_, tx := openTx(t, db, 0)
		if err := k.Guard(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		_ = soon(t, "a try", func() error { refused(t, b, "job"); return nil })
		if err := soon(t, "forcing the release", func() error { return b.ForceRelease(t.Context(), "job", k.Token()) }); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("the release of a guarded lock was forced: %v", err)
		}
		if db.Kind() == sqldb.Postgres { // it is renewed, for as long as it takes
			for begun := time.Now(); time.Since(begun) < 3*ttl; time.Sleep(ttl / 10) {
				if err := k.Err(); err != nil {
					t.Fatalf("after %v: %v", time.Since(begun), err)
				}
			}
			if stats.RenewFailed.Load() != 0 {
				t.Error("renewals failed")
			}
			if err := soon(t, "Extend", func() error { return k.Extend(t.Context(), time.Minute) }); err != nil {
				t.Error(err)
			}
			if err := soon(t, "Release", func() error { return k.Release(t.Context()) }); err != nil {
				t.Error(err)
			}
			if err := soon(t, "the next one", func() error {
				_, err := b.Acquire(t.Context(), "job", lock.Try())
				return err
			}); !errors.Is(err, lock.ErrHeld) {
				t.Errorf("the lock was taken over beside a guard: %v", err)
			}
			release(t, other)
			return
		}
		if err := soon(t, "Extend", func() error { return k.Extend(t.Context(), ttl) }); err == nil || errors.Is(err, lock.ErrLost) {
			t.Errorf("Extend beside a guard: %v", err)
		}
		// It is skipped, and lost by its own clock; the other one lives.
		eventually(t, "the guarded one is lost", func() bool { return errors.Is(k.Err(), lock.ErrLost) })
		for begun := time.Now(); time.Since(begun) < 2*ttl; time.Sleep(ttl / 10) {
			if err := other.Err(); err != nil {
				t.Fatalf("after %v: %v", time.Since(begun), err)
			}
		}
		if stats.RenewFailed.Load() == 0 {
			t.Error("nobody was told")
		}
		if err := soon(t, "Release", func() error { return k.Release(t.Context()) }); !errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
		release(t, other)
	})
}

// A guarded transaction that is shorter than the lease costs MySQL and MariaDB
// nothing: what was skipped is renewed soon after.
func TestRenewedAfterGuard(t *testing.T) {
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const ttl = 1500 * time.Millisecond
		var stats lock.Stats
		a := table(t, db, lock.TTL(ttl), lock.WithTrace(stats.Trace()))
		k := must(t, a, "job")
		raw, tx := openTx(t, db, 0)
		if err := k.Guard(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		eventually(t, "a renewal has skipped it", func() bool { return stats.RenewFailed.Load() > 0 })
		if err := raw.Commit(); err != nil {
			t.Fatal(err)
		}
		for begun := time.Now(); time.Since(begun) < 2*ttl; time.Sleep(ttl / 10) {
			if err := k.Err(); err != nil {
				t.Fatal(err)
			}
		}
		release(t, k)
	})
}

func TestGuardLost(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		a, b := table(t, db), locker(t, db.Another(t).DB)
		guard := func(k *lock.Lock) error {
			return inTx(t, db, func(tx *sqldb.Tx) error { return k.Guard(t.Context(), tx) })
		}
		for _, replicated := range []bool{false, true} {
			if replicated {
				a.Replicate()
			}
			// Taken over: known to the handle by its clock, and to a handle that has been
			// told nothing (an attached one, whose lease was made longer) by the database.
			k := must(t, a, "job", lock.NoRenew(), lock.TTL(time.Minute))
			if err := guard(k); err != nil {
				t.Fatal(err)
			}
			db.MustExec(t, "UPDATE "+db.Table("locks")+" SET expires_at = acquired_at WHERE name = 'job'") // the clock runs
			m := must(t, b, "job", lock.Try())
			if err := guard(k); !errors.Is(err, lock.ErrLost) || !errors.Is(k.Err(), lock.ErrLost) {
				t.Errorf("after the take-over: %v, %v", err, k.Err())
			}
			if err := guard(m); err != nil {
				t.Error(err)
			}
			if err := a.ForceRelease(t.Context(), "job", m.Token()); err != nil {
				t.Error(err)
			}
			if err := guard(m); !errors.Is(err, lock.ErrLost) {
				t.Errorf("after a forced release: %v", err)
			}
			if err := m.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
				t.Error(err)
			}
			// A late Release touches no successor.
			n := must(t, b, "job")
			_ = k.Release(t.Context())
			if err := guard(n); err != nil {
				t.Error(err)
			}
			release(t, n)
			if err := guard(n); !errors.Is(err, lock.ErrReleased) {
				t.Error(err)
			}
		}
	})
}

// A pool is no transaction, and pgx's nested ones are savepoints.
func TestGuardRefuses(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		k := must(t, table(t, db), "job")
		if err := k.Guard(t.Context(), db.Tx(db.Pool)); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("a pool: %v", err)
		}
		err := pgx.BeginFunc(t.Context(), db.Pool, func(outer pgx.Tx) error {
			err := pgx.BeginFunc(t.Context(), outer, func(inner pgx.Tx) error {
				return pgx.BeginFunc(t.Context(), inner, func(innermost pgx.Tx) error {
					if err := k.Guard(t.Context(), db.Tx(innermost)); !errors.Is(err, lock.ErrInvalid) {
						t.Errorf("two levels deep: %v", err)
					}
					if err := k.Guard(t.Context(), db.Tx(struct{ pgx.Tx }{inner})); !errors.Is(err, lock.ErrInvalid) {
						t.Errorf("wrapped: %v", err)
					}
					return nil
				})
			})
			if err != nil {
				return err
			}
			return k.Guard(t.Context(), db.Tx(outer))
		})
		if err != nil {
			t.Errorf("the outermost: %v", err)
		}
		conn, err := db.Pool.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Release()
		err = pgx.BeginFunc(t.Context(), conn.Conn(), func(tx pgx.Tx) error {
			return pgx.BeginFunc(t.Context(), tx, func(inner pgx.Tx) error { return k.Guard(t.Context(), db.Tx(inner)) })
		})
		if !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("nested, on a connection of its own: %v", err)
		}
		release(t, k)
	})
}

// Why a take-over locks the row FOR UPDATE first: as a plain UPDATE it passes a
// guard, and then a guard succeeds on a lock that is another's.
func TestPlainTakeOverPassesGuard(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		a := table(t, db)
		k := must(t, a, "job", short()...)
		raw, tx := openTx(t, db, 0)
		if err := k.Guard(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		expired(t, db, "job")
		err := soon(t, "the plain UPDATE", func() error {
			res, err := db.Exec(t.Context(), sqllock.TakeOver(db.DB), "job")
			if err == nil && res.RowsAffected != 1 {
				err = errors.New("no row was changed")
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := raw.Commit(); err != nil {
			t.Errorf("the guarded transaction commits all the same: %v", err)
		}
	})
}
