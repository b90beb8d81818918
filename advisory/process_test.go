package advisory_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
)

// childTTL is the TTL of the lock that the other process holds.
const childTTL = 2 * time.Second

// hold is a process that takes a lock, waits for another if it is told so, and says
// what has become of the first when it is asked.
func hold(args []string) int {
	ctx := context.Background()
	fail := func(err error) int {
		fmt.Println("error", err)
		return 1
	}
	db, _, err := dbtest.Open(ctx, args[0], args[1])
	if err != nil {
		return fail(err)
	}
	locker, err := advisory.New(ctx, db, lock.TTL(childTTL))
	if err != nil {
		return fail(err)
	}
	l, err := locker.Acquire(ctx, "job")
	if err != nil {
		return fail(err)
	}
	fmt.Println("held")
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		switch s.Text() {
		case "check":
			if err := l.Err(); errors.Is(err, lock.ErrLost) {
				fmt.Println("lost")
			} else {
				fmt.Println("alive", err)
			}
		case "wait":
			go func() {
				_, err := locker.Acquire(ctx, "other")
				fmt.Println("had", err)
			}()
		}
	}
	return 0
}

func start(t *testing.T, db *dbtest.DB) *locktest.Process {
	t.Helper()
	child := locktest.Start(t, "hold", db.Kind().String(), db.DSN)
	child.Expect("held")
	return child
}

// A holder that is killed frees its lock at once, since its connection is closed; one
// that is stopped keeps it for no longer than its TTL, and knows that when it goes on.
func TestHolderIsKilledOrStopped(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := locker(t, db.DB)
		for _, how := range []string{"killed", "stopped"} {
			child := start(t, db)
			refusedTry(t, l, "job")
			time.Sleep(childTTL * 3 / 2)
			refusedTry(t, l, "job") // it is pinged
			child.Send("check")
			child.Expect("alive")
			if how == "killed" {
				child.Kill()
			} else {
				child.Stop()
			}
			begun := time.Now()
			got := must(t, l, "job", lock.Wait(childTTL+20*time.Second))
			if took := time.Since(begun); took > childTTL+3*time.Second {
				t.Errorf("%s: it took %v; the TTL is %v", how, took, childTTL)
			}
			if how == "stopped" {
				child.Continue()
				child.Send("check")
				child.Expect("lost")
			}
			if err := got.Err(); err != nil {
				t.Errorf("%s: the successor: %v", how, err)
			}
			release(t, got)
		}
	})
}
