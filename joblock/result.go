package joblock

import (
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/lock"
)

// Outcome is how a run has ended, as it stands in the table of runs.
type Outcome string

// The outcomes.
const (
	// Running: it has not ended.
	Running Outcome = "running"
	// OK: fn has returned nil.
	OK Outcome = "ok"
	// Failed: fn has returned an error, or panicked.
	Failed Outcome = "failed"
	// TimedOut: [Job.AtMost] had passed when fn returned, whatever it returned.
	TimedOut Outcome = "timed_out"
	// Lost: the lock was lost while fn ran.
	Lost Outcome = "lost"
	// Abandoned: its process has died, or could not say how it ended.
	Abandoned Outcome = "abandoned"
)

// ErrTimedOut is the cause of fn's ctx when [Job.AtMost] has passed, and part of what
// Run then returns.
var ErrTimedOut = errors.New("joblock: AtMost has passed")

// Result says whether the job was run, or why not.
type Result struct {
	// Ran: this call has run the job. Run is the run's id in the history, Token its
	// fencing token, Outcome how it ended, and Took how long fn took.
	Ran     bool
	Run     string
	Token   int64
	Outcome Outcome
	Took    time.Duration

	// Held, if not nil, says who has the lock of the job, or has had it when AtLeast
	// has not yet passed.
	Held *lock.HeldError
	// NotDue: the last start is too short ago. Next is from when on the job is due, by
	// the database's clock.
	NotDue bool
	Next   time.Time
	// Disabled: the job is switched off; Note may say why.
	Disabled bool
	Note     string
}

// String says it in one line: "ran in 2.1s: ok", "skipped: not due until ...".
func (r Result) String() string {
	switch {
	case r.Ran:
		return fmt.Sprintf("ran in %v: %s", r.Took.Round(time.Millisecond), r.Outcome)
	case r.Held != nil:
		return "skipped: " + r.Held.Error()
	case r.NotDue:
		return "skipped: not due until " + r.Next.UTC().Format(time.RFC3339)
	case r.Disabled && r.Note != "":
		return "skipped: disabled: " + r.Note
	case r.Disabled:
		return "skipped: disabled"
	}
	return "not run"
}
