package sqllock_test

import (
	"errors"
	"os"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

func TestNoRenew(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		a, b := table(t, db), locker(t, db.Another(t).DB)
		k := must(t, a, "job", lock.NoRenew(), lock.TTL(3*time.Second))
		refused(t, b, "job")
		<-k.Done()
		if !errors.Is(k.Err(), lock.ErrLost) {
			t.Error(k.Err())
		}
		release(t, must(t, b, "job")) // it comes free by itself
		if err := k.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
	})
}

// AtMost ends a live holder, and costs no renewals that cannot help.
func TestAtMost(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		var stats lock.Stats
		a, b := table(t, db, lock.TTL(600*time.Millisecond), lock.WithTrace(stats.Trace())), locker(t, db.Another(t).DB)
		begun := time.Now()
		k := must(t, a, "job", lock.AtMost(1500*time.Millisecond))
		granted := time.Now()
		if err := k.Extend(t.Context(), time.Minute); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("Extend: %v", err)
		}
		if until, ok := k.Until(); !ok || until.After(granted.Add(1500*time.Millisecond)) {
			t.Errorf("it is trusted until %v after it was granted", until.Sub(granted))
		}
		within(t, "it ended", granted, 1500*time.Millisecond, k.Done())
		if took := time.Since(begun); took < 900*time.Millisecond {
			t.Errorf("it ended after %v", took)
		}
		m := must(t, b, "job")
		if took := time.Since(begun); took < 1400*time.Millisecond {
			t.Errorf("others had it after %v", took)
		}
		if stats.Renewed.Load() == 0 || stats.RenewFailed.Load() != 0 || !errors.Is(k.Err(), lock.ErrLost) {
			t.Errorf("%d renewals, %d failed, %v", stats.Renewed.Load(), stats.RenewFailed.Load(), k.Err())
		}
		release(t, m)
	})
}

func TestHoldAtLeast(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		a := table(t, db)
		k := must(t, a, "job", lock.HoldAtLeast(time.Hour))
		release(t, k)
		if e := refused(t, a, "job"); e.Left < 50*time.Minute {
			t.Errorf("after the release: %v", e)
		}
		if n, err := a.GCOlderThan(t.Context(), 0); err != nil || n != 0 {
			t.Errorf("gc removed %d rows, %v", n, err)
		}
		all, err := a.List(t.Context())
		if err != nil || len(all) != 1 || all[0].Left < 50*time.Minute {
			t.Errorf("%+v, %v", all, err)
		}
		if err := a.ForceRelease(t.Context(), "job", k.Token()); err != nil {
			t.Error(err)
		}
		release(t, must(t, a, "job", lock.Try()))
	})
}

func TestHeldErrorTellsHolder(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		a := table(t, db)
		k := must(t, a, "job", lock.Label("import of June"), lock.TTL(time.Minute))
		for _, opts := range [][]lock.Option{{lock.Try()}, {lock.Wait(time.Nanosecond)}, {lock.Wait(50 * time.Millisecond)}} {
			_, err := a.Acquire(t.Context(), "job", opts...)
			var e *lock.HeldError
			if !errors.As(err, &e) {
				t.Fatal(err)
			}
			if e.Holder.Label != "import of June" || e.Holder.PID != os.Getpid() || e.Token != k.Token() || e.Left < 50*time.Second || e.Left > time.Minute || e.Err != nil {
				t.Errorf("%+v", e)
			}
			if age := time.Since(e.Since); age < -time.Minute || age > time.Minute {
				t.Errorf("since %v", e.Since)
			}
		}
		release(t, k)
	})
}

func TestReentrant(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		a, b := table(t, db), locker(t, db.Another(t).DB)
		k := must(t, a, "job")
		ctx := k.Context(t.Context())
		if _, err := a.Acquire(ctx, "job"); !errors.Is(err, lock.ErrDeadlock) {
			t.Error(err)
		}
		again, err := a.Acquire(ctx, "job", lock.Reentrant())
		if err != nil {
			t.Fatal(err)
		}
		err = inTx(t, db, func(tx *sqldb.Tx) error { return again.ReleaseIn(t.Context(), tx) })
		if !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("ReleaseIn of one handle of two: %v", err)
		}
		release(t, k)
		refused(t, b, "job")
		release(t, again)
		release(t, must(t, b, "job", lock.Try()))
	})
}

