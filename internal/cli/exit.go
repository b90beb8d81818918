// Package cli is what sqllock's commands have in common: exit codes, results as
// text or JSON, messages without passwords, and what Ctrl-C does.
package cli

import (
	"errors"
	"fmt"
)

// The exit codes of commands. They are a contract.
const (
	Done        = 0 // what was asked for was done
	Failed      = 1 // it was not; the message on stderr says why
	Usage       = 2 // the command line is wrong; nothing was done
	Pending     = 3 // migrations are pending (status --exit-code)
	LockTimeout = 4 // somebody else held a lock for too long; nothing is half done
)

// ExitError is an error that knows with which code the command ends.
type ExitError struct {
	Code int
	Err  error // nil: there is nothing to say
}

// Exit makes an [*ExitError]; with err nil it is a silent one.
func Exit(code int, err error) error { return &ExitError{Code: code, Err: err} }

// Usagef makes the error of a wrong command line.
func Usagef(format string, args ...any) error {
	return &ExitError{Code: Usage, Err: fmt.Errorf(format, args...)}
}

func (e *ExitError) Error() string {
	if e.Err == nil {
		return fmt.Sprintf("exit code %d", e.Code)
	}
	return e.Err.Error()
}

// Unwrap returns the reason.
func (e *ExitError) Unwrap() error { return e.Err }

// CodeOf is the exit code that err stands for: Done for nil, Failed for what is
// no [*ExitError].
func CodeOf(err error) int {
	if err == nil {
		return Done
	}
	var e *ExitError
	if errors.As(err, &e) {
		return e.Code
	}
	return Failed
}
