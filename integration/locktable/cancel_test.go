package locktable_test

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// Acquires that are cancelled at any moment, over a slow network that breaks now and then, leave no lock behind, and
// never two holders.
func TestCancelledAcquireLeavesNothing(t *testing.T) {
	servers(t, func(t *testing.T, fl flavour, fresh *dbtest.DB) {
		p, dsn := behind(t, fresh)
		const ttl = time.Second
		a, direct := locker(t, fl.open(t, dsn, 8), lock.TTL(ttl)), locker(t, fresh.DB)
		const names = 12
		var inside [names]atomic.Int32
		var granted, refused atomic.Int64
		p.Latency(200 * time.Microsecond)
		p.Faults(func() bool { return rand.N(400) == 0 })
		until, last := time.Now().Add(3*time.Second), time.Now().Add(20*time.Second)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				for time.Now().Before(until) || granted.Load() == 0 && time.Now().Before(last) {
					n := rand.N(names)
					// Some end while the connection is made, some while the statement runs, some never.
					ctx, cancel := context.WithTimeout(t.Context(), rand.N([]time.Duration{10 * time.Millisecond, 300 * time.Millisecond, 3 * time.Second}[rand.N(3)]))
					l, err := a.Acquire(ctx, fmt.Sprint("name ", n))
					if err != nil {
						refused.Add(1)
						cancel()
						continue
					}
					granted.Add(1)
					if others := inside[n].Add(1); others != 1 && l.Err() == nil {
						t.Errorf("%d hold one lock", others)
					}
					inside[n].Add(-1)
					_ = l.Release(ctx) // what a broken network does not let through is left to the TTL
					cancel()
				}
			})
		}
		wg.Wait()
		p.Faults(nil)
		p.Latency(0)
		if granted.Load() == 0 || refused.Load() == 0 {
			t.Errorf("%d granted, %d refused: the test tests nothing", granted.Load(), refused.Load())
		}
		t.Logf("%d granted, %d refused", granted.Load(), refused.Load())
		allFree(t, direct, names, ttl+2*slack)
	})
}

func allFree(t *testing.T, l *sqllock.Locker, names int, d time.Duration) {
	t.Helper()
	deadline := time.Now().Add(d)
	for n := range names {
		var err error
		if !within(time.Until(deadline), func() bool {
			var got *lock.Lock
			if got, err = l.Acquire(t.Context(), fmt.Sprint("name ", n), lock.Try()); err == nil {
				release(t, got)
			}
			return err == nil
		}) {
			t.Errorf("it was left behind: %v", err)
		}
	}
}

// words are the forms that a text may have in a statement: as it is, or in hexadecimal.
func words(text string) [][]byte {
	return [][]byte{[]byte(text), []byte(hex.EncodeToString([]byte(text)))}
}

// The server has done what it was asked, and its answer is cut off: whatever Acquire, a renewal and Release say then
// has to be true.
func TestAnswerIsCutOff(t *testing.T) {
	servers(t, func(t *testing.T, fl flavour, fresh *dbtest.DB) {
		ctx := t.Context()
		p, dsn := behind(t, fresh)
		var l lease
		l.ttl = 900 * time.Millisecond
		a, direct := locker(t, fl.open(t, dsn, 8), lock.TTL(l.ttl)), locker(t, fresh.DB)
		before := acquire(t, a, "name 0") // the row is there
		release(t, before)

		done := p.CutAnswer(words("mark this one")...)
		mine, err := a.Acquire(ctx, "name 0", lock.Label("mark this one"), lock.WithTrace(l.trace()))
		if err != nil {
			t.Fatalf("the server has granted it, and could be asked: %v", err)
		}
		happened(t, done)
		isHeld(t, direct, mine)
		if err := guarded(ctx, fresh.DB, mine); err != nil {
			t.Error(err)
		}

		done = p.CutAnswer(words(mine.Owner())...) // the next renewal
		happened(t, done)
		time.Sleep(2 * l.ttl)
		isHeld(t, direct, mine)

		done = p.CutAnswer(words(mine.Owner())...)
		if err := mine.Release(ctx); err != nil {
			t.Errorf("Release: %v", err)
		}
		happened(t, done)
		allFree(t, direct, 1, l.ttl)
	})
}

// If nobody can be asked either, Acquire says that it does not know, and the lock is free when its TTL has passed.
func TestAnswerIsCutOffAndNobodyAnswers(t *testing.T) {
	servers(t, func(t *testing.T, fl flavour, fresh *dbtest.DB) {
		p, dsn := behind(t, fresh)
		const ttl = 2 * time.Second
		a, direct := locker(t, fl.open(t, dsn, 8), lock.TTL(ttl)), locker(t, fresh.DB)
		release(t, acquire(t, a, "name 0"))
		done := p.CutAnswer(words("mark this one")...)
		go func() {
			<-done
			p.Refuse()
		}()
		mine, err := a.Acquire(t.Context(), "name 0", lock.Label("mark this one"))
		switch {
		case err == nil: // it could be asked before the door was closed
			isHeld(t, direct, mine)
			_ = mine.Release(t.Context())
		case !sqldb.Uncertain(err):
			t.Errorf("the server has granted it, and Acquire says: %v", err)
		case errors.Is(err, lock.ErrHeld):
			t.Errorf("nobody holds it: %v", err)
		}
		happened(t, done)
		allFree(t, direct, 1, ttl+slack)
		if err := p.Heal(); err != nil {
			t.Error(err)
		}
	})
}

func happened(t testing.TB, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("no answer was cut off")
	}
}
