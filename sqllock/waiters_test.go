package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// shower is a Locker whose waiters are shown after so long, for so long.
func shower(t testing.TB, db *sqldb.DB, after, ttl time.Duration, opts ...lock.Option) *sqllock.Locker {
	t.Helper()
	l := locker(t, db, append(opts, sqllock.ShowWaiters())...)
	l.ShowAfter(after, ttl)
	return l
}

// waits begins to wait for a lock; what has become of it comes through the channel.
func waits(ctx context.Context, l lock.Locker, name string, opts ...lock.Option) <-chan error {
	done := make(chan error, 1)
	go func() {
		got, err := l.Acquire(ctx, name, opts...)
		if err == nil {
			err = got.Release(context.Background())
		}
		done <- err
	}()
	return done
}

// tickets is how many rows there are.
func tickets(t testing.TB, db *dbtest.DB) (n int) {
	t.Helper()
	if err := db.QueryRow(context.Background(), "SELECT count(*) FROM "+db.Table("tickets")).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}

// shown waits until so many are shown.
func shown(t testing.TB, l *sqllock.Locker, n int) (all []sqllock.Waiter) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d are shown", n), func() bool {
		var err error
		if all, err = l.Waiters(t.Context()); err != nil {
			t.Fatal(err)
		}
		return len(all) == n
	})
	return all
}

// Who waits is shown to others with who it is and since when, and no longer when its
// waiting has ended: with the grant, with Wait, with ctx, with the Locker.
func TestWaiters(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		other := table(t, db)
		if all, err := other.Waiters(t.Context()); err != nil || len(all) != 0 {
			t.Fatalf("nobody waits: %+v, %v", all, err)
		}
		const name, label = "a \"job\" \\ 'x' \u2028", "nightly \"report\" \\ ' é \u2028 \x01"
		var described lock.Holder
		for how, f := range map[string]func(l *sqllock.Locker, k *lock.Lock, cancel func()) (now bool){
			"granted":  func(_ *sqllock.Locker, k *lock.Lock, _ func()) bool { release(t, k); return false },
			"Wait":     func(*sqllock.Locker, *lock.Lock, func()) bool { return false },
			"ctx":      func(_ *sqllock.Locker, _ *lock.Lock, cancel func()) bool { cancel(); return false },
			"Close":    func(l *sqllock.Locker, _ *lock.Lock, _ func()) bool { _ = l.Close(); return true },
			"Shutdown": func(l *sqllock.Locker, _ *lock.Lock, _ func()) bool { _ = l.Shutdown(t.Context()); return true },
		} {
			k := must(t, other, name, lock.Label(label))
			l := shower(t, db.Limited(t, 4), 20*time.Millisecond, 2*time.Second)
			begun, err := db.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			wait := time.Minute
			if how == "Wait" {
				wait = 3 * time.Second
			}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			done := waits(ctx, l, name, lock.Wait(wait), lock.Label(label))
			w := shown(t, other, 1)[0]
			if described = refused(t, other, name).Holder; w.Name != name || w.Ticket != 0 || w.Holder != described || w.Holder.PID != os.Getpid() || w.Holder.Host == "" || w.Holder.Label != label {
				t.Errorf("%s: %+v, holder %+v", how, w, described)
			}
			// The clock of SQLite is in milliseconds.
			if after := w.Since.Sub(begun); after < -2*time.Millisecond || after > 10*time.Second {
				t.Errorf("%s: it waits since %v, and did not before %v", how, w.Since, begun)
			}
			if now := f(l, k, cancel); now && tickets(t, db) != 0 {
				t.Errorf("%s: its row is there", how)
			}
			if err := <-done; (err == nil) != (how == "granted") {
				t.Errorf("%s: %v", how, err)
			}
			eventually(t, how+": the row is gone", func() bool { return tickets(t, db) == 0 })
			_ = k.Release(t.Context())
		}
	})
}

// All who wait are shown, also those who stand behind others in the queue of their
// process; and for as long as they wait.
func TestWaitersOfOneProcess(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		other := table(t, db)
		one, two := must(t, other, "one"), must(t, other, "two")
		counting, c := dbtest.Count(db.Another(t).DB)
		l := shower(t, counting, 20*time.Millisecond, 3*time.Second)
		var all []<-chan error
		for i := range 6 {
			name := "one"
			if i == 0 {
				name = "two"
			}
			all = append(all, waits(t.Context(), l, name, lock.Label(fmt.Sprint(i))))
			shown(t, other, i+1)
		}
		before := shown(t, other, 6)
		eventually(t, "they have waited for a while", func() bool {
			now, err := db.Now(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return now.Sub(before[4].Since) > 3*time.Second // the last of them
		})
		db.MustExec(t, "DELETE FROM "+db.Table("tickets")) // they come again with the next interval
		shown(t, other, 6)
		about(c)
		for again, begun := 0, time.Now(); again < 3; time.Sleep(20 * time.Millisecond) {
			shows, _ := about(c)
			again += shows
			got, err := other.Waiters(t.Context())
			if err != nil || len(got) != 6 || time.Since(begun) > 30*time.Second {
				t.Fatalf("after %v: %+v, %v", time.Since(begun), got, err)
			}
			for i, w := range got {
				if label := []string{"1", "2", "3", "4", "5", "0"}[i]; w.Holder.Label != label {
					t.Errorf("%d: %+v", i, w)
				}
				// Who comes again has not begun to wait anew. (Since is as exact as the statement was
				// quick.)
				if w.Since.Sub(before[i].Since).Abs() > 2*time.Second {
					t.Fatalf("it waits since %v, and did since %v", w.Since, before[i].Since)
				}
			}
		}
		release(t, one)
		release(t, two)
		for _, done := range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		eventually(t, "all rows are gone", func() bool { return tickets(t, db) == 0 })
	})
}

