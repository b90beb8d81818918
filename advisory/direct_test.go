package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
)

// The ctx of one caller ends while its statement is under way, and with it the session;
// another caller's request, which waits for its turn there, is asked elsewhere. It must
// not be told of a ctx that is not its own, nor give up, however often that happens.
func TestOthersCtx(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		line := &dbtest.Line{}
		l := locker(t, db.Wrap(line.Wrap), advisory.Connections(1))
		for i := range 10 {
			release(t, must(t, l, "warm"))
			line.Set(dbtest.Paused)
			ctx, cancel := context.WithCancel(t.Context())
			first, second := make(chan error, 1), make(chan error, 1)
			go func() {
				_, err := l.Acquire(ctx, fmt.Sprint("first ", i))
				first <- err
			}()
			time.Sleep(10 * time.Millisecond) // if it is not under way yet, this round shows nothing
			go func() {
				got, err := l.Acquire(t.Context(), fmt.Sprint("second ", i), lock.Wait(time.Minute))
				if err == nil {
					err = got.Release(context.Background())
				}
				second <- err
			}()
			time.Sleep(10 * time.Millisecond)
			cancel()
			if err := <-first; !errors.Is(err, context.Canceled) {
				t.Errorf("whose ctx has ended: %v", err)
			}
			line.Set(dbtest.Whole)
			if err := <-second; err != nil {
				t.Fatalf("another, in round %d: %v", i, err)
			}
		}
	})
}

// Who asks first is served first, also if its first try takes its time: it stands at the
// head of the queue while it tries.
func TestFirstStaysFirst(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		line := &dbtest.Line{}
		l, holder := locker(t, db.Wrap(line.Wrap)), locker(t, db.DB)
		got := must(t, holder, "order")
		release(t, must(t, l, "warm"))
		line.Set(dbtest.Paused)
		order, done := make(chan int, 2), make(chan error, 2)
		for i := range 2 {
			go func() {
				done <- lock.Do(t.Context(), l, "order", func(context.Context, *lock.Lock) error {
					order <- i
					return nil
				}, lock.Wait(time.Minute))
			}()
			time.Sleep(50 * time.Millisecond) // nothing tells that it stands in line
		}
		line.Set(dbtest.Whole)
		eventually(t, "one waits in the server", func() bool { return waitersOf(t, db, "order") == 1 })
		release(t, got)
		for range 2 {
			if err := <-done; err != nil {
				t.Error(err)
			}
		}
		if a, b := <-order, <-order; a != 0 || b != 1 {
			t.Errorf("the order was %d, %d", a, b)
		}
	})
}
