package waitq

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Waiters are served in the order in which they came, one at a time; another name
// does not wait for them.
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		leave, err := q.Enter(t.Context(), "a")
		if err != nil {
			t.Fatal(err)
		}
		var order []int
		var wg sync.WaitGroup
		for i := range 5 {
			wg.Go(func() {
				leave, err := q.Enter(t.Context(), "a")
				if err != nil {
					t.Error(err)
					return
				}
				order = append(order, i) // the queue is what orders it: -race says so
				leave()
				leave()
			})
			synctest.Wait()
		}
		other, err := q.Enter(t.Context(), "b")
		if err != nil || q.Len("a") != 6 || q.Len("b") != 1 {
			t.Errorf("%v, %d, %d", err, q.Len("a"), q.Len("b"))
		}
		other()
		leave()
		wg.Wait()
		for i, n := range order {
			if i != n {
				t.Errorf("the order was %v", order)
			}
		}
		if len(q.lines) != 0 {
			t.Errorf("%d lines are left", len(q.lines))
		}
	})
}

// One that gives up is passed over, also at the moment when it comes to the head.
func TestGiveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		leave, _ := q.Enter(t.Context(), "a")
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		wg.Go(func() {
			if _, err := q.Enter(ctx, "a"); !errors.Is(err, context.Canceled) {
				t.Errorf("the answer is %v", err)
			}
		})
		synctest.Wait()
		served := false
		wg.Go(func() {
			leave, err := q.Enter(t.Context(), "a")
			if err == nil {
				served = true
				leave()
			}
		})
		synctest.Wait()
		cancel()
		synctest.Wait()
		leave()
		wg.Wait()
		if !served || len(q.lines) != 0 {
			t.Errorf("served %v, %d lines left", served, len(q.lines))
		}
	})
}

// Who takes the head is in front of those who come later; there is one head.
func TestHead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var q Queue
		leave, ok := q.Head("a")
		if !ok || q.Len("a") != 1 {
			t.Fatalf("nobody is there: %v, %d", ok, q.Len("a"))
		}
		if _, ok := q.Head("a"); ok {
			t.Error("two are at the head")
		}
		came := false
		go func() {
			next, err := q.Enter(t.Context(), "a")
			if err != nil {
				t.Error(err)
				return
			}
			came = true
			next()
		}()
		synctest.Wait()
		if came {
			t.Error("it did not wait for the head")
		}
		leave()
		leave()
		synctest.Wait()
		if !came || len(q.lines) != 0 {
			t.Errorf("it came: %v; %d lines are left", came, len(q.lines))
		}
	})
}
