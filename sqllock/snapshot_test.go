package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqllock"
)

// A transaction whose snapshot is from before the lock was had reads what the holder
// before has changed since: a guard there would protect nothing.
func TestGuardStaleSnapshot(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		for _, c := range []struct {
			level      sql.IsolationLevel
			replicated bool
		}{{sql.LevelRepeatableRead, false}, {sql.LevelRepeatableRead, true}, {sql.LevelSerializable, false}, {sql.LevelReadCommitted, false}} {
			a := table(t, db)
			if c.replicated {
				a.Replicate()
			}
			release(t, must(t, a, "job"))
			raw, tx := openTx(t, db, c.level)
			var n int
			if err := tx.QueryRow(t.Context(), "SELECT count(*) FROM "+db.Table("jobs")).Scan(&n); err != nil { // the snapshot is made
				t.Fatal(err)
			}
			k := must(t, a, "job")
			err := k.Guard(t.Context(), tx)
			fresh := c.level == sql.LevelReadCommitted || db.Kind().InnoDB() && c.level == sql.LevelSerializable
			switch {
			case fresh && db.Kind() == sqldb.MariaDB && sqldb.ClassOf(err) == sqldb.Serialization: // innodb_snapshot_isolation is on
			case fresh && err != nil:
				t.Errorf("%v: %v", c.level, err)
			case !fresh && (errors.Is(err, lock.ErrLost) || !errors.Is(err, lock.ErrStaleSnapshot) && sqldb.ClassOf(err) != sqldb.Serialization):
				t.Errorf("%v: %v", c.level, err)
			case !fresh && !sqldb.Retryable(err):
				t.Errorf("%v: it can't be tried again: %v", c.level, err)
			}
			if !fresh && tx.Err() == nil && !(db.Kind() == sqldb.Postgres && sqldb.ClassOf(err) == sqldb.Serialization && !errors.Is(err, lock.ErrStaleSnapshot)) {
				if err := k.ReleaseIn(t.Context(), tx); db.Kind() == sqldb.Postgres && (err == nil || errors.Is(err, lock.ErrLost) || !sqldb.Retryable(err)) {
					t.Errorf("ReleaseIn in a stale snapshot: %v", err)
				}
			}
			_ = raw.Rollback()
			if k.Err() == nil { // begun anew, it succeeds
				if err := sqldb.Retry(t.Context(), sqldb.Policy{}, func(ctx context.Context) error {
					return db.InTx(ctx, sqldb.TxOptions{Isolation: c.level}, func(ctx context.Context, tx *sqldb.Tx) error { return k.Guard(ctx, tx) })
				}); err != nil {
					t.Errorf("%v: begun anew: %v", c.level, err)
				}
				release(t, k)
			}
			_, err = db.SQL.Exec("DELETE FROM " + db.Table("locks"))
			if err != nil {
				t.Fatal(err)
			}
		}
	})
}

// After a take-over, a transaction that began after it is told the loss whatever
// its isolation, and not to try again for ever.
func TestGuardLostUnderRepeatableRead(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		for _, level := range []sql.IsolationLevel{sql.LevelRepeatableRead, sql.LevelSerializable} {
			a := table(t, db)
			k := must(t, a, "job", lock.NoRenew())
			if err := a.ForceRelease(t.Context(), "job", k.Token()); err != nil {
				t.Fatal(err)
			}
			raw, tx := openTx(t, db, level)
			if err := k.Guard(t.Context(), tx); !errors.Is(err, lock.ErrLost) || errors.Is(err, lock.ErrStaleSnapshot) {
				t.Errorf("%v: %v", level, err)
			}
			_ = raw.Rollback()
		}
	})
}

// MariaDB's innodb_snapshot_isolation refuses a locking read of what is newer than
// the snapshot, and ends the transaction.
func TestGuardSnapshotIsolation(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		strict := db.OpenSQL(t, func(c *mysql.Config) { c.Params = map[string]string{"innodb_snapshot_isolation": "ON"} })
		a := table(t, db)
		on, err := mysqldb.New(t.Context(), strict)
		if err != nil {
			t.Fatal(err)
		}
		release(t, must(t, a, "job"))
		raw, err := strict.Begin()
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = raw.Rollback() }()
		if _, err := raw.Exec("SELECT * FROM " + db.Table("locks")); err != nil {
			t.Fatal(err)
		}
		tx := on.Tx(raw)
		k := must(t, a, "job")
		if err := k.Guard(t.Context(), tx); sqldb.ClassOf(err) != sqldb.Serialization || !sqldb.Retryable(err) || k.Err() != nil {
			t.Errorf("%v, %v", err, k.Err())
		}
		if tx.Err() == nil {
			t.Error("the transaction object does not know that it has ended")
		}
		if _, err := raw.Exec("SELECT 1"); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("a statement after it: %v", err)
		}
		release(t, k)
	})
}

// As a default of the database, a stricter isolation changes nothing.
func TestDefaultIsolation(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		for _, level := range []string{"REPEATABLE READ", "SERIALIZABLE"} {
			t.Run(level, func(t *testing.T) {
				table(t, db)
				strict := withIsolation(t, db, level)
				a, b := locker(t, strict, lock.TTL(time.Second)), locker(t, strict, lock.TTL(time.Second))
				n, workers := 0, 8
				done := make(chan error, workers)
				for i := range workers {
					go func() {
						for range 4 {
							err := lock.Do(context.Background(), []*sqllock.Locker{a, b}[i%2], "job", func(context.Context, *lock.Lock) error {
								v := n
								time.Sleep(time.Millisecond)
								n = v + 1
								return nil
							})
							if err != nil {
								done <- err
								return
							}
						}
						done <- nil
					}()
				}
				for range workers {
					if err := <-done; err != nil {
						t.Fatal(err)
					}
				}
				if n != 4*workers {
					t.Errorf("%d of %d", n, 4*workers)
				}
				k := must(t, a, "job") // renewed
				for begun := time.Now(); time.Since(begun) < 2*time.Second; time.Sleep(100 * time.Millisecond) {
					refused(t, b, "job")
				}
				if err := k.Err(); err != nil {
					t.Error(err)
				}
				release(t, k)
			})
		}
	})
}
