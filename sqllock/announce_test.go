package sqllock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
)

// about are the statements about waiters.
func about(c *dbtest.Counter) (shows, hides int) {
	for _, q := range c.Take() {
		switch {
		case !strings.Contains(q, "tickets"):
		case strings.Contains(q, "DELETE"):
			hides++
		default:
			shows++
		}
	}
	return shows, hides
}

// A wait is shown by one statement, and one when it ends; what is short, or is not to
// be shown, by none.
func TestShowCounts(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		other := table(t, db)
		k := must(t, other, "job")
		counting, c := dbtest.Count(db.Another(t).DB)
		wait := func(l lock.Locker) {
			t.Helper()
			refused(t, l, "job")
			release(t, must(t, l, "free", lock.Try()))
			if _, err := l.Acquire(t.Context(), "job", lock.Wait(300*time.Millisecond)); err == nil {
				t.Fatal("it was granted")
			}
		}
		for what, tt := range map[string]struct {
			show  bool
			after time.Duration
			want  int
		}{"short": {true, time.Minute, 0}, "not shown": {false, 20 * time.Millisecond, 0}, "shown": {true, 20 * time.Millisecond, 1}} {
			l := locker(t, counting)
			if tt.show {
				l = shower(t, counting, 0, 0)
			}
			l.ShowAfter(tt.after, time.Hour)
			c.Take()
			wait(l)
			if err := l.Close(); err != nil {
				t.Error(err)
			}
			if shows, hides := about(c); shows != tt.want || hides != tt.want {
				t.Errorf("%s: %d rows were written and %d removed, want %d", what, shows, hides, tt.want)
			}
		}
		// The defaults: a second, and 15 of them.
		if after, ttl := shower(t, db.DB, 1, 1).ShowDefaults(); after != time.Second || ttl != 15*time.Second {
			t.Errorf("%v, %v", after, ttl)
		}
		release(t, k)
	})
}

// All who wait at one Locker are shown by one statement for each interval.
func TestShowManyByOneStatement(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		const n = 60
		const ttl = 1500 * time.Millisecond
		other := table(t, db)
		k := must(t, other, "job")
		counting, c := dbtest.Count(db.Another(t).DB)
		l := shower(t, counting, 20*time.Millisecond, ttl)
		ctx, cancel := context.WithCancel(t.Context())
		var all []<-chan error
		for range n {
			all = append(all, waits(ctx, l, "job"))
		}
		shown(t, other, n)
		c.Take()
		begun := time.Now()
		for time.Since(begun) < 3*time.Second {
			time.Sleep(50 * time.Millisecond)
			if got := shown(t, other, n); len(got) != n {
				t.Fatal(len(got))
			}
		}
		shows, _ := about(c)
		if most := int(time.Since(begun)/(ttl/3)) + 2; shows > most || shows < 2 {
			t.Errorf("%d statements, at most %d are allowed", shows, most)
		}
		cancel()
		for _, done := range all {
			if err := <-done; !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		}
		eventually(t, "the rows are gone", func() bool { return tickets(t, db) == 0 })
		if _, hides := about(c); hides < 1 || hides > n/2 {
			t.Errorf("%d statements have removed %d rows", hides, n)
		}
		release(t, k)
	})
}

// What cannot be shown is not, and waits, is granted and closes as ever.
func TestShowFails(t *testing.T) {
	waitFor := func(t *testing.T, db *dbtest.DB, handle *sqldb.DB) {
		counting, c := dbtest.Count(handle)
		k := must(t, locker(t, db.DB), "job")
		l := shower(t, counting, 0, 300*time.Millisecond)
		done := waits(t.Context(), l, "job")
		tried := 0
		eventually(t, "it was tried", func() bool { n, _ := about(c); tried += n; return tried > 0 })
		time.Sleep(600 * time.Millisecond) // several intervals
		release(t, k)
		if err := soon(t, "the grant", func() error { return <-done }); err != nil {
			t.Error(err)
		}
		if err := soon(t, "Close", l.Close); err != nil {
			t.Error(err)
		}
		if n, hides := about(c); tried+n != 1 || hides != 0 {
			t.Errorf("it was asked for %d times, and hidden %d times", tried+n, hides)
		}
	}
	t.Run("missing", func(t *testing.T) {
		dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
			t.Parallel()
			l := table(t, db)
			db.MustExec(t, "DROP TABLE "+db.Table("tickets"))
			waitFor(t, db, db.DB)
			if _, err := l.Waiters(t.Context()); !errors.Is(err, lock.ErrNotMigrated) {
				t.Error(err)
			}
			if n, err := l.GC(t.Context(), time.Minute); err != nil || n != 0 {
				t.Errorf("GC: %d, %v", n, err)
			}
		})
	})
	t.Run("denied", func(t *testing.T) {
		dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
			t.Parallel()
			table(t, db)
			waitFor(t, db, without(t, db, "tickets"))
		})
	})
}