// ReleaseIn frees with the commit; after a rollback the lock is left to its TTL.
func TestReleaseIn(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		a, b := table(t, db), locker(t, db.Another(t).DB)
		k := must(t, a, "job")
		raw, tx := openTx(t, db, 0)
		if err := errors.Join(k.Guard(t.Context(), tx), k.ReleaseIn(t.Context(), tx)); err != nil {
			t.Fatal(err)
		}
		refused(t, b, "job")
		if err := raw.Commit(); err != nil || !errors.Is(k.Err(), lock.ErrReleased) {
			t.Error(err, k.Err())
		}
		k = must(t, b, "job", lock.TTL(time.Second))
		raw, tx = openTx(t, db, 0)
		if err := k.ReleaseIn(t.Context(), tx); err != nil {
			t.Fatal(err)
		}
		_ = raw.Rollback()
		if e := refused(t, a, "job"); e.Token != k.Token() {
			t.Error(e)
		}
		release(t, must(t, a, "job")) // not renewed any more
	})
}

func TestAttach(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		a, b := table(t, db), locker(t, db.Another(t).DB)
		k := must(t, a, "job", lock.NoRenew(), lock.TTL(time.Minute))
		m, err := b.Attach(t.Context(), "job", k.Owner(), k.Token())
		if err != nil {
			t.Fatal(err)
		}
		if m.Token() != k.Token() || m.Owner() != k.Owner() || m.Err() != nil {
			t.Errorf("%+v", m)
		}
		if err := m.Extend(t.Context(), time.Hour); err != nil {
			t.Error(err)
		}
		if e := refused(t, b, "job"); e.Left < 50*time.Minute {
			t.Errorf("after Extend: %v", e)
		}
		if err := inTx(t, db, func(tx *sqldb.Tx) error { return m.Guard(t.Context(), tx) }); err != nil {
			t.Error(err)
		}
		for what, id := range map[string]struct {
			name, owner string
			token       int64
		}{"name": {"other", k.Owner(), k.Token()}, "owner": {"job", "other", k.Token()}, "token": {"job", k.Owner(), k.Token() + 1}} {
			if _, err := b.Attach(t.Context(), id.name, id.owner, id.token); !errors.Is(err, lock.ErrLost) {
				t.Errorf("another %s: %v", what, err)
			}
		}
		if err := b.Close(); err != nil || k.Err() != nil {
			t.Error(err, k.Err())
		}
		if e := refused(t, a, "job"); e.Token != k.Token() {
			t.Error("Close has released what was only attached")
		}
		release(t, m)
		if err := k.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("the first handle: %v", err)
		}
		if _, err := a.Attach(t.Context(), "job", k.Owner(), k.Token()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("a released lock: %v", err)
		}
	})
}

// Extend beside renewals: whichever is carried out last, what is trusted is there.
func TestExtendBesideRenewal(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const ttl = time.Second
		var stats lock.Stats
		a := table(t, db, lock.TTL(ttl), lock.WithTrace(stats.Trace()))
		k := must(t, a, "job")
		for begun := time.Now(); time.Since(begun) < 4*ttl; {
			for _, d := range []time.Duration{time.Hour, ttl} {
				if err := k.Extend(t.Context(), d); err != nil {
					t.Fatal(err)
				}
				left := refused(t, a, "job").Left
				if until, ok := k.Until(); !ok || time.Until(until) > left {
					t.Fatalf("extended to %v, %v are trusted, and %v are left", d, time.Until(until), left)
				}
				// A statement that was given up may be carried out later: then less is trusted.
				if stats.RenewFailed.Load() == 0 && (d == time.Hour && left < 50*time.Minute || d == ttl && left > ttl) {
					t.Fatalf("extended to %v, and %v are left", d, left)
				}
			}
		}
		release(t, k)
		if err := k.Extend(t.Context(), ttl); !errors.Is(err, lock.ErrReleased) {
			t.Error(err)
		}
	})
}
