package sqldb

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Policy says how [Retry] repeats. The zero value is the default policy.
type Policy struct {
	// Attempts bounds how often fn runs. Default 50, with pauses of about 6 s in all: of
	// 64 goroutines that compare and swap one row as fast as they can none gave up, while
	// after 10 attempts every tenth did on PostgreSQL, and every fourth on MySQL.
	Attempts int
	// Elapsed bounds for how long a new attempt may begin. Default 30 s.
	Elapsed time.Duration
	// Base and Max bound the pause: before attempt n+1 it is drawn uniformly from
	// 0 to min(Base * 2^(n-1), Max), which is "full jitter" (Marc Brooker,
	// Exponential Backoff And Jitter, AWS Architecture Blog, 2015). Defaults 10 ms
	// and 250 ms: the same crowd gets more through than with a shorter one, since most of
	// it sleeps while a few do the work.
	Base, Max time.Duration
	// Retryable says which errors are tried again. Default: [Retryable]. Whatever it
	// says, an [Uncertain] error is not.
	Retryable func(error) bool
}

func (p Policy) withDefaults() (Policy, error) {
	if p.Attempts < 0 || p.Elapsed < 0 || p.Base < 0 || p.Max < 0 {
		return p, fmt.Errorf("sqldb: Retry: negative policy %+v", struct {
			Attempts           int
			Elapsed, Base, Max time.Duration
		}{p.Attempts, p.Elapsed, p.Base, p.Max})
	}
	if p.Attempts == 0 {
		p.Attempts = 50
	}
	if p.Elapsed == 0 {
		p.Elapsed = 30 * time.Second
	}
	if p.Base == 0 {
		p.Base = 10 * time.Millisecond
	}
	if p.Max == 0 {
		p.Max = 250 * time.Millisecond
	}
	if p.Retryable == nil {
		p.Retryable = Retryable
	}
	return p, nil
}

// pause is the pause after the n-th attempt, n from 1.
func (p Policy) pause(n int) time.Duration {
	limit := p.Max
	if shift := n - 1; shift < 63 && p.Base < p.Max>>shift {
		limit = p.Base << shift
	}
	if limit < math.MaxInt64 {
		limit++ // N excludes its bound
	}
	return rand.N(limit)
}

// RetryError is what [Retry] returns when it has given up an error that could
// have been tried again.
type RetryError struct {
	// Attempts is how often the function ran.
	Attempts int
	// Err is what the last attempt returned, joined with ctx's error if that is
	// what ended the waiting.
	Err error
}

// Error says how often it was tried, and the last error.
func (e *RetryError) Error() string {
	return fmt.Sprintf("sqldb: gave up after %d attempts: %v", e.Attempts, e.Err)
}

// Unwrap returns the last error.
func (e *RetryError) Unwrap() error { return e.Err }

// Retry runs fn until it returns nil or an error that another try will not mend,
// and returns that. fn must begin and end its own transaction (pgx.BeginFunc,
// [DB.InTx], bun's RunInTx, gorm's Transaction), from the reading on: after a
// conflict in MySQL's REPEATABLE READ a repeated read in the same transaction is
// stale for ever.
//
// Only what the server has surely rolled back is tried again: see [Retryable],
// and note that a conflict may be told by COMMIT. An [Uncertain] error ends it at
// once: the change may be there already. When ctx ends, no new attempt begins, and
// a pause ends at once; the error then wraps both ctx's and the last attempt's.
func Retry(ctx context.Context, p Policy, fn func(ctx context.Context) error) error {
	p, err := p.withDefaults()
	if err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	begun := time.Now()
	for n := 1; ; n++ {
		err := fn(ctx)
		if err == nil || Uncertain(err) || !p.Retryable(err) {
			return err
		}
		pause := p.pause(n)
		if n >= p.Attempts || pause > p.Elapsed-time.Since(begun) {
			return &RetryError{Attempts: n, Err: err}
		}
		if ctxErr := sleep(ctx, pause); ctxErr != nil {
			return &RetryError{Attempts: n, Err: errors.Join(ctxErr, err)}
		}
	}
}

// sleep waits for d, or until ctx ends, which it returns.
func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return ctx.Err()
	}
}
