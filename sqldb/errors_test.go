package sqldb_test

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlnative/locks/sqldb"
)

// marked is an error that an adapter has marked: nothing was applied.
type marked struct{ error }

func (marked) NotApplied() bool { return true }
func (m marked) Unwrap() error  { return m.error }

// saysRetry is an error that says of itself whether another transaction may succeed.
type saysRetry bool

func (saysRetry) Error() string   { return "a conflict" }
func (s saysRetry) RetryTx() bool { return bool(s) }

func TestUncertain(t *testing.T) {
	deadlock := &pgconn.PgError{Code: "40P01"}
	for name, c := range map[string]struct {
		err              error
		uncertain, retry bool
	}{
		"nil":                          {nil, false, false},
		"a verdict":                    {deadlock, false, true},
		"an UncertainError":            {&sqldb.UncertainError{Op: "commit", Err: context.DeadlineExceeded}, true, false},
		"one of a deadlock":            {&sqldb.UncertainError{Op: "commit", Err: deadlock}, true, false},
		"one wrapped":                  {fmt.Errorf("x: %w", &sqldb.UncertainError{Op: "commit", Err: io.EOF}), true, false},
		"one joined":                   {errors.Join(deadlock, &sqldb.UncertainError{Op: "commit", Err: io.EOF}), true, false},
		"one of a dial":                {&sqldb.UncertainError{Op: "commit", Err: driver.ErrBadConn}, true, false},
		"a cut":                        {io.ErrUnexpectedEOF, true, false},
		"a cut that was marked":        {fmt.Errorf("x: %w", marked{io.ErrUnexpectedEOF}), false, false},
		"a cut before sending":         {tellsSent{io.EOF, true}, false, false},
		"a cut after sending":          {tellsSent{io.EOF, false}, true, false},
		"one cut of two":               {errors.Join(marked{io.EOF}, io.EOF), true, false},
		"the other cut of two":         {errors.Join(io.EOF, marked{io.EOF}), true, false},
		"one cut of two, beneath":      {fmt.Errorf("x: %w", fmt.Errorf("%w, then %w", tellsSent{io.EOF, true}, io.EOF)), true, false},
		"two cuts that were marked":    {errors.Join(marked{io.EOF}, tellsSent{io.EOF, true}), false, false},
		"a mark around two cuts":       {marked{errors.Join(io.EOF, io.ErrUnexpectedEOF)}, false, false},
		"a verdict, then a cut":        {errors.Join(deadlock, io.EOF), true, false},
		"a verdict, then a marked one": {errors.Join(deadlock, marked{io.EOF}), false, true},
		"gave up on a deadlock":        {&sqldb.RetryError{Attempts: 2, Err: deadlock}, false, true},
		"a deadlock, then the ctx":     {errors.Join(context.Canceled, deadlock), false, true},
		"a lost connection beside ctx": {errors.Join(context.Canceled, io.ErrUnexpectedEOF), true, false},
		"an error that says yes":       {saysRetry(true), false, true},
		"one that says no":             {saysRetry(false), false, false},
		"one that says yes, wrapped":   {fmt.Errorf("x: %w", saysRetry(true)), false, true},
		"one that says yes, in doubt":  {&sqldb.UncertainError{Op: "commit", Err: saysRetry(true)}, true, false},
		"one that says no, a deadlock": {errors.Join(saysRetry(false), deadlock), false, true},
	} {
		if got := sqldb.Uncertain(c.err); got != c.uncertain {
			t.Errorf("%s: Uncertain %v", name, got)
		}
		if got := sqldb.Retryable(c.err); got != c.retry {
			t.Errorf("%s: Retryable %v", name, got)
		}
	}
}

func TestErrorTexts(t *testing.T) {
	cause := errors.New("the cause")
	for _, err := range []error{&sqldb.UncertainError{Op: "commit", Err: cause}, &sqldb.RetryError{Attempts: 4, Err: cause}} {
		if !errors.Is(err, cause) || !strings.HasPrefix(err.Error(), "sqldb: ") || !strings.HasSuffix(err.Error(), "the cause") {
			t.Errorf("%T: %v", err, err)
		}
	}
	if s := (&sqldb.RetryError{Attempts: 4, Err: cause}).Error(); !strings.Contains(s, "4 attempts") {
		t.Error(s)
	}
}
