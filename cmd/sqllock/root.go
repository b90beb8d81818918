package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/internal/dsn"
)

const envDSN = cli.EnvDSN

// app is one run of the command.
type app struct {
	out     *cli.Output
	started bool // an error from here on is no error of the command line

	where   cli.Database
	migrate bool
}

// run is the whole command, in terms of its arguments and its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	a := &app{out: &cli.Output{Program: "sqllock", Stdout: stdout, Stderr: stderr}}
	// Whatever was typed may come back in a message, also from where a DSN was
	// never meant to be.
	a.out.Hide(dsn.ScrubArgs(append([]string{os.Getenv(envDSN)}, args...)...))

	root := a.root()
	if arg := cli.MisplacedDSN(own(args)); arg > 0 {
		// Nothing that would quote it in part gets to see it.
		cmd := root
		if found, _, err := root.Find(args); err == nil {
			cmd = found
		}
		return a.finish(cmd, cli.Usagef("argument %d looks like a DSN with a password: it goes into --dsn, or better into %s", arg, envDSN))
	}
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	cmd, err := root.ExecuteContextC(context.Background())
	if err != nil && !a.started {
		err = cli.Exit(cli.Usage, err)
	}
	return a.finish(cmd, err)
}

// finish says what err says, and where to read how the command is used if that was
// the error.
func (a *app) finish(cmd *cobra.Command, err error) int {
	code := a.out.Finish(err)
	if code == cli.Usage && !a.started || isUsage(err) {
		a.out.Say("see \"%s --help\"", cmd.CommandPath())
		if cmd.Name() == "run" {
			return exitUsage
		}
	}
	return code
}

// isUsage reports whether err is one of a wrong command line.
func isUsage(err error) bool {
	var u *usageError
	return errors.As(err, &u)
}

// usageError is a wrong command line that was found when the command had begun.
type usageError struct{ error }

func (u *usageError) Unwrap() error { return u.error }

func usagef(format string, args ...any) error {
	return cli.Exit(cli.Usage, &usageError{fmt.Errorf(format, args...)})
}

// own is what stands before --, behind which all is another program's.
func own(args []string) []string {
	if dash := slices.Index(args, "--"); dash >= 0 {
		return args[:dash]
	}
	return args
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sqllock",
		Short: "Run commands under a lock in a SQL database, and look after the locks",
		Long: `sqllock runs a command on one machine at a time, under a lock in a SQL database,
and shows who holds and waits for locks.

` + cli.DSNs + `
Where neither is set it is an SQLite file in $XDG_STATE_HOME/sqllock or
~/.local/state/sqllock, which is made on first use and excludes the processes of
this machine only. In any other database the tables are made with --migrate, or by
sqllock-migrate, and never just so.

Results are written to stdout, messages to stderr. Exit codes: 0 done, 1 failed,
2 wrong usage; those of "run" are in its own help. On a terminal there are colours,
unless NO_COLOR is set, and one that is too narrow gets fewer columns; a pipe gets all
of them, in plain text, and --json is for programs.`,
		Example: `  sqllock run demo -- echo hello
  export ` + envDSN + `=postgres://app@db.example/shop
  sqllock run nightly-report --at-most 1h -- ./report.sh
  sqllock ls
  sqllock history nightly-report`,
	}
	cli.Root(root)
	f := root.PersistentFlags()
	a.where.Flags(root, ", else an SQLite file of this machine")
	f.BoolVar(&a.migrate, "migrate", false, "make sqllock's tables first, or bring them up to date")
	f.BoolVar(&a.out.JSON, "json", false, "write the result as JSON (run: one line on stderr)")
	root.AddCommand(a.runCommand(), a.lsCommand(), a.showCommand(), a.historyCommand(), a.releaseCommand(),
		a.disableCommand(), a.enableCommand(), a.doctorCommand(), a.gcCommand())
	return root
}

// body makes the RunE of a command: what is wrong before it is a matter of usage.
func (a *app) body(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.where.Check(); err != nil {
			return err
		}
		a.started = true
		return f(cmd, args)
	}
}

// oneName is for a command with one argument, the name of a lock or a job.
func oneName(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cli.OneArg(what, "sqllock "+cmd.Use)(cmd, args); err != nil {
			return err
		}
		return checkJob(args[0])
	}
}
