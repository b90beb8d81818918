package sqllock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

func TestNewWithoutTables(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		says := func(what string) {
			t.Helper()
			l, err := sqllock.New(t.Context(), db.DB)
			if l != nil || !errors.Is(err, lock.ErrNotMigrated) || !strings.Contains(err.Error(), "sqllock-migrate up") {
				t.Errorf("%s: %v, %v", what, l, err)
			}
		}
		says("no tables")
		if err := migrations.Up(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		db.MustExec(t, "DELETE FROM "+db.Table("schema_version")+" WHERE version = (SELECT v FROM (SELECT max(version) AS v FROM "+db.Table("schema_version")+") x)")
		says("an older version")
	})
}

// A table that is gone while the Locker lives is said the same way.
func TestTableGone(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		db.MustExec(t, "DROP TABLE "+db.Table("locks"))
		if _, err := l.Acquire(t.Context(), "job"); !errors.Is(err, lock.ErrNotMigrated) {
			t.Error(err)
		}
		err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error { return sqllock.AcquireTx(ctx, tx, "job") })
		if !errors.Is(err, lock.ErrNotMigrated) {
			t.Error(err)
		}
	})
}

func TestNewBadInput(t *testing.T) {
	if _, err := sqllock.New(t.Context(), nil); !errors.Is(err, lock.ErrInvalid) {
		t.Error(err)
	}
	db := dbtest.New(t, sqldb.SQLite)
	counted, c := dbtest.Count(db.DB)
	for name, o := range map[string]struct {
		opt  lock.Option
		want error
	}{
		"nil":       {nil, lock.ErrInvalid},
		"TTL":       {lock.TTL(lock.MinTTL - 1), lock.ErrInvalid},
		"Wait":      {lock.Wait(-1), lock.ErrInvalid},
		"AtMost":    {lock.AtMost(0), lock.ErrInvalid},
		"HoldLeast": {lock.HoldAtLeast(0), lock.ErrInvalid},
		"Label":     {lock.Label("\x00"), lock.ErrInvalid},
		"Shared":    {lock.Shared(), errors.ErrUnsupported},
	} {
		if _, err := sqllock.New(t.Context(), counted, o.opt); !errors.Is(err, o.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if q := c.Take(); len(q) != 0 {
		t.Errorf("statements were run: %q", q)
	}
}

// Nothing that was given is closed, and nothing is left out of the pool.
func TestCloseGivesBack(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		other := locker(t, db.Another(t).DB)
		one, two := must(t, l, "one"), must(t, l, "two", lock.NoRenew())
		entered, err := l.Acquire(one.Context(t.Context()), "one", lock.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		three := must(t, l, "three")
		waiting := make(chan error, 1)
		go func() {
			_, err := l.Acquire(context.Background(), "one")
			waiting <- err
		}()
		if err := l.Close(); err != nil {
			t.Error(err)
		}
		if err := <-waiting; !errors.Is(err, lock.ErrClosed) || errors.Is(err, lock.ErrHeld) {
			t.Errorf("who waited: %v", err)
		}
		if db.Pool != nil && db.Pool.Stat().AcquiredConns() != 0 || db.SQL.Stats().InUse != 0 {
			t.Error("a connection was not given back")
		}
		if !errors.Is(two.Err(), lock.ErrReleased) || !errors.Is(three.Err(), lock.ErrReleased) || entered.Err() == nil || l.Held() != 0 {
			t.Errorf("%v, %v, %v; %d", two.Err(), three.Err(), entered.Err(), l.Held())
		}
		for _, name := range []string{"one", "two", "three"} {
			release(t, must(t, other, name, lock.Try())) // free at once
		}
		if _, err := l.Acquire(t.Context(), "one", lock.Try()); !errors.Is(err, lock.ErrClosed) {
			t.Error(err)
		}
		if err := errors.Join(l.Close(), three.Release(t.Context()), db.SQL.Ping()); err != nil {
			t.Error(err)
		}
	})
}

// A database that does not answer keeps Close for its 5 s, whatever is held.
func TestCloseHanging(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres, sqldb.MariaDB, sqldb.SQLite}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		if err := migrations.Up(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		wrapped, gate := gated(db.DB)
		l, err := sqllock.New(t.Context(), wrapped)
		if err != nil {
			t.Fatal(err)
		}
		var all []*lock.Lock
		for _, name := range strings.Split("abcdefghijklmnopqrstuvwxyz", "") {
			all = append(all, must(t, l, name))
		}
		gate.set(true)
		begun := time.Now()
		err = l.Close()
		if took := time.Since(begun); took > 2*lock.ReleaseBound-time.Second || err == nil || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("after %v: %v", took, err)
		}
		for _, k := range all {
			if k.Err() == nil {
				t.Errorf("%q is said to be held", k.Name())
			}
		}
		gate.set(false)
	})
}

