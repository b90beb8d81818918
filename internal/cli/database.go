package cli

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/dsn"
	"github.com/sqlnative/locks/sqldb"
)

// EnvDSN is where the DSN comes from without --dsn. It is read when it is needed and is
// no default of the flag, which the help would show.
const EnvDSN = "SQLLOCK_DSN"

// DSNs is what a help says of DSNs.
const DSNs = `The database is named by --dsn, or better by ` + EnvDSN + `, since other users of the
machine can read command lines:

  postgres://user:password@host:5432/database?sslmode=require
  host=db.example user=app password=... dbname=shop      (PostgreSQL's keywords)
  mysql://user:password@host:3306/database
  mariadb://user:password@host:3306/database
  user:password@tcp(host:3306)/database                  (MySQL and MariaDB)
  sqlite:path/to/file.db

mysql:// and mariadb:// both take either server: it is asked which it is.
In a URL, percent-encode what has a meaning there: @ is %40, / is %2F, # is %23.
`

// Database is what the command line says of the database.
type Database struct {
	DSN    string
	Schema string
	Prefix string
}

// Flags makes the flags for it. otherwise is what is taken where no DSN is given; it
// begins with a comma, or is empty.
func (d *Database) Flags(cmd *cobra.Command, otherwise string) {
	f := cmd.PersistentFlags()
	f.SortFlags = false
	f.StringVar(&d.DSN, "dsn", "", "the `DSN` of the database (default: $"+EnvDSN+otherwise+"): postgres://, mysql:// or mariadb:// (either takes both servers), sqlite:, user:password@tcp(host)/database, or PostgreSQL's host=... dbname=...")
	f.StringVar(&d.Schema, "schema", "", "the `schema` (MySQL and MariaDB: database) of sqllock's tables (default: where unqualified names lead)")
	f.StringVar(&d.Prefix, "table-prefix", sqldb.DefaultTablePrefix, "the `prefix` of the names of sqllock's tables")
}

// Check says what is wrong with --schema and --table-prefix.
func (d *Database) Check() error {
	if d.Schema != "" {
		if err := sqldb.CheckIdent(d.Schema); err != nil {
			return fmt.Errorf("--schema: %s", strings.TrimPrefix(err.Error(), "sqldb: "))
		}
	}
	if err := sqldb.CheckOptions(sqldb.TablePrefix(d.Prefix)); err != nil {
		return fmt.Errorf("--table-prefix %s", strings.TrimPrefix(err.Error(), "sqldb: option: table prefix "))
	}
	return nil
}

// CheckSchema says if there are no schemas to choose from.
func (d *Database) CheckSchema(kind sqldb.Kind) error {
	if kind == sqldb.SQLite && d.Schema != "" && d.Schema != "main" {
		return Usagef("--schema %s: SQLite has its tables in main: leave --schema out", d.Schema)
	}
	return nil
}

// Parse reads the DSN from the flag or the environment; nil if it stands in neither.
func (d *Database) Parse() (*dsn.DSN, error) {
	s, from := d.DSN, "--dsn"
	if s == "" {
		s, from = os.Getenv(EnvDSN), EnvDSN
	}
	if s == "" {
		return nil, nil
	}
	parsed, err := dsn.Parse(s)
	if err != nil {
		return nil, Usagef("%s: %w", from, err)
	}
	return parsed, nil
}

// Options are those of the handle.
func (d *Database) Options() []sqldb.Option {
	opts := []sqldb.Option{sqldb.TablePrefix(d.Prefix)}
	if d.Schema != "" {
		opts = append(opts, sqldb.Schema(d.Schema))
	}
	return opts
}

// Place is what every result about a live database begins with.
type Place struct {
	Database    string `json:"database"`
	Schema      string `json:"schema"`
	TablePrefix string `json:"table_prefix"`
}

// PlaceOf is that of a handle.
func PlaceOf(db *sqldb.DB) Place {
	return Place{Database: db.Kind().String(), Schema: db.Schema(), TablePrefix: db.TablePrefix()}
}

// Root makes of a command one that has others below it, and does nothing itself.
func Root(cmd *cobra.Command) {
	cmd.Version = Version()
	cmd.SetVersionTemplate("{{.Name}} {{.Version}}\n")
	cmd.SilenceErrors, cmd.SilenceUsage = true, true
	cmd.SuggestionsMinimumDistance = 2
	cmd.Args = cobra.ArbitraryArgs // RunE says what is wrong with them
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if len(args) == 0 {
			return errors.New("a command is missing")
		}
		if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
			return fmt.Errorf("unknown command %q: did you mean %s?", args[0], strings.Join(near, " or "))
		}
		return fmt.Errorf("unknown command %q", args[0])
	}
	cmd.SetHelpCommand(HelpCommand())
}

// OneArg is for a command with one argument, which is what; hint is how it goes.
func OneArg(what, hint string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) == 0:
			return fmt.Errorf("%s is missing: %s", what, hint)
		case len(args) > 1:
			return fmt.Errorf("one %s at a time: %s", what, hint)
		}
		return nil
	}
}
