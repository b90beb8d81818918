package lock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// Three programs on a real database. Each leader is taken away by a shutdown, and then
// another leads; the last loses its lock, and is elected again. There are never two.
func TestElectionOnDatabases(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		if err := migrations.Up(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		t.Run("sqllock", func(t *testing.T) {
			var last *sqllock.Locker
			elect(t, func() lock.Locker {
				l, err := sqllock.New(t.Context(), db.Another(t).DB)
				if err != nil {
					t.Fatal(err)
				}
				last = l
				return l
			}, func(l *lock.Lock) {
				if err := last.ForceRelease(t.Context(), l.Name(), l.Token()); err != nil {
					t.Error(err)
				}
			})
		})
		if db.Kind() != sqldb.SQLite {
			t.Run("advisory", func(t *testing.T) {
				elect(t, func() lock.Locker {
					l, err := advisory.New(t.Context(), db.Another(t).DB)
					if err != nil {
						t.Fatal(err)
					}
					return l
				}, nil)
			})
		}
	})
}

func elect(t *testing.T, locker func() lock.Locker, lose func(l *lock.Lock)) {
	const patience = 30 * time.Second
	type term struct {
		candidate int
		l         *lock.Lock
	}
	terms := make(chan term, 10)
	var leading atomic.Int32
	var stops [3]context.CancelFunc
	var answers [3]<-chan error
	for i := range stops {
		l := locker()
		t.Cleanup(func() { _ = l.Close() })
		e := election(t, l, lock.TTL(2*time.Second))
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		stops[i] = stop
		answers[i] = campaign(ctx, e, func(ctx context.Context, l *lock.Lock) error {
			if leading.Add(1) != 1 {
				t.Error("two leaders")
			}
			defer leading.Add(-1)
			terms <- term{i, l}
			return untilDone(ctx, l)
		})
	}
	next := func() term {
		t.Helper()
		select {
		case n := <-terms:
			return n
		case <-time.After(patience):
			t.Fatal("nobody is elected")
			return term{}
		}
	}
	end := func(i int) {
		t.Helper()
		stops[i]()
		select {
		case err := <-answers[i]:
			if !errors.Is(err, context.Canceled) {
				t.Errorf("Run returned %v", err)
			}
		case <-time.After(patience):
			t.Fatal("Run does not return")
		}
	}
	seen := map[int]bool{}
	var now term
	for range stops {
		now = next()
		if seen[now.candidate] {
			t.Errorf("%d leads again", now.candidate)
		}
		seen[now.candidate] = true
		if len(seen) < len(stops) {
			end(now.candidate)
		}
	}
	if lose != nil {
		lose(now.l)
		again := next() // its fn has returned, without ending Run
		if again.l.Token() <= now.l.Token() {
			t.Errorf("the token went from %d to %d", now.l.Token(), again.l.Token())
		}
	}
	end(now.candidate)
}
