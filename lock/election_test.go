package lock_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
)

func election(t testing.TB, l lock.Locker, opts ...lock.Option) *lock.Election {
	t.Helper()
	e, err := lock.NewElection(l, "leader", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// changes notes what OnChange tells.
func changes(e *lock.Election) func() []bool {
	var mu sync.Mutex
	var all []bool
	e.OnChange(func(leader bool) {
		mu.Lock()
		defer mu.Unlock()
		all = append(all, leader)
	})
	return func() []bool {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(all)
	}
}

// untilDone leads until its ctx ends.
func untilDone(ctx context.Context, _ *lock.Lock) error {
	<-ctx.Done()
	return ctx.Err()
}

// campaign runs e in a goroutine of its own; answer is what Run returned.
func campaign(ctx context.Context, e *lock.Election, fn func(context.Context, *lock.Lock) error) (answer <-chan error) {
	c := make(chan error, 1)
	go func() { c <- e.Run(ctx, fn) }()
	return c
}

// bubble runs f with two processes and one lock table.
func bubble(t *testing.T, f func(t *testing.T, m *locktest.Memory, a, b lock.Locker)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var m locktest.Memory
		a, b := m.Locker(), m.Locker()
		defer func() { _ = errors.Join(a.Close(), b.Close()) }()
		f(t, &m, a, b)
	})
}

// A shutdown resigns: the next leads at once, and not when a lease has run out.
func TestElectionShutdown(t *testing.T) {
	bubble(t, func(t *testing.T, _ *locktest.Memory, a, b lock.Locker) {
		first, second := election(t, a), election(t, b)
		told := changes(first)
		ctx, shutdown := context.WithCancel(t.Context())
		one := campaign(ctx, first, untilDone)
		synctest.Wait()
		rest, stop := context.WithCancel(t.Context())
		two := campaign(rest, second, untilDone)
		synctest.Wait()
		if !first.IsLeader() || second.IsLeader() {
			t.Errorf("leaders: %v, %v", first.IsLeader(), second.IsLeader())
		}
		begun := time.Now()
		shutdown()
		if err := <-one; !errors.Is(err, context.Canceled) {
			t.Errorf("Run returned %v", err)
		}
		synctest.Wait()
		if first.IsLeader() || !second.IsLeader() || time.Since(begun) != 0 {
			t.Errorf("leaders after %v: %v, %v", time.Since(begun), first.IsLeader(), second.IsLeader())
		}
		stop()
		<-two
		if got := told(); !slices.Equal(got, []bool{true, false}) {
			t.Errorf("OnChange told %v", got)
		}
	})
}

// A leader that dies is followed when its lease has run out. Cut off, it is told so
// before the other can lead, though it can ask nobody.
func TestElectionLoss(t *testing.T) {
	bubble(t, func(t *testing.T, m *locktest.Memory, a, b lock.Locker) {
		first, second := election(t, a), election(t, b)
		told := changes(first)
		var ended, elected time.Time
		var cause error
		ctx, stop := context.WithCancel(t.Context())
		one := campaign(ctx, first, func(ctx context.Context, l *lock.Lock) error {
			<-ctx.Done()
			if ended.IsZero() {
				ended, cause = time.Now(), context.Cause(ctx)
			}
			return ctx.Err()
		})
		synctest.Wait()
		two := campaign(ctx, second, func(ctx context.Context, l *lock.Lock) error {
			elected = time.Now()
			return untilDone(ctx, l)
		})
		synctest.Wait()
		heal := m.Break(a)
		time.Sleep(2 * lock.DefaultTTL)
		synctest.Wait()
		if ended.IsZero() || elected.IsZero() || !ended.Before(elected) || !errors.Is(cause, lock.ErrLost) {
			t.Errorf("the first ended at %v (%v), the second was elected at %v", ended, cause, elected)
		}
		if got := told(); first.IsLeader() || !slices.Equal(got, []bool{true, false}) {
			t.Errorf("OnChange told %v", got)
		}
		heal()
		time.Sleep(time.Minute) // the loser has not ended: it campaigns again
		if !m.Lose("leader") {
			t.Error("nobody leads")
		}
		time.Sleep(time.Minute)
		if first.IsLeader() == second.IsLeader() {
			t.Errorf("leaders: %v, %v", first.IsLeader(), second.IsLeader())
		}
		stop()
		<-one
		<-two
	})
}

// The loss is told when it happens, also while fn does not come back.
func TestElectionTellsLossAtOnce(t *testing.T) {
	bubble(t, func(t *testing.T, m *locktest.Memory, a, _ lock.Locker) {
		var e *lock.Election
		asked := false
		e = election(t, a, lock.WithTrace(&lock.Trace{Lost: func(lock.Event) { // in the goroutine that finds it out
			if asked = true; e.IsLeader() {
				t.Error("it leads without the lock, as nobody has told it yet")
			}
		}}))
		told := changes(e)
		ctx, stop := context.WithCancel(t.Context())
		back := make(chan struct{})
		terms := 0
		done := campaign(ctx, e, func(context.Context, *lock.Lock) error {
			terms++
			<-back
			return errors.New("late")
		})
		synctest.Wait()
		m.Lose("leader")
		synctest.Wait()
		if got := told(); !asked || e.IsLeader() || !slices.Equal(got, []bool{true, false}) {
			t.Errorf("OnChange told %v", got)
		}
		close(back)
		if err := <-done; err == nil || err.Error() != "late" || terms != 1 {
			t.Errorf("Run returned %v after %d terms", err, terms) // an error that is not the end of its ctx
		}
		stop()
	})
}

