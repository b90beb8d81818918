package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/internal/guardian"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
)

// The exit codes of run, besides the command's own. Those below 100 are from BSD's
// sysexits.h, the others are what shells use.
const (
	exitUsage         = 64  // EX_USAGE: the command line is wrong; nothing was done
	exitUnavailable   = 69  // EX_UNAVAILABLE: the database cannot be reached or used
	exitInternal      = 70  // EX_SOFTWARE: the guardian of the command is gone
	exitNotHad        = 75  // EX_TEMPFAIL: held by another, not due, or disabled; the command was not run
	exitLost          = 76  // EX_PROTOCOL: the lock was lost while the command ran
	exitNotExecutable = 126 // the command cannot be executed
	exitNotFound      = 127 // there is no such command
	exitSignal        = 128 // and the number of the signal that has killed it
)

// atMostGrace is how long a command may take to end after SIGTERM when --at-most has
// passed.
const atMostGrace = 10 * time.Second

// The strategies.
const (
	strategyTable    = "table"
	strategyAdvisory = "advisory"
)

// runOptions are the flags of run, and its arguments.
type runOptions struct {
	name     string
	path     string // of the command
	args     []string
	wait     time.Duration
	ttl      time.Duration
	atLeast  time.Duration
	atMost   time.Duration
	every    time.Duration
	strategy string
	label    string
	conflict int
	quiet    bool
}

