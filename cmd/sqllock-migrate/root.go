package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

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

	dsn         string
	schema      string
	prefix      string
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

Results are written to stdout, messages to stderr. Exit codes: 0 done, 1 failed,
2 wrong usage, 3 migrations are pending (status --exit-code), 4 a lock was not had
within --lock-timeout. The first Ctrl-C ends the command after the migration that
is running, the second at once.`,
		Example: `  export ` + envDSN + `=postgres://app@db.example/shop
  sqllock-migrate status
  sqllock-migrate up
  sqllock-migrate sql postgres > sqllock.sql`,
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
	f.StringVar(&a.dsn, "dsn", "", "the `DSN` of the database (default: $"+envDSN+"): postgres://, mysql:// or mariadb:// (either takes both servers), sqlite:, user:password@tcp(host)/database, or PostgreSQL's host=... dbname=...")
	f.StringVar(&a.schema, "schema", "", "the `schema` (MySQL and MariaDB: database) of sqllock's tables (default: where unqualified names lead)")
	f.StringVar(&a.prefix, "table-prefix", sqldb.DefaultTablePrefix, "the `prefix` of the names of sqllock's tables")
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

// checkSchema says if there are no schemas to choose from.
func (a *app) checkSchema(kind sqldb.Kind) error {
	if kind == sqldb.SQLite && a.schema != "" && a.schema != "main" {
		return cli.Usagef("--schema %s: SQLite has its tables in main: leave --schema out", a.schema)
	}
	return nil
}

// oneOf is for a command with one argument, which is what.
func oneOf(what, example string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("%s is missing: %s", what, example)
		case len(args) > 1:
			return fmt.Errorf("one %s at a time: %s", what, example)
		}
		return nil
	}
}

// options are those of the handle.
func (a *app) options() []sqldb.Option {
	opts := []sqldb.Option{sqldb.TablePrefix(a.prefix)}
	if a.schema != "" {
		opts = append(opts, sqldb.Schema(a.schema))
	}
	return opts
}

// parseDSN reads the DSN from the flag or the environment.
func (a *app) parseDSN() (*dsn.DSN, error) {
	s, from := a.dsn, "--dsn"
	if s == "" {
		s, from = os.Getenv(envDSN), envDSN
	}
	if s == "" {
		return nil, cli.Usagef("which database? Give --dsn, or set %s", envDSN)
	}
	d, err := dsn.Parse(s)
	if err != nil {
		return nil, cli.Usagef("%s: %w", from, err)
	}
	a.out.Hide(d.Scrubber())
	return d, nil
}
