package sqllock_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

func TestForceRelease(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		var stats lock.Stats
		a, b := table(t, db, lock.TTL(900*time.Millisecond), lock.WithTrace(stats.Trace())), locker(t, db.Another(t).DB)
		k := must(t, a, "job")
		for _, token := range []int64{0, k.Token() - 1, k.Token() + 1} {
			if err := b.ForceRelease(t.Context(), "job", token); !errors.Is(err, lock.ErrLost) {
				t.Errorf("token %d: %v", token, err)
			}
		}
		if err := b.ForceRelease(t.Context(), "other", k.Token()); !errors.Is(err, lock.ErrLost) {
			t.Error(err)
		}
		if err := b.ForceRelease(t.Context(), "job", k.Token()); err != nil {
			t.Fatal(err)
		}
		m := must(t, b, "job", lock.Try())
		if m.Token() <= k.Token() {
			t.Errorf("token %d after %d", m.Token(), k.Token())
		}
		<-k.Done()                                                                       // its renewal tells it, before its lease could have told
		eventually(t, "the Trace is told", func() bool { return stats.Lost.Load() > 0 }) // just after Done
		if !errors.Is(k.Err(), lock.ErrLost) || stats.Lost.Load() != 1 || !strings.Contains(k.Err().Error(), "another's") {
			t.Errorf("%v, %d", k.Err(), stats.Lost.Load())
		}
		if err := b.ForceRelease(t.Context(), "job", k.Token()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("once more: %v", err)
		}
		release(t, m)
	})
}

// What is renewed at the very moment is released all the same.
func TestForceReleaseBesideRenewals(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		a := table(t, db, lock.TTL(lock.MinTTL))
		for range 20 {
			k := must(t, a, "job")
			time.Sleep(lock.MinTTL / 3) // about now
			err := a.ForceRelease(t.Context(), "job", k.Token())
			if lapsed := errors.Is(err, lock.ErrLost) && k.Err() != nil; err != nil && !lapsed { // a slow machine
				t.Error(err)
			}
			_ = k.Release(t.Context())
		}
	})
}

func TestGC(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		if _, err := l.GC(t.Context(), time.Second); !errors.Is(err, lock.ErrInvalid) {
			t.Error(err)
		}
		k := must(t, l, "held")
		var rows []string
		for i := range 2500 { // made by hand: they have never been freed, and were long ago
			rows = append(rows, fmt.Sprintf("('old %d', 'owner', 7)", i))
		}
		db.MustExec(t, "INSERT INTO "+db.Table("locks")+" (name, owner, token) VALUES "+strings.Join(rows, ", "))
		release(t, must(t, l, "young"))
		crashed := must(t, l, "crashed", lock.NoRenew(), lock.TTL(lock.MinTTL))
		<-crashed.Done()
		if n, err := l.GC(t.Context(), time.Hour); err != nil || n != 2500 {
			t.Errorf("%d rows, %v", n, err)
		}
		expired(t, db, "crashed")
		time.Sleep(2 * time.Millisecond)
		if n, err := l.GCOlderThan(t.Context(), 0); err != nil || n != 2 {
			t.Errorf("%d rows, %v", n, err)
		}
		if err := inTx(t, db, func(tx *sqldb.Tx) error { return k.Guard(t.Context(), tx) }); err != nil {
			t.Error(err)
		}
		release(t, k)
	})
}

func TestList(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		if all, err := l.List(t.Context()); err != nil || len(all) != 0 {
			t.Errorf("%+v, %v", all, err)
		}
		one := must(t, l, "one", lock.Label("first"), lock.TTL(time.Minute))
		release(t, must(t, l, "free"))
		must(t, l, "a", lock.NoRenew(), lock.TTL(time.Hour))
		all, err := l.List(t.Context())
		if err != nil || len(all) != 2 || all[0].Name != "a" || all[1].Name != "one" {
			t.Fatalf("%+v, %v", all, err)
		}
		i := all[1]
		if i.Token != one.Token() || i.Owner != one.Owner() || i.Holder.Label != "first" || i.Holder.PID == 0 || i.Since.IsZero() || i.Left < 50*time.Second || i.Left > time.Minute {
			t.Errorf("%+v", i)
		}
	})
}