// nil resigns and campaigns again, so that the other gets its turn; and another error
// ends Run.
func TestElectionResigns(t *testing.T) {
	bubble(t, func(t *testing.T, _ *locktest.Memory, a, b lock.Locker) {
		broken := errors.New("broken")
		var leading atomic.Int32
		turn := func(terms *int) func(ctx context.Context, l *lock.Lock) error {
			return func(context.Context, *lock.Lock) error {
				if leading.Add(1) != 1 {
					t.Error("two leaders")
				}
				defer leading.Add(-1)
				time.Sleep(time.Second)
				if *terms++; *terms == 3 {
					return broken
				}
				return nil
			}
		}
		var terms [2]int
		one := campaign(t.Context(), election(t, a), turn(&terms[0]))
		two := campaign(t.Context(), election(t, b), turn(&terms[1]))
		begun := time.Now()
		if err := errors.Join(<-one, <-two); !errors.Is(err, broken) || terms != [2]int{3, 3} {
			t.Errorf("%v, %v", err, terms)
		}
		// They take turns: none had to pause between two terms of its own.
		if took := time.Since(begun); took > 7*time.Second {
			t.Errorf("six terms of a second took %v", took)
		}
		// Alone, it pauses between two: whoever polls has a chance.
		begun, terms[0] = time.Now(), 0
		if err := election(t, a).Run(t.Context(), turn(&terms[0])); !errors.Is(err, broken) || time.Since(begun) != 4*time.Second {
			t.Errorf("three terms of a second took %v: %v", time.Since(begun), err)
		}
	})
}

// A panic resigns too.
func TestElectionPanic(t *testing.T) {
	bubble(t, func(t *testing.T, _ *locktest.Memory, a, b lock.Locker) {
		e := election(t, a)
		func() {
			defer func() {
				if p := recover(); p != "boom" {
					t.Errorf("it panicked with %v", p)
				}
			}()
			_ = e.Run(t.Context(), func(context.Context, *lock.Lock) error { panic("boom") })
		}()
		l, err := b.Acquire(t.Context(), "leader", lock.Try())
		if err != nil || e.IsLeader() {
			t.Fatalf("after a panic: %v, leader %v", err, e.IsLeader())
		}
		_ = l.Release(t.Context())
	})
}

// A database that does not answer does not end Run.
func TestElectionOutage(t *testing.T) {
	bubble(t, func(t *testing.T, m *locktest.Memory, a, _ lock.Locker) {
		e := election(t, a)
		heal := m.Break(a)
		ctx, stop := context.WithCancel(t.Context())
		done := campaign(ctx, e, untilDone)
		time.Sleep(time.Hour)
		if e.IsLeader() {
			t.Error("it leads without a database")
		}
		heal()
		time.Sleep(10 * time.Second)
		if !e.IsLeader() {
			t.Error("it does not lead after the outage")
		}
		stop()
		<-done
		_ = a.Close()
		if err := e.Run(t.Context(), untilDone); !errors.Is(err, lock.ErrClosed) {
			t.Errorf("with a Locker that is closed: %v", err)
		}
	})
}

func TestElectionInput(t *testing.T) {
	var m locktest.Memory
	l := m.Locker()
	defer func() { _ = l.Close() }()
	for what, err := range map[string]error{
		"no Locker":      second(lock.NewElection(nil, "leader")),
		"no name":        second(lock.NewElection(l, "")),
		"Try":            second(lock.NewElection(l, "leader", lock.Try())),
		"Wait":           second(lock.NewElection(l, "leader", lock.Wait(time.Second))),
		"Shared":         second(lock.NewElection(l, "leader", lock.Shared())),
		"no option":      second(lock.NewElection(l, "leader", nil)),
		"a wrong option": second(lock.NewElection(l, "leader", lock.TTL(0))),
		"no function":    election(t, l).Run(t.Context(), nil),
	} {
		if !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	e := election(t, l)
	ctx, stop := context.WithCancel(t.Context())
	leads := make(chan struct{})
	done := campaign(ctx, e, func(ctx context.Context, l *lock.Lock) error {
		close(leads)
		return untilDone(ctx, l)
	})
	<-leads
	if err := e.Run(t.Context(), untilDone); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("a second Run: %v", err)
	}
	stop()
	<-done
}

func second[A any](_ A, err error) error { return err }

// One of several programs does what only one may do; the others stand by.
func ExampleElection() {
	ctx, shutdown := context.WithCancel(context.Background())
	defer shutdown()
	var table locktest.Memory // sqllock.New in a program
	locker := table.Locker()
	defer func() { _ = locker.Close() }()

	e, err := lock.NewElection(locker, "scheduler", lock.TTL(10*time.Second))
	if err != nil {
		fmt.Println(err)
		return
	}
	e.OnChange(func(leader bool) { fmt.Println("leader:", leader) })
	err = e.Run(ctx, func(ctx context.Context, l *lock.Lock) error {
		fmt.Println("scheduling", e.IsLeader())
		shutdown() // SIGTERM
		<-ctx.Done()
		return nil
	})
	fmt.Println(err)
	// Output:
	// leader: true
	// scheduling true
	// leader: false
	// context canceled
}
