package gocronlock_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlnative/locks/contrib/gocronlock"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
)

// Who finds the job locked is told at once, also if an option says that it is to wait; and
// the caller's slice of options stays the caller's.
func TestTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var m locktest.Memory
		a, b := m.Locker(), m.Locker()
		defer func() { _ = errors.Join(a.Close(), b.Close()) }()
		got, err := gocronlock.NewLocker(a).Lock(t.Context(), "report")
		if err != nil {
			t.Fatal(err)
		}
		opts := append(make([]lock.Option, 0, 2), lock.Wait(time.Hour))
		l, begun := gocronlock.NewLocker(b, opts...), time.Now()
		if _, err := l.Lock(t.Context(), "report"); !errors.Is(err, lock.ErrHeld) || time.Since(begun) != 0 {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		if opts[:2][1] != nil {
			t.Error("it has written into the caller's slice")
		}
		if err := got.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
