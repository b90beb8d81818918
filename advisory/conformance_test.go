package advisory_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
	"github.com/sqlnative/locks/sqldb"
)

// subject is the server of db. Its Lockers share the pool; each has a line of its own
// that can be cut.
func subject(t testing.TB, db *dbtest.DB) locktest.Subject {
	t.Helper()
	handle, counter := dbtest.Count(db.DB)
	var mu sync.Mutex
	var sent int64
	lines := map[lock.Locker]*dbtest.Line{}
	cut := func(how dbtest.LineState) func(testing.TB, lock.Locker) func() {
		return func(_ testing.TB, l lock.Locker) func() {
			mu.Lock()
			defer mu.Unlock()
			line := lines[l]
			line.Set(how)
			return func() { line.Set(dbtest.Whole) }
		}
	}
	s := locktest.Subject{
		New: func(t testing.TB, opts ...lock.Option) lock.Locker {
			t.Helper()
			line := &dbtest.Line{}
			l, err := advisory.New(context.Background(), handle.Wrap(line.Wrap), append([]lock.Option{advisory.Connections(3)}, opts...)...)
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			lines[l] = line
			return l
		},
		Shared: db.Kind() == sqldb.Postgres,
		Steal: func(t testing.TB, name string, _ int64) {
			kill(t, db, sessionOf(t, db, name))
		},
		Faults: []locktest.Fault{{Name: "gone", Break: cut(dbtest.Gone)}, {Name: "paused", Break: cut(dbtest.Paused), Silent: true}},
		Statements: func() int64 {
			mu.Lock()
			defer mu.Unlock()
			sent += int64(len(counter.Take()))
			return sent
		},
	}
	if db.Kind().InnoDB() {
		s.TTL, s.MinTTL = time.Second, time.Second
	}
	return s
}

// roomy opens the same database with room for many Lockers at once.
func roomy(t testing.TB, db *dbtest.DB) *dbtest.DB {
	t.Helper()
	if db.Pool != nil {
		other := *db
		other.DB = db.Limited(t, 60)
		return &other
	}
	db.SQL.SetMaxOpenConns(60)
	return db
}

func TestConformance(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel() // it waits, most of the time
		locktest.Run(t, subject(t, roomy(t, db)))
	})
}
