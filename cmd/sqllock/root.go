package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/internal/dsn"
	"github.com/sqlnative/locks/sqldb"
)

// envDSN is where the DSN comes from without --dsn. It is read when it is needed
// and is no default of the flag, which the help would show.
const envDSN = "SQLLOCK_DSN"

// app is one run of the command.
type app struct {
	out     *cli.Output
	started bool // an error from here on is no error of the command line

	dsn     string
	schema  string
	prefix  string
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

The database is named by --dsn, or better by ` + envDSN + `, since other users of the
machine can read command lines:

  postgres://user:password@host:5432/database?sslmode=require
  host=db.example user=app password=... dbname=shop      (PostgreSQL's keywords)
  mysql://user:password@host:3306/database
  mariadb://user:password@host:3306/database
  user:password@tcp(host:3306)/database                  (MySQL and MariaDB)
  sqlite:path/to/file.db

mysql:// and mariadb:// both take either server: it is asked which it is.
In a URL, percent-encode what has a meaning there: @ is %40, / is %2F, # is %23.
With neither it is an SQLite file in $XDG_STATE_HOME/sqllock or
~/.local/state/sqllock, which is made on first use and excludes the processes of
this machine only. In any other database the tables are made with --migrate, or by
sqllock-migrate, and never just so.

Results are written to stdout, messages to stderr. Exit codes: 0 done, 1 failed,
2 wrong usage; those of "run" are in its own help. Colours are for terminals;
NO_COLOR turns them off.`,
		Example: `  sqllock run demo -- echo hello
  export ` + envDSN + `=postgres://app@db.example/shop
  sqllock run nightly-report --at-most 1h -- ./report.sh
  sqllock ls
  sqllock history nightly-report`,
		Version:       cli.Version(),
		SilenceErrors: true,
		SilenceUsage:  true,
		Args:          cobra.ArbitraryArgs, // RunE says what is wrong with them

		SuggestionsMinimumDistance: 2,
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
					return fmt.Errorf("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))
				}
				return fmt.Errorf("unknown command %q", args[0])
			}
			return errors.New("a command is missing")
		},
	}
	root.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	root.SetHelpCommand(cli.HelpCommand())
	f := root.PersistentFlags()
	f.SortFlags = false
	f.StringVar(&a.dsn, "dsn", "", "the `DSN` of the database (default: $"+envDSN+", else an SQLite file of this machine): postgres://, mysql:// or mariadb:// (either takes both servers), sqlite:, user:password@tcp(host)/database, or PostgreSQL's host=... dbname=...")
	f.StringVar(&a.schema, "schema", "", "the `schema` (MySQL and MariaDB: database) of sqllock's tables (default: where unqualified names lead)")
	f.StringVar(&a.prefix, "table-prefix", sqldb.DefaultTablePrefix, "the `prefix` of the names of sqllock's tables")
	f.BoolVar(&a.migrate, "migrate", false, "make sqllock's tables first, or bring them up to date")
	f.BoolVar(&a.out.JSON, "json", false, "write the result as JSON (run: one line on stderr)")
	root.AddCommand(a.runCommand(), a.lsCommand(), a.showCommand(), a.historyCommand(), a.releaseCommand(),
		a.disableCommand(), a.enableCommand(), a.doctorCommand(), a.gcCommand())
	return root
}

// body makes the RunE of a command: what is wrong before it is a matter of usage.
func (a *app) body(f func(cmd *cobra.Command, args []string) error) func(*cobra.Command, []string) error {
	return func(cmd *cobra.Command, args []string) error {
		if err := a.checkNames(); err != nil {
			return err
		}
		a.started = true
		return f(cmd, args)
	}
}

// checkNames says what is wrong with --schema and --table-prefix.
func (a *app) checkNames() error {
	if a.schema != "" {
		if err := sqldb.CheckIdent(a.schema); err != nil {
			return fmt.Errorf("--schema: %s", strings.TrimPrefix(err.Error(), "sqldb: "))
		}
	}
	if err := sqldb.CheckOptions(sqldb.TablePrefix(a.prefix)); err != nil {
		return fmt.Errorf("--table-prefix %s", strings.TrimPrefix(err.Error(), "sqldb: option: table prefix "))
	}
	return nil
}

// oneName is for a command with one argument, the name of a lock or a job.
func oneName(what string) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("%s is missing: sqllock %s", what, cmd.Use)
		case len(args) > 1:
			return fmt.Errorf("one %s at a time: sqllock %s", what, cmd.Use)
		}
		return checkJob(args[0])
	}
}
