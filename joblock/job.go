package joblock

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/lock"
)

// Job says what runs, and how often. Every machine should say the same.
type Job struct {
	// Name is the job's: 1 to 251 bytes of UTF-8 without NUL. (A colon or a backslash
	// counts twice: see [LockName].)
	Name string
	// AtLeast keeps others from running the job until it has passed since the start,
	// also if the run ends earlier or its process is killed: for jobs that take less time
	// than the machines' clocks differ by. 0: the next may start when the run has ended.
	AtLeast time.Duration
	// AtMost ends the ctx of fn when it has passed; its cause is [ErrTimedOut]. The job
	// stays locked until fn has returned. 0: as long as it takes.
	AtMost time.Duration
	// Every is the period: a start is refused until Every - min(Every/10, 1 h) has
	// passed since the last one, by the database's clock. What is taken off is for the
	// jitter of the schedule; so the fires of a period, on all machines, have to be
	// closer together than the rest, and less than what is taken off early. 0: there is
	// no period.
	Every time.Duration
	// RetryFailed does not count a run that did not end with [OK] (one that was killed
	// included): the next fire runs the job, in the same period.
	RetryFailed bool
	// TTL is the lease of the lock: how long others wait for a machine that has died.
	// Default [lock.DefaultTTL]. It overrides what the Locker was given.
	TTL time.Duration
	// Label describes the holder to people, as [lock.Label] does.
	Label string
	// Note goes into the history: at most 1,000 characters.
	Note string
}

// minimum is the shortest of what a Job says in durations: SQLite's clock has
// milliseconds.
const minimum = time.Millisecond

// maximum keeps sums from overflowing.
const maximum = 100 * 365 * 24 * time.Hour

// LockName is the name of the lock of a job: lock.Name("job", name).
func LockName(name string) string { return lock.Name("job", name) }

// checkName says why name can't be a job's.
func checkName(name string) error {
	if err := lock.CheckName(name); err != nil {
		return err
	}
	if n := len(LockName(name)); n > lock.MaxName {
		return fmt.Errorf("%w: the job's name %.20q... is too long: the name of its lock has %d bytes, more than %d", lock.ErrInvalid, name, n, lock.MaxName)
	}
	return nil
}

// Check says what is wrong with the job; nil if nothing is. [Jobs.Run] asks it first,
// before the database is asked for anything; a program can do so as soon as it has read
// its configuration. The error wraps [lock.ErrInvalid], and names the field. What a
// Locker refuses, because its strategy cannot do it, only Run finds out.
func (j Job) Check() error {
	j = j.withDefaults()
	if err := checkName(j.Name); err != nil {
		return err
	}
	for _, d := range []struct {
		name  string
		value time.Duration
	}{{"AtLeast", j.AtLeast}, {"AtMost", j.AtMost}, {"Every", j.Every}} {
		if d.value != 0 && (d.value < minimum || d.value > maximum) {
			return fmt.Errorf("%w: job %q: %s is %v; it can be 0, or %v to %v", lock.ErrInvalid, j.Name, d.name, d.value, minimum, maximum)
		}
	}
	if j.Every != 0 && j.AtLeast > j.wait() {
		return fmt.Errorf("%w: job %q: AtLeast is %v, and the job is due again after %v: it would be kept from starting", lock.ErrInvalid, j.Name, j.AtLeast, j.wait())
	}
	if err := checkNote(j.Note); err != nil {
		return fmt.Errorf("%w: job %q: %w", lock.ErrInvalid, j.Name, err)
	}
	var o lock.Options
	for _, opt := range j.options() {
		if err := opt(&o); err != nil {
			return fmt.Errorf("%w: job %q: %w", lock.ErrInvalid, j.Name, err)
		}
	}
	return nil
}

// withDefaults fills in what was left open.
func (j Job) withDefaults() Job {
	if j.TTL == 0 {
		j.TTL = lock.DefaultTTL
	}
	return j
}

// checkNote says why a text can't be a note.
func checkNote(note string) error {
	switch {
	case !utf8.ValidString(note) || strings.IndexByte(note, 0) >= 0:
		return fmt.Errorf("the note %.20q has to be UTF-8 without NUL", note)
	case utf8.RuneCountInString(note) > schema.MaxHolder:
		return fmt.Errorf("the note %.20q... has more than %d characters", note, schema.MaxHolder)
	}
	return nil
}

// options are those of the lock, but for HoldAtLeast.
func (j *Job) options() []lock.Option {
	return []lock.Option{lock.Try(), lock.TTL(j.TTL), lock.Label(j.Label)}
}

// wait is how long after a start the next one is refused.
func (j *Job) wait() time.Duration { return j.Every - min(j.Every/10, time.Hour) }