// without is the database as a user has it who may not write to one table.
func without(t *testing.T, db *dbtest.DB, base string) *sqldb.DB {
	t.Helper()
	user := fmt.Sprintf("sqllock_%d", rand.Uint32())
	if db.Kind() == sqldb.Postgres {
		db.MustExec(t, "CREATE ROLE "+user, "GRANT USAGE ON SCHEMA "+db.Schema()+" TO "+user,
			"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "+db.Schema()+" TO "+user, "REVOKE INSERT, UPDATE, DELETE ON "+db.Table(base)+" FROM "+user)
		t.Cleanup(func() {
			if _, err := db.SQL.Exec("DROP OWNED BY " + user + "; DROP ROLE " + user); err != nil {
				t.Error(err)
			}
		})
		return withSetting(t, db, "role", user).DB
	}
	db.MustExec(t, "CREATE USER "+user+" IDENTIFIED BY 'pw'", "GRANT SELECT ON "+db.Schema()+".* TO "+user, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+db.Table("locks")+" TO "+user)
	t.Cleanup(func() {
		if _, err := db.SQL.Exec("DROP USER " + user); err != nil {
			t.Error(err)
		}
	})
	handle, err := mysqldb.New(t.Context(), db.OpenSQL(t, func(c *mysql.Config) { c.User, c.Passwd = user, "pw" }))
	if err != nil {
		t.Fatal(err)
	}
	return handle
}

// A table of tickets that does not answer, since somebody has locked it, keeps nobody
// waiting, also where the pool has one connection.
func TestShowHangs(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		other := table(t, db)
		for _, conns := range []int{1, 4} {
			k := must(t, other, "job")
			c, err := db.SQL.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			do := func(query string) {
				t.Helper()
				if _, err := c.ExecContext(context.Background(), query); err != nil {
					t.Error(err)
				}
			}
			end := "UNLOCK TABLES"
			if db.Kind() == sqldb.Postgres {
				end = "ROLLBACK"
				do("BEGIN")
				do("LOCK TABLE " + db.Table("tickets") + " IN ACCESS EXCLUSIVE MODE")
			} else {
				do("LOCK TABLES " + db.Table("tickets") + " WRITE")
			}
			unlock := sync.OnceFunc(func() { do(end); _ = c.Close() })
			t.Cleanup(unlock)
			counting, count := dbtest.Count(db.Limited(t, conns))
			l := shower(t, counting, 0, time.Minute)
			begun := time.Now()
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			done := waits(ctx, l, "job")
			tried := 0
			eventually(t, "it is to be shown", func() bool { n, _ := about(count); tried += n; return tried > 0 })
			// Those who come behind it are not tried one after the other, each in vain.
			behind := waits(ctx, l, "job")
			time.Sleep(1500 * time.Millisecond)
			third := waits(ctx, l, "job")
			time.Sleep(100 * time.Millisecond)
			release(t, k)
			for _, d := range []<-chan error{done, behind, third} {
				if err := <-d; err != nil {
					t.Errorf("%d connections: %v", conns, err)
				}
			}
			took := time.Since(begun)
			if shows, hides := about(count); tried+shows != 1 || hides > 1 {
				t.Errorf("%d connections: a table that does not answer was asked %d and %d times", conns, tried+shows, hides)
			}
			if err := soon(t, "Close", l.Close); err != nil {
				t.Error(err)
			}
			t.Logf("%d connections: granted after %v, closed after %v", conns, took, time.Since(begun))
			unlock()
			db.MustExec(t, "DELETE FROM "+db.Table("tickets"))
		}
	})
}

// A database that is gone, or does not answer, keeps neither the waiting nor Close for
// longer than it does anyway.
func TestShowLineIsCut(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		other := table(t, db)
		k := must(t, other, "job")
		for _, state := range []dbtest.LineState{dbtest.Gone, dbtest.Paused} {
			var line dbtest.Line
			l := shower(t, db.Another(t).DB.Wrap(line.Wrap), 0, 300*time.Millisecond)
			ctx, cancel := context.WithCancel(t.Context())
			done := waits(ctx, l, "job")
			shown(t, other, 1)
			line.Set(state)
			shown(t, other, 0) // it expires
			cancel()
			if err := soon(t, "the waiter", func() error { return <-done }); err == nil {
				t.Error("granted")
			}
			begun := time.Now()
			_ = l.Close()
			if took := time.Since(begun); took > lock.ReleaseBound+time.Second {
				t.Errorf("Close took %v", took)
			}
			line.Set(dbtest.Whole)
			db.MustExec(t, "DELETE FROM "+db.Table("tickets"))
		}
		release(t, k)
	})
}

// With a pool of one connection, those who wait and what shows them share it.
func TestShowPoolOfOne(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		other := table(t, db)
		k := must(t, other, "job")
		l := shower(t, db.Limited(t, 1), 0, 3*time.Second)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var all []<-chan error
		for range 8 {
			all = append(all, waits(ctx, l, "job"))
		}
		shown(t, other, 8)
		release(t, k)
		for _, done := range all {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if err := l.Close(); err != nil || tickets(t, db) != 0 {
			t.Errorf("%v, %d rows", err, tickets(t, db))
		}
	})
}

// Waits of all lengths, at several Lockers, that end in all ways: no row stays.
func TestShowRaces(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		table(t, db)
		var wg sync.WaitGroup
		for range 3 {
			l := shower(t, db.Another(t).DB, time.Millisecond, 30*time.Millisecond)
			l.ShowBound(patience) // a row stays whose removal takes longer, as it does beside so many
			for range 6 {
				wg.Go(func() {
					for range 15 {
						ctx, cancel := context.WithTimeout(t.Context(), time.Duration(rand.IntN(60))*time.Millisecond)
						k, err := l.Acquire(ctx, fmt.Sprint(rand.IntN(3)), lock.Wait(time.Duration(1+rand.IntN(60))*time.Millisecond))
						if err == nil {
							time.Sleep(time.Duration(rand.IntN(10)) * time.Millisecond)
							_ = k.Release(t.Context())
						}
						cancel()
					}
				})
			}
		}
		wg.Wait()
		eventually(t, "no row is there", func() bool { return tickets(t, db) == 0 })
	})
}
