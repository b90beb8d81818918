package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/internal/dsn"
)

const envDSN = cli.EnvDSN

// app is one run of the command.
type app struct {
	out     *cli.Output
	started bool // an error from here on is no error of the command line

	where       cli.Database
	lockTimeout time.Duration
}

// run is the whole command, in terms of its arguments and its exit code.
func run(args []string, stdout, stderr io.Writer) int {
	a := &app{out: &cli.Output{Program: "sqllock-migrate", Stdout: stdout, Stderr: stderr}}
	// Whatever was typed may come back in a message, also from where a DSN was
	// never meant to be.
	a.out.Hide(dsn.ScrubArgs(append([]string{os.Getenv(envDSN)}, args...)...))

	root := a.root()
	if arg := cli.MisplacedDSN(args); arg > 0 {
		// Nothing that would quote it in part gets to see it.
		return a.finish(root, cli.Usagef("argument %d looks like a DSN with a password: it goes into --dsn, or better into %s", arg, envDSN))
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
	if code == cli.Usage {
		a.out.Say("see \"%s --help\"", cmd.CommandPath())
	}
	return code
}

func (a *app) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "sqllock-migrate",
		Short: "Make and change the tables of sqllock",
		Long: `sqllock-migrate makes the tables of sqllock in a database, brings them up to
date, and compares them with what the library needs.

` + cli.DSNs + `
Results are written to stdout, messages to stderr. Exit codes: 0 done, 1 failed,
2 wrong usage, 3 migrations are pending (status --exit-code), 4 a lock was not had
within --lock-timeout. The first Ctrl-C ends the command after the migration that
is running, the second at once.`,
		Example: `  export ` + envDSN + `=postgres://app@db.example/shop
  sqllock-migrate status
  sqllock-migrate up
  sqllock-migrate sql postgres > sqllock.sql`,
	}
	cli.Root(root)
	f := root.PersistentFlags()
	a.where.Flags(root, "")
	f.DurationVar(&a.lockTimeout, "lock-timeout", defaultLockTimeout, "how long to wait in all for locks: another process that migrates, tables that are in use")
	f.BoolVar(&a.out.JSON, "json", false, "write the result as JSON")
	root.AddCommand(a.upCommand(), a.downCommand(), a.statusCommand(), a.versionCommand(), a.sqlCommand(), a.checkCommand(), a.columnCommand())
	return root
}

// How long to wait for locks: in all, and in one statement, behind which
// everybody else queues.
const (
	defaultLockTimeout = 5 * time.Minute
	ddlTimeout         = 3 * time.Second
)

// body makes the RunE of a command: what is wrong before it is a matter of usage.
func (a *app) body(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if a.lockTimeout <= 0 {
			return fmt.Errorf("--lock-timeout %s: it must be more than 0, as in --lock-timeout 5s", a.lockTimeout)
		}
		if err := a.where.Check(); err != nil {
			return err
		}
		a.started = true
		return f(cmd, args)
	}
}

// parseDSN reads the DSN from the flag or the environment.
func (a *app) parseDSN() (*dsn.DSN, error) {
	d, err := a.where.Parse()
	switch {
	case err != nil:
		return nil, err
	case d == nil:
		return nil, cli.Usagef("which database? Give --dsn, or set %s", envDSN)
	}
	a.out.Hide(d.Scrubber())
	return d, nil
}