func (a *app) runCommand() *cobra.Command {
	var o runOptions
	cmd := &cobra.Command{
		Use:   "run NAME [flags] -- COMMAND [ARGUMENT...]",
		Short: "Run a command under a lock, so that it runs on one machine at a time",
		Long: `run runs a command while it holds the lock of the job NAME, and skips it if another
holds it. Each run leaves a row in the history ("sqllock history NAME"), and
"sqllock disable NAME" switches the job off everywhere; programs that use the
package joblock under the same name are excluded, too.

The command is executed as it stands, without a shell, in a process group of its
own. Its streams are those of sqllock. Where it needs the terminal it gets it; Ctrl-C
reaches it, and Ctrl-Z does not stop it, since who is stopped loses the lock. All
signals that sqllock gets are forwarded to the group; those that come while the lock
is waited for end the waiting. Processes that the command leaves running in its group
when it ends are ended: SIGTERM, and SIGKILL 5s later.

The lock is renewed while the command runs. If it cannot be, because the database is
gone, the connection hangs, or sqllock is stopped or killed, the group gets SIGTERM
well before the lease can no longer be trusted, and SIGKILL before it is. A small
process, "sqllock ` + guardian.Arg + `", sees to that; it is the parent of the command.

Not covered: a machine that is frozen as a whole (a suspended VM) goes on after its
lease; so do a command whose sqllock and guardian were both killed (kill -9), processes
that leave the group (setsid, daemons), and work that the command has handed to others.
What is written to the same database can be guarded: SQLLOCK_NAME, SQLLOCK_OWNER and
SQLLOCK_TOKEN stand in the command's environment, for (*sqllock.Locker).Attach and
Guard. With --strategy advisory there is no token.

Exit codes: that of the command; 128 and the signal's number if a signal has killed
it, or has ended the waiting;
  ` + codes,
		Example: `  sqllock run demo -- echo hello
  sqllock run nightly-report --at-most 1h -- ./report.sh
  sqllock run invoices --every 24h --at-least 1m --conflict-exit-code 0 --quiet -- ./invoices
  sqllock run deploy --wait 10m -- make deploy
  sqllock run etl -- sh -c 'extract | load'`,
		ValidArgsFunction: cobra.NoFileCompletions,
		Args:              o.arguments,
	}
	f := cmd.Flags()
	f.SortFlags = false
	f.DurationVar(&o.wait, "wait", 0, "wait for the lock for so long, as in 30s (default: skip at once)")
	f.DurationVar(&o.ttl, "ttl", lock.DefaultTTL, "how long others wait for a machine that has died")
	f.DurationVar(&o.atLeast, "at-least", 0, "keep others off for so long since the start, even if the command takes less, or dies")
	f.DurationVar(&o.atMost, "at-most", 0, "SIGTERM the command after so long, SIGKILL 10s later; the lock is held until it has ended (default: as long as it takes)")
	f.DurationVar(&o.every, "every", 0, "skip if it has started within this period on any machine, less a tenth (1h at most), by the database's clock")
	f.StringVar(&o.strategy, "strategy", strategyTable, "what the lock is: `table` or advisory (PostgreSQL's advisory locks, GET_LOCK; needs no tables, and has no history, without --every)")
	f.StringVar(&o.label, "label", "", "describes the holder to people, beside host and pid")
	f.IntVar(&o.conflict, "conflict-exit-code", exitNotHad, "the exit `code` if the lock is not had, or the job is not due or disabled")
	f.BoolVarP(&o.quiet, "quiet", "q", false, "say nothing in that case")
	_ = cmd.RegisterFlagCompletionFunc("strategy", cobra.FixedCompletions([]string{strategyTable, strategyAdvisory}, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = a.body(func(cmd *cobra.Command, _ []string) error {
		if err := o.check(); err != nil {
			return err
		}
		code, err := a.underLock(cmd.Context(), &o)
		if err == nil && code == 0 {
			return nil
		}
		return cli.Exit(code, err)
	})
	return cmd
}

const codes = `64 wrong usage, 69 the database cannot be reached or used, 70 internal,
  75 not run: the lock is held, the job is not due or disabled (--conflict-exit-code),
  76 the lock was lost, 126 the command cannot be executed, 127 it is not found.`

// arguments are NAME and, behind --, the command.
func (o *runOptions) arguments(cmd *cobra.Command, args []string) error {
	dash := cmd.ArgsLenAtDash()
	switch {
	case dash < 0 && len(args) == 0, dash == 0:
		return errors.New("NAME is missing: sqllock run NAME -- COMMAND")
	case dash < 0:
		return errors.New("-- is missing in front of the command: sqllock run NAME -- COMMAND")
	case dash > 1:
		return fmt.Errorf("one NAME at a time, and the command behind --: sqllock run NAME -- COMMAND")
	case len(args) == dash || args[dash] == "":
		return errors.New("the command is missing behind --: sqllock run NAME -- COMMAND")
	}
	o.name, o.args = args[0], args[dash:]
	return checkJob(o.name)
}

// check says what is wrong with the flags, before anything is done.
func (o *runOptions) check() error {
	if err := lock.Wait(o.wait)(&lock.Options{}); err != nil {
		return usagef("--wait: %w", err)
	}
	if o.ttl == 0 { // to a Job it would be the default
		return usagef("--ttl is 0; it is %v or more", lock.MinTTL)
	}
	if err := o.job().Check(); err != nil {
		return usagef("%w", &flagError{o.name, err})
	}
	switch {
	case o.strategy != strategyTable && o.strategy != strategyAdvisory:
		return usagef("--strategy %q: there are table and advisory", o.strategy)
	case o.conflict < 0 || o.conflict > 255:
		return usagef("--conflict-exit-code is %d; an exit code is 0 to 255", o.conflict)
	case o.strategy == strategyAdvisory && o.atLeast > 0 && o.every == 0:
		return usagef("--at-least: an advisory lock cannot outlive its holder: take --strategy table, or add --every")
	}
	return o.look()
}

// job is what the flags say of the job.
func (o *runOptions) job() joblock.Job {
	return joblock.Job{Name: o.name, AtLeast: o.atLeast, AtMost: o.atMost, Every: o.every, TTL: o.ttl, Label: o.label}
}

// flagError is what is wrong with a Job, in the words of the command line.
type flagError struct {
	name string
	error
}

// flagNames are the flags of a Job's fields.
var flagNames = strings.NewReplacer("AtLeast", "--at-least", "AtMost", "--at-most", "Every", "--every", "TTL", "--ttl", "the label", "--label")

func (e *flagError) Error() string {
	text := e.error.Error()
	if _, said, ok := strings.Cut(text, fmt.Sprintf("job %q: ", e.name)); ok { // the job may be called like a field
		return flagNames.Replace(said)
	}
	return text
}

func (e *flagError) Unwrap() error { return e.error }

// look finds the command, so that no lock is taken for one that is not there.
func (o *runOptions) look() error {
	path, err := exec.LookPath(o.args[0])
	switch {
	case err == nil:
		o.path = path
		return nil
	case errors.Is(err, exec.ErrNotFound), errors.Is(err, fs.ErrNotExist):
		return cli.Exit(exitNotFound, fmt.Errorf("%s: command not found", o.args[0]))
	}
	var e *exec.Error
	if errors.As(err, &e) {
		err = e.Err
	}
	return cli.Exit(exitNotExecutable, fmt.Errorf("%s: cannot be executed: %w", o.args[0], err))
}
