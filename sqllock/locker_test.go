package sqllock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// table makes the tables and a Locker on them.
func table(t testing.TB, db *dbtest.DB, opts ...lock.Option) *sqllock.Locker {
	t.Helper()
	if err := migrations.Up(context.Background(), db.DB); err != nil {
		t.Fatal(err)
	}
	return locker(t, db.DB, opts...)
}

// locker makes one more Locker.
func locker(t testing.TB, db *sqldb.DB, opts ...lock.Option) *sqllock.Locker {
	t.Helper()
	l, err := sqllock.New(context.Background(), db, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l
}

func TestSmoke(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		ctx := t.Context()
		a := table(t, db, lock.TTL(1500*time.Millisecond))
		b := locker(t, db.Another(t).DB)
		l, err := a.Acquire(ctx, "job", lock.Label("me"))
		if err != nil {
			t.Fatal(err)
		}
		_, err = b.Acquire(ctx, "job", lock.Try())
		var held *lock.HeldError
		if !errors.As(err, &held) || held.Holder.Label != "me" || held.Token != l.Token() {
			t.Fatalf("the answer is %v", err)
		}
		t.Log(err)
		begun := time.Now()
		_, err = b.Acquire(ctx, "job", lock.Wait(4500*time.Millisecond)) // three TTLs: it is renewed
		if !errors.Is(err, lock.ErrHeld) || l.Err() != nil {
			t.Fatalf("after %v: %v, %v", time.Since(begun), err, l.Err())
		}
		err = db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			if err := l.Guard(ctx, tx); err != nil {
				return err
			}
			return l.ReleaseIn(ctx, tx)
		})
		if err != nil || !errors.Is(l.Err(), lock.ErrReleased) {
			t.Fatal(err, l.Err())
		}
		m, err := b.Acquire(ctx, "job")
		if err != nil || m.Token() <= l.Token() {
			t.Fatal(err)
		}
		all, err := b.List(ctx)
		if err != nil || len(all) != 1 || all[0].Token != m.Token() || all[0].Owner != m.Owner() {
			t.Errorf("%v, %+v", err, all)
		}
		if err := a.ForceRelease(ctx, "job", m.Token()); err != nil {
			t.Error(err)
		}
		err = db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error { return m.Guard(ctx, tx) })
		if !errors.Is(err, lock.ErrLost) {
			t.Errorf("guard after the release was forced: %v", err)
		}
		if err := m.Release(ctx); !errors.Is(err, lock.ErrLost) {
			t.Errorf("release after it was forced: %v", err)
		}
		err = db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			if err := sqllock.AcquireTx(ctx, tx, "job"); err != nil {
				return err
			}
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		n, err := a.Acquire(ctx, "job", lock.NoRenew(), lock.TTL(200*time.Millisecond))
		if err != nil {
			t.Fatal(err)
		}
		if err := n.Extend(ctx, time.Minute); err != nil {
			t.Error(err)
		}
		if err := n.Release(ctx); err != nil {
			t.Error(err)
		}
		if _, err := a.GC(ctx, time.Hour); err != nil {
			t.Error(err)
		}
	})
}
