package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"path"
	"reflect"
	"slices"
)

// Retryable reports whether err says that the server has surely undone what ran,
// for a reason that another try may not meet: a deadlock, a serialization failure,
// a lock timeout. After a lock timeout (1205) MySQL and MariaDB have undone the
// statement only: the transaction must be rolled back before it is tried again,
// as [Retry] demands of its function.
//
// An error that is no server's can say so of itself, by a method RetryTx() bool: a
// version that was changed by somebody else is nothing that a server would call an
// error, and yet a transaction that reads the row again may succeed.
//
// An error that is [Uncertain] is never retryable.
func Retryable(err error) bool {
	if err == nil || Uncertain(err) {
		return false
	}
	switch ClassOf(err) {
	case Deadlock, Serialization, LockTimeout:
		return true
	}
	var own interface{ RetryTx() bool }
	return errors.As(err, &own) && own.RetryTx()
}

// UncertainError is an error behind which a change may have been applied, or may
// not: its statement was sent, and no verdict came. Whoever can settles it by
// identity: the same claim, the same owner.
type UncertainError struct {
	// Op is what has no verdict: "commit", or the statement.
	Op string
	// Err is why.
	Err error
}

// Error says that the outcome is unknown.
func (e *UncertainError) Error() string {
	return fmt.Sprintf("sqldb: %s: outcome unknown, the change may have been applied: %v", e.Op, e.Err)
}

// Unwrap returns the reason.
func (e *UncertainError) Unwrap() error { return e.Err }

// Uncertain reports whether err leaves open if a change was applied: a COMMIT, or
// a statement in autocommit, was sent, and the connection broke before its
// verdict came. Errors of this module carry an [*UncertainError]; of errors that
// came straight from a driver, a broken connection counts as uncertain. Of errors that
// were joined, one that is uncertain is enough, whatever the others say.
//
// It cannot see the one case in which a caller's own context ended the caller's
// own Commit: the driver's error is a context error then, and such an error is
// taken for what it is nearly everywhere else, an end before anything was applied.
// [DB.InTx] commits so that this does not happen.
func Uncertain(err error) bool {
	var u *UncertainError
	return errors.As(err, &u) || doubtful(err)
}

// doubtful reports whether a branch of err, a tree where errors were joined, tells
// of a broken connection that nothing above it in the same branch vouches for.
func doubtful(err error) bool {
	for e := err; e != nil; {
		if unsent(e) || marked(e) {
			return false
		}
		if c := codeOfOne(e); c.family != noCode {
			return classOfCode(c) == ConnLost
		}
		switch u := e.(type) {
		case interface{ Unwrap() []error }:
			return slices.ContainsFunc(u.Unwrap(), doubtful)
		case interface{ Unwrap() error }:
			e = u.Unwrap()
		default:
			e = nil
		}
	}
	return ClassOf(err) == ConnLost
}

// every reports whether each branch of err has an error for which is holds. What
// one of two joined errors says of itself says nothing of the other.
func every(err error, is func(error) bool) bool {
	for err != nil {
		if is(err) {
			return true
		}
		switch u := err.(type) {
		case interface{ Unwrap() []error }:
			errs := u.Unwrap()
			return len(errs) > 0 && !slices.ContainsFunc(errs, func(e error) bool { return !every(e, is) })
		case interface{ Unwrap() error }:
			err = u.Unwrap()
		default:
			return false
		}
	}
	return false
}

// undone marks an error behind which nothing was applied, whatever its cause says
// about the connection.
type undone struct{ error }

func (undone) NotApplied() bool { return true }
func (u undone) Unwrap() error  { return u.error }

// marked reports whether an adapter, or sqldb itself, has marked this very error as
// one behind which nothing was applied.
func marked(e error) bool {
	n, ok := e.(interface{ NotApplied() bool })
	return ok && n.NotApplied()
}

// certain reports whether err, the error of a COMMIT or of a statement in
// autocommit, says that nothing was applied.
func certain(err error) bool {
	return every(err, func(e error) bool {
		if unsent(e) || marked(e) || same(e, sql.ErrTxDone) || same(e, sql.ErrConnDone) {
			return true
		}
		c := codeOfOne(e)
		return c.family != noCode && classOfCode(c) != ConnLost
	})
}

// neverSent reports whether the driver says that the statement has not reached
// the server.
func neverSent(err error) bool { return every(err, unsent) }

// unsent is neverSent of this very error: of what dials, of pgconn's ConnectError,
// whose server has answered, if at all, before it could be asked anything, and of
// what a server says to a connection that it does not take.
func unsent(e error) bool {
	if s, ok := e.(interface{ SafeToRetry() bool }); ok && s.SafeToRetry() { // pgconn
		return true
	}
	switch n := e.(type) {
	case *net.OpError:
		return n.Op == "dial"
	case *net.DNSError:
		return true
	}
	if same(e, driver.ErrBadConn) {
		return true
	}
	if c := codeOfOne(e); c.family == sqlstate && c.state == "57P03" {
		return true
	}
	t := reflect.TypeOf(e)
	return t.Kind() == reflect.Pointer && t.Elem().Name() == "ConnectError" && path.Base(t.Elem().PkgPath()) == "pgconn"
}

// same is [errors.Is] without what e wraps.
func same(e, target error) bool {
	if is, ok := e.(interface{ Is(error) bool }); ok && is.Is(target) {
		return true
	}
	return reflect.TypeOf(e) == reflect.TypeOf(target) && e == target
}

// endsTransaction reports whether the server has, with this error, rolled back the
// whole transaction, or on SQLite, may have: after an interrupt, a full disk, an
// I/O error or a lack of memory it depends on what ran. PostgreSQL keeps an aborted
// transaction open, and lets nothing more run in it.
func endsTransaction(kind Kind, err error) bool {
	switch kind {
	case MySQL, MariaDB:
		c := codeOf(err)
		return c.family == mysqlNumber && (c.number == 1213 || c.number == 1020)
	case SQLite:
		switch ClassOf(err) {
		case Canceled, Exhausted, ConnLost:
			return true
		}
		return isContext(err)
	}
	return false
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}
