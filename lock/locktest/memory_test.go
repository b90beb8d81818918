package locktest_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
)

// In a bubble nobody waits for a TTL.
func TestMemoryInABubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m locktest.Memory
		a, b := m.Locker(), m.Locker()
		defer func() { _ = errors.Join(a.Close(), b.Close()) }()
		begun := time.Now()
		if _, err := a.Acquire(t.Context(), "job", lock.TTL(time.Hour), lock.NoRenew()); err != nil {
			t.Fatal(err)
		}
		got, err := b.Acquire(t.Context(), "job")
		if err != nil || time.Since(begun) != time.Hour {
			t.Fatalf("after %v: %v", time.Since(begun), err)
		}
		time.Sleep(24 * time.Hour) // it is renewed
		if err := got.Err(); err != nil {
			t.Error(err)
		}
		heal := m.Break(b)
		time.Sleep(lock.DefaultTTL)
		if err := got.Err(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("cut off for a TTL: %v", err)
		}
		heal()
		if err := lock.Do(t.Context(), b, "job", func(context.Context, *lock.Lock) error { return nil }); err != nil {
			t.Error(err)
		}
	})
}

func TestLose(t *testing.T) {
	var m locktest.Memory
	l := m.Locker()
	defer func() { _ = l.Close() }()
	if m.Lose("job") {
		t.Error("a lock that nobody has was lost")
	}
	got, err := l.Acquire(t.Context(), "job")
	if err != nil {
		t.Fatal(err)
	}
	if !m.Lose("job") || !errors.Is(got.Err(), lock.ErrLost) {
		t.Errorf("Err is %v", got.Err())
	}
	if err := got.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
		t.Errorf("Release: %v", err)
	}
}

// A wrong option of a Locker, a Locker of another Memory: the programmer's errors.
func TestPanics(t *testing.T) {
	for what, f := range map[string]func(){
		"a wrong option":              func() { new(locktest.Memory).Locker(lock.TTL(0)) },
		"a Locker of somebody else's": func() { new(locktest.Memory).Break(new(locktest.Memory).Locker()) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			f()
		}()
	}
}

// Two processes, one lock, no database.
func ExampleMemory() {
	ctx := context.Background()
	var table locktest.Memory
	here, there := table.Locker(), table.Locker()
	defer func() { _ = errors.Join(here.Close(), there.Close()) }()

	l, _ := there.Acquire(ctx, "job")
	_, err := here.Acquire(ctx, "job", lock.Try())
	fmt.Println(errors.Is(err, lock.ErrHeld))
	_ = l.Release(ctx)
	_, err = here.Acquire(ctx, "job", lock.Try())
	fmt.Println(err)
	// Output:
	// true
	// <nil>
}
