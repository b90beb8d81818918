package lock_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
)

// A critical section. A program has sqllock.New in place of Memory.
func ExampleDo() {
	ctx := context.Background()
	locker := new(locktest.Memory).Locker()
	defer func() { _ = locker.Close() }()

	err := lock.Do(ctx, locker, "order:42", func(ctx context.Context, l *lock.Lock) error {
		// Whatever runs under ctx stops if the lock is lost.
		fmt.Println("shipping under", l.Name())
		return nil
	})
	fmt.Println(err)
	// Output:
	// shipping under order:42
	// <nil>
}

// A function that holds a lock whenever it runs, one for each argument.
func ExampleWrap() {
	ctx := context.Background()
	locker := new(locktest.Memory).Locker()
	defer func() { _ = locker.Close() }()

	name := func(id int64) string { return lock.Name("order", strconv.FormatInt(id, 10)) }
	ship := lock.Wrap(locker, name, func(ctx context.Context, id int64) error {
		fmt.Println("shipping", id)
		return nil
	}, lock.Wait(10*time.Second))

	fmt.Println(ship(ctx, 42))
	// Output:
	// shipping 42
	// <nil>
}

// To do without the lock if another has it, and to say who that is.
func ExampleTry() {
	ctx := context.Background()
	var table locktest.Memory
	here, there := table.Locker(), table.Locker() // two processes
	defer func() { _ = errors.Join(here.Close(), there.Close()) }()

	if _, err := there.Acquire(ctx, "report", lock.Label("nightly")); err != nil {
		fmt.Println(err)
	}
	_, err := here.Acquire(ctx, "report", lock.Try())
	var held *lock.HeldError
	if errors.As(err, &held) {
		fmt.Println(held.Name, "is held by", held.Holder.Label)
	}
	// Output: report is held by nightly
}

// To find out what a program does when it loses its lock.
func ExampleLock_Context() {
	ctx := context.Background()
	var table locktest.Memory
	locker := table.Locker()
	defer func() { _ = locker.Close() }()

	err := lock.Do(ctx, locker, "job", func(ctx context.Context, l *lock.Lock) error {
		table.Lose("job")
		<-ctx.Done()
		fmt.Println("stopped, lost:", errors.Is(context.Cause(ctx), lock.ErrLost))
		return nil
	})
	fmt.Println("Do says so too:", errors.Is(err, lock.ErrLost))
	// Output:
	// stopped, lost: true
	// Do says so too: true
}

// Different parts never make one name.
func ExampleName() {
	fmt.Println(lock.Name("order", "42"))
	fmt.Println(lock.Name("order:42"))
	// Output:
	// order:42
	// order\:42
}
