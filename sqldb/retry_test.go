package sqldb_test

import (
	"context"
	"errors"
	"io"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlnative/locks/sqldb"
)

var errDeadlock error = &pgconn.PgError{Code: "40P01"}

// tries runs Retry with a function that fails with errs in turn, then with the
// last of them for ever.
func tries(ctx context.Context, p sqldb.Policy, errs ...error) (n int, err error) {
	err = sqldb.Retry(ctx, p, func(context.Context) error {
		n++
		return errs[min(n, len(errs))-1]
	})
	return n, err
}

func TestRetry(t *testing.T) {
	other := errors.New("other")
	cut := &sqldb.UncertainError{Op: "commit", Err: io.EOF}
	for name, c := range map[string]struct {
		errs   []error
		policy sqldb.Policy
		tries  int
		want   error
		gaveUp bool
	}{
		"at once":                   {[]error{nil}, sqldb.Policy{}, 1, nil, false},
		"third time":                {[]error{errDeadlock, errDeadlock, nil}, sqldb.Policy{}, 3, nil, false},
		"not retryable":             {[]error{other}, sqldb.Policy{}, 1, other, false},
		"uncertain":                 {[]error{cut}, sqldb.Policy{}, 1, cut, false},
		"uncertain after a retry":   {[]error{errDeadlock, cut}, sqldb.Policy{}, 2, cut, false},
		"uncertain, custom says go": {[]error{cut}, sqldb.Policy{Retryable: func(error) bool { return true }}, 1, cut, false},
		"a lost connection":         {[]error{io.ErrUnexpectedEOF}, sqldb.Policy{Retryable: func(error) bool { return true }}, 1, io.ErrUnexpectedEOF, false},
		"custom":                    {[]error{other, nil}, sqldb.Policy{Retryable: func(err error) bool { return errors.Is(err, other) }}, 2, nil, false},
		"custom says no":            {[]error{errDeadlock}, sqldb.Policy{Retryable: func(error) bool { return false }}, 1, errDeadlock, false},
		"default attempts":          {[]error{errDeadlock}, sqldb.Policy{}, 50, errDeadlock, true},
		"three attempts":            {[]error{errDeadlock}, sqldb.Policy{Attempts: 3}, 3, errDeadlock, true},
		"one attempt":               {[]error{errDeadlock}, sqldb.Policy{Attempts: 1}, 1, errDeadlock, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, err := tries(t.Context(), c.policy, c.errs...)
				if n != c.tries || !errors.Is(err, c.want) {
					t.Errorf("%d tries, %v", n, err)
				}
				var gave *sqldb.RetryError
				if errors.As(err, &gave) != c.gaveUp || c.gaveUp && gave.Attempts != c.tries {
					t.Errorf("gave up: %+v", gave)
				}
				if !c.gaveUp && err != c.want { //nolint:errorlint // the very error of fn
					t.Errorf("the error was wrapped: %v", err)
				}
			})
		})
	}
}

// No attempt begins after Elapsed, and no pause is begun that would end after it.
func TestRetryElapsed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		n, err := tries(t.Context(), sqldb.Policy{Attempts: math.MaxInt, Elapsed: 10 * time.Second, Base: time.Second, Max: time.Second}, errDeadlock)
		var gave *sqldb.RetryError
		if !errors.As(err, &gave) || n < 10 || time.Since(begun) > 10*time.Second {
			t.Errorf("%d tries in %v: %v", n, time.Since(begun), err)
		}
		n, _ = tries(t.Context(), sqldb.Policy{Attempts: 5, Elapsed: 1, Base: time.Hour, Max: time.Hour}, errDeadlock)
		if n != 1 {
			t.Errorf("%d tries", n)
		}
	})
}

// The pause before attempt n+1 lies between 0 and min(Base*2^(n-1), Max).
func TestRetryPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []sqldb.Policy{{Attempts: 9, Base: 8 * time.Millisecond, Max: 100 * time.Millisecond}, {Attempts: 9}} {
			base, top := p.Base, p.Max
			if base == 0 { // the defaults
				base, top = 10*time.Millisecond, 250*time.Millisecond
			}
			var longest [9]time.Duration
			for range 300 {
				last, n := time.Now(), 0
				_ = sqldb.Retry(t.Context(), p, func(context.Context) error {
					if d := time.Since(last); n > 0 {
						longest[n] = max(longest[n], d)
					}
					last = time.Now()
					n++
					return errDeadlock
				})
			}
			for n := 1; n < len(longest); n++ {
				limit := min(base<<(n-1), top)
				if longest[n] > limit || longest[n] < limit*2/3 {
					t.Errorf("pause %d: the longest of 300 is %v, the bound is %v", n, longest[n], limit)
				}
			}
		}
	})
}

// Numbers that overflow when doubled bound a pause all the same.
func TestRetryHugePolicy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, p := range []sqldb.Policy{
			{Base: math.MaxInt64, Max: math.MaxInt64, Elapsed: math.MaxInt64, Attempts: 2},
			{Base: 3 << 60, Max: time.Millisecond, Attempts: 80},
			{Base: time.Hour, Max: time.Second, Attempts: 80, Elapsed: time.Hour},
		} {
			p.Retryable = func(error) bool { return true }
			if n, err := tries(t.Context(), p, errDeadlock); n < 1 || err == nil {
				t.Errorf("%+v: %d tries, %v", p, n, err)
			}
		}
	})
}

// A ctx that ends during the pause ends it, and both errors are told.
func TestRetryContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := sqldb.Policy{Base: time.Hour, Max: time.Hour, Elapsed: 10 * time.Hour}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		begun := time.Now()
		n, err := tries(ctx, slow, errDeadlock)
		if n != 1 || !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, errDeadlock) || time.Since(begun) != time.Millisecond {
			t.Errorf("%d tries in %v: %v", n, time.Since(begun), err)
		}

		done, cancel := context.WithCancel(t.Context())
		cancel()
		if n, err := tries(done, slow, nil); n != 0 || !errors.Is(err, context.Canceled) {
			t.Errorf("a done ctx: %d tries, %v", n, err)
		}

		// fn's own success counts, even if ctx has ended meanwhile.
		ctx, cancel = context.WithCancel(t.Context())
		err = sqldb.Retry(ctx, sqldb.Policy{}, func(context.Context) error { cancel(); return nil })
		if err != nil {
			t.Errorf("applied, and yet: %v", err)
		}

		// Where ctx has ended during fn, no new attempt begins.
		ctx, cancel = context.WithCancel(t.Context())
		n = 0
		err = sqldb.Retry(ctx, sqldb.Policy{}, func(context.Context) error { n++; cancel(); return errDeadlock })
		if n != 1 || !errors.Is(err, context.Canceled) || !errors.Is(err, errDeadlock) {
			t.Errorf("%d tries: %v", n, err)
		}
	})
}

func TestRetryBadPolicy(t *testing.T) {
	for _, p := range []sqldb.Policy{{Attempts: -1}, {Elapsed: -1}, {Base: -1}, {Max: -1}} {
		if n, err := tries(t.Context(), p, nil); n != 0 || err == nil {
			t.Errorf("%+v: %d tries, %v", p, n, err)
		}
	}
}
