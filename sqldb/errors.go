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
)

// Retryable reports whether err says that the server has surely undone what ran,
// for a reason that another try may not meet: a deadlock, a serialization failure,
// a lock timeout. After a lock timeout (1205) MySQL and MariaDB have undone the
// statement only: the transaction must be rolled back before it is tried again,
// as [Retry] demands of its function.
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
	return false
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
// came straight from a driver, a broken connection counts as uncertain.
//
// It cannot see the one case in which a caller's own context ended the caller's
// own Commit: the driver's error is a context error then, and such an error is
// taken for what it is nearly everywhere else, an end before anything was applied.
// [DB.InTx] commits so that this does not happen.
func Uncertain(err error) bool {
	var u *UncertainError
	if errors.As(err, &u) {
		return true
	}
	return ClassOf(err) == ConnLost && !neverSent(err) && !notApplied(err)
}

// undone marks an error behind which nothing was applied, whatever its cause says
// about the connection.
type undone struct{ error }

func (undone) NotApplied() bool { return true }
func (u undone) Unwrap() error  { return u.error }

// notApplied reports whether an adapter, or sqldb itself, has marked err as one
// behind which nothing was applied.
func notApplied(err error) bool {
	var n interface{ NotApplied() bool }
	return errors.As(err, &n) && n.NotApplied()
}

// certain reports whether err, the error of a COMMIT or of a statement in
// autocommit, says that nothing was applied.
func certain(err error) bool {
	if neverSent(err) || notApplied(err) || errors.Is(err, sql.ErrTxDone) || errors.Is(err, sql.ErrConnDone) {
		return true
	}
	return codeOf(err).family != noCode && ClassOf(err) != ConnLost
}

// neverSent reports whether the driver says that the statement has not reached
// the server.
func neverSent(err error) bool {
	var s interface{ SafeToRetry() bool } // pgconn
	if errors.As(err, &s) && s.SafeToRetry() {
		return true
	}
	var op *net.OpError
	if errors.As(err, &op) && op.Op == "dial" {
		return true
	}
	var dns *net.DNSError
	return errors.As(err, &dns) || errors.Is(err, driver.ErrBadConn) || neverConnected(err)
}

// neverConnected finds pgconn's ConnectError, whose server has answered, if at
// all, before it could be asked anything, and what a server says to a connection
// that it does not take.
func neverConnected(err error) bool {
	return walk(err, func(e error) bool {
		if c := codeOfOne(e); c.family == sqlstate && c.state == "57P03" {
			return true
		}
		t := reflect.TypeOf(e)
		return t.Kind() == reflect.Pointer && t.Elem().Name() == "ConnectError" && path.Base(t.Elem().PkgPath()) == "pgconn"
	})
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
