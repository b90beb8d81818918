package advisory_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
)

// A Locker lists what it holds by name, and what others hold by the names it is given.
func TestLockerList(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		open := func(db *dbtest.DB) *advisory.Locker {
			l, err := advisory.New(t.Context(), db.DB)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = l.Close() })
			return l
		}
		ours, theirs := open(db), open(db.Another(t))
		find := func(l *advisory.Locker, names ...string) (mine []advisory.Info) {
			t.Helper()
			all, err := l.List(t.Context(), names...)
			if err != nil {
				t.Fatal(err)
			}
			for _, i := range all {
				if i.Key == keyOf(t, db, "job") {
					mine = append(mine, i)
				}
			}
			return mine
		}
		held, err := ours.Acquire(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		mine := find(ours)
		if len(mine) != 1 || mine[0].Name != "job" || mine[0].Waits || mine[0].Conn == 0 {
			t.Errorf("our own: %+v", mine)
		}
		if mine := find(theirs, "job"); len(mine) != 1 || mine[0].Name != "job" || mine[0].Waits {
			t.Errorf("another's: %+v", mine)
		}

		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		got := make(chan error, 1)
		go func() {
			_, err := theirs.Acquire(ctx, "job")
			got <- err
		}()
		comesTrue(t, "the waiter is listed", func() bool {
			mine := find(ours)
			return len(mine) == 2 && mine[1].Waits && mine[1].Name == "job" && mine[1].Conn != mine[0].Conn
		})
		cancel()
		if err := <-got; !errors.Is(err, lock.ErrHeld) {
			t.Error(err)
		}
		comesTrue(t, "the waiter has gone", func() bool { return len(find(ours)) == 1 })
		if err := held.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		comesTrue(t, "it is free", func() bool { return len(find(ours, "job")) == 0 })
		if _, err := ours.List(t.Context(), ""); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("a bad name: %v", err)
		}
	})
}

// A transaction and a Locker take the same lock of a name.
func TestAcquireTxBesideLocker(t *testing.T) {
	dbtest.On(t, postgresOnly, func(t *testing.T, db *dbtest.DB) {
		l, err := advisory.New(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		held, err := l.Acquire(t.Context(), "job")
		if err != nil {
			t.Fatal(err)
		}
		tx := beginners(t, db)["pgx"](0)
		var refused *lock.HeldError
		if err := advisory.TryAcquireTx(t.Context(), tx.Tx, "job"); !errors.As(err, &refused) || refused.Holder.PID == 0 || !strings.HasPrefix(refused.Holder.Label, "connection ") {
			t.Errorf("beside a Locker that holds it: %v", err)
		}
		if err := held.Release(context.Background()); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := advisory.AcquireTx(ctx, tx.Tx, "job"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.Acquire(t.Context(), "job", lock.Try()); !errors.Is(err, lock.ErrHeld) {
			t.Errorf("a Locker beside a transaction that holds it: %v", err)
		}
		if err := tx.commit(); err != nil {
			t.Fatal(err)
		}
		if held, err = l.Acquire(t.Context(), "job", lock.Try()); err != nil {
			t.Fatal(err)
		}
		if err := held.Release(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