// A Release is bounded as well, and what could not be released is not remembered.
func TestReleaseHanging(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		if err := migrations.Up(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		wrapped, gate := gated(db.DB)
		l := locker(t, wrapped, lock.NoRenew())
		k := must(t, l, "job")
		gate.set(true)
		begun := time.Now()
		err := k.Release(t.Context())
		if took := time.Since(begun); took > 2*lock.ReleaseBound-time.Second || err == nil || errors.Is(err, lock.ErrLost) {
			t.Errorf("after %v: %v", took, err)
		}
		if n := l.Held(); n != 0 {
			t.Errorf("%d locks are remembered", n)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := l.Shutdown(ctx); err != nil && !errors.Is(err, context.DeadlineExceeded) {
			t.Error(err)
		}
		gate.set(false)
		if err := k.Release(t.Context()); err != nil {
			t.Errorf("a second Release, when the database answers: %v", err)
		}
	})
}

func TestShutdown(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const ttl = 600 * time.Millisecond
		l := table(t, db, lock.TTL(ttl))
		k := must(t, l, "job")
		begun := time.Now()
		down := make(chan error, 1)
		go func() { down <- l.Shutdown(context.Background()) }()
		eventually(t, "new work is refused", func() bool {
			_, err := l.Acquire(t.Context(), "other", lock.Try())
			return errors.Is(err, lock.ErrClosed)
		})
		for time.Since(begun) < 3*ttl { // it is kept
			if k.Err() != nil {
				t.Fatalf("after %v: %v", time.Since(begun), k.Err())
			}
			time.Sleep(ttl / 10)
		}
		select {
		case err := <-down:
			t.Fatalf("Shutdown did not wait: %v", err)
		default:
		}
		release(t, k)
		if err := <-down; err != nil {
			t.Error(err)
		}

		m := locker(t, db.DB)
		k = must(t, m, "job")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := m.Shutdown(ctx); !errors.Is(err, context.Canceled) || !errors.Is(k.Err(), lock.ErrReleased) {
			t.Errorf("a Shutdown whose ctx has ended: %v, %v", err, k.Err())
		}
	})
}

// Close beside everything else: nothing hangs, and nothing is left held.
func TestCloseRaces(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		table(t, db)
		for range 10 {
			l := locker(t, db.DB)
			done := make(chan struct{})
			for i := range 4 {
				go func() {
					defer func() { done <- struct{}{} }()
					for {
						k, err := l.Acquire(context.Background(), string(rune('a'+i%2)))
						if err != nil {
							if !errors.Is(err, lock.ErrClosed) {
								t.Error(err)
							}
							return
						}
						if i == 0 {
							_ = k.Release(context.Background())
						} else if err := k.Release(context.Background()); err != nil {
							t.Error(err)
						}
					}
				}()
			}
			time.Sleep(5 * time.Millisecond)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			for range 4 {
				<-done
			}
			if all, err := l.List(t.Context()); err != nil || len(all) != 0 {
				t.Errorf("%v, %+v", err, all)
			}
		}
	})
}
