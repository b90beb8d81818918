package lock_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqlnative/locks/lock"
)

var sentinels = []error{
	lock.ErrHeld, lock.ErrLost, lock.ErrReleased, lock.ErrDeadlock, lock.ErrClosed, lock.ErrNotMigrated, lock.ErrInvalid, lock.ErrStaleSnapshot,
}

// only says that err matches want, and no other sentinel.
func only(t *testing.T, err error, want ...error) {
	t.Helper()
	for _, s := range sentinels {
		wanted := false
		for _, w := range want {
			wanted = wanted || w == s
		}
		if errors.Is(err, s) != wanted {
			t.Errorf("%v matches %v: %v", err, s, !wanted)
		}
	}
}

func TestHeldError(t *testing.T) {
	since := time.Date(2026, 5, 4, 3, 2, 1, 0, time.FixedZone("", 3600))
	who := lock.Holder{Host: "web-1", PID: 4711, Label: "cron"}
	for want, e := range map[string]*lock.HeldError{
		`lock: "job" is held by an unknown process`:                                              {Name: "job"},
		`lock: "job" is held by web-1, pid 4711`:                                                 {Name: "job", Holder: lock.Holder{Host: "web-1", PID: 4711}},
		`lock: "job" is held by cron (an unknown process)`:                                       {Name: "job", Holder: lock.Holder{Label: "cron"}},
		`lock: "job" is held by cron (web-1, pid 4711) since 2026-05-04T02:02:01Z`:               {Name: "job", Holder: who, Since: since},
		`lock: "job" is held by cron (web-1, pid 4711), lease left 1.235s`:                       {Name: "job", Holder: who, Left: 1234567 * time.Microsecond},
		`lock: "job" is held by cron (web-1, pid 4711)`:                                          {Name: "job", Holder: who, Left: -time.Second},
		`lock: "job" is held by cron (web-1, pid 4711), waited 2s: context canceled`:             {Name: "job", Holder: who, Waited: 2 * time.Second, Err: context.Canceled},
		`lock: "a\n" is held by an unknown process, lease left 1s, waited 1ms: context canceled`: {Name: "a\n", Left: time.Second, Waited: time.Millisecond, Err: context.Canceled},
	} {
		if e.Error() != want {
			t.Errorf("the text is\n%s\nnot\n%s", e.Error(), want)
		}
		err := fmt.Errorf("wrapped: %w", e)
		only(t, err, lock.ErrHeld)
		var again *lock.HeldError
		if !errors.As(err, &again) || again != e {
			t.Errorf("As finds %v", again)
		}
		if errors.Is(err, context.Canceled) != (e.Err != nil) || errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v: the ctx's error", err)
		}
	}
}

func TestLostError(t *testing.T) {
	gone := errors.New("gone")
	for want, e := range map[string]*lock.LostError{
		`lock: "job" (token 7) was lost: stolen`:       {Name: "job", Token: 7, Reason: "stolen"},
		`lock: "job" (token 0) was lost: stolen: gone`: {Name: "job", Reason: "stolen", Err: gone},
	} {
		if e.Error() != want {
			t.Errorf("the text is %q, not %q", e.Error(), want)
		}
		err := fmt.Errorf("wrapped: %w", e)
		only(t, err, lock.ErrLost)
		var again *lock.LostError
		if !errors.As(err, &again) || again != e || errors.Is(err, gone) != (e.Err != nil) {
			t.Errorf("%v: As and Unwrap", err)
		}
	}
}

func TestSentinelsDiffer(t *testing.T) {
	texts := map[string]bool{}
	for _, s := range sentinels {
		only(t, s, s)
		if texts[s.Error()] {
			t.Errorf("%v is there twice", s)
		}
		texts[s.Error()] = true
	}
}