// Who has waited for long enough is shown at once, however many are shown already, whose
// rows are to be moved on much later.
func TestNewcomerIsShown(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		other := table(t, db)
		k := must(t, other, "job")
		l := shower(t, db.Another(t).DB, 0, time.Hour)
		var all []<-chan error
		for i := range 8 {
			all = append(all, waits(t.Context(), l, "job"))
			shown(t, other, i+1)
		}
		release(t, k)
		for _, done := range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
	})
}

// What stands in a queue comes first, in its order. (Nothing writes such rows yet.)
func TestWaitersOrder(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		at := func(s int) string {
			switch db.Kind() {
			case sqldb.SQLite:
				return fmt.Sprintf("unixepoch() * 1000000 + %d", s*1000000)
			case sqldb.Postgres:
				return fmt.Sprintf("clock_timestamp() + interval '%d seconds'", s)
			}
			return fmt.Sprintf("UTC_TIMESTAMP(6) + INTERVAL %d SECOND", s)
		}
		for _, r := range []struct {
			name, label     string
			ticket, s, ends int
		}{
			{"b", "last", -5, -10, 60},
			{"b", "second", 10, -30, 60},
			{"b", "third", -9, -20, 60},
			{"b", "first", 9, -1, 60},
			{"a", "other", -1, 0, 60},
			{"b", "dead", 1, -60, -1},
			{"b", "dead", -2, -60, -1},
		} {
			db.MustExec(t, fmt.Sprintf(`INSERT INTO %s (name, ticket, owner, created_at, expires_at, holder) VALUES ('%s', %d, 'x', %s, %s, '{"label":"%s"}')`,
				db.Table("tickets"), r.name, r.ticket, at(r.s), at(r.ends), r.label))
		}
		all, err := l.Waiters(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := ""
		for _, w := range all {
			got += fmt.Sprintf("%s %s %d, ", w.Name, w.Holder.Label, w.Ticket)
		}
		if got != "a other 0, b first 9, b second 10, b third 0, b last 0, " {
			t.Error(got)
		}
		if n, err := l.GCOlderThan(t.Context(), 0); err != nil || n != 0 || tickets(t, db) != 6 {
			t.Errorf("%d, %v, %d: it removes what has expired, but for places in a queue", n, err, tickets(t, db))
		}
	})
}

// A waiter that is killed is not shown any more when its row has expired; GC removes
// it, and leaves those alone who live.
func TestWaiterIsKilled(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		other := table(t, db)
		k := must(t, other, "job")
		const ttl = time.Second
		child := locktest.Start(t, "wait", db.Kind().String(), db.DSN, ttl.String())
		pid := child.Expect("waits")
		if w := shown(t, other, 1)[0]; fmt.Sprint(w.Holder.PID) != pid || w.Holder.Label != "child" {
			t.Errorf("%+v, the child is %s", w, pid)
		}
		child.Kill()
		killed := time.Now()
		l := shower(t, db.Another(t).DB, 0, ttl)
		done := waits(t.Context(), l, "job", lock.Label("alive"))
		eventually(t, "only the other is shown", func() bool {
			all, err := other.Waiters(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return len(all) == 1 && all[0].Holder.Label == "alive"
		})
		if took := time.Since(killed); took > ttl+5*time.Second { // a machine that does other things
			t.Errorf("it took %v; its row is for %v", took, ttl)
		}
		if n := tickets(t, db); n != 2 {
			t.Errorf("%d rows", n)
		}
		if n, err := other.GC(t.Context(), time.Minute); err != nil || n != 0 || tickets(t, db) != 1 {
			t.Errorf("GC: %d locks, %v; %d rows of waiters are left", n, err, tickets(t, db))
		}
		release(t, k)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// waitChild is a process that waits for a lock, and is shown.
func waitChild(args []string) int {
	ctx := context.Background()
	db, _, err := dbtest.Open(ctx, args[0], args[1])
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	locker, err := sqllock.New(ctx, db, sqllock.ShowWaiters())
	if err != nil {
		fmt.Println("error", err)
		return 1
	}
	ttl, _ := time.ParseDuration(args[2])
	locker.ShowAfter(0, ttl)
	fmt.Println("waits", os.Getpid())
	_, err = locker.Acquire(ctx, "job", lock.Label("child"))
	fmt.Println("error", err)
	return 1
}

// The option is this strategy's, and not that of transactions.
func TestShowWaitersRefused(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres, sqldb.SQLite}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		release(t, must(t, l, "job", sqllock.ShowWaiters(), lock.Try()))
		err := inTx(t, db, func(tx *sqldb.Tx) error { return sqllock.AcquireTx(t.Context(), tx, "job", sqllock.ShowWaiters()) })
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "ShowWaiters") {
			t.Error(err)
		}
		if _, err := advisory.New(t.Context(), db.DB, sqllock.ShowWaiters()); !errors.Is(err, errors.ErrUnsupported) {
			t.Error(err)
		}
	})
}
