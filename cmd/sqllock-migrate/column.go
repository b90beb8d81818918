package main

import (
	"context"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/sqldb"
)

// columnResult is the JSON of version-column.
type columnResult struct {
	Table   string `json:"table"`
	Column  string `json:"column"`
	SQL     string `json:"sql"`
	Applied bool   `json:"applied"`
	Existed bool   `json:"existed"`
}

func (a *app) columnCommand() *cobra.Command {
	var column, database string
	var apply bool
	cmd := &cobra.Command{
		Use:   "version-column TABLE",
		Short: "Give a table of yours the version column of optimistic locking",
		Long: `version-column prints the statement that adds a version column to TABLE, one of
your own tables: BIGINT NOT NULL DEFAULT 0, as package optimistic needs it. With
--apply it runs the statement, unless the column is there already.

TABLE is a name, or SCHEMA.TABLE (MySQL and MariaDB: DATABASE.TABLE). Without a
schema it is the table that a connection finds by that name; --schema, which is
about the tables of sqllock, does not matter here.

Without --apply no connection is made: the DSN only tells the kind of database,
and --database does, too. Adding such a column is a matter of metadata for
PostgreSQL 11+, MySQL 8.0+ and MariaDB 10.3+; it needs the table to itself for a
moment, for which it queues 3s at most at a time, since everybody else queues behind
it, and tries again until --lock-timeout has passed in all (exit code 4).

JSON: {"table", "column", "sql", "applied": was the statement run, "existed": was
the column there already}.`,
		Example: `  sqllock-migrate version-column t_bonus --database mysql
  sqllock-migrate version-column shop.t_bonus --apply --lock-timeout 2s`,
		Args:              cli.OneArg("TABLE", "the table that gets the column, as in t_bonus or shop.t_bonus"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := a.columnKind(database, apply)
			if err != nil {
				return err
			}
			c := versionColumn{table: args[0], column: column}
			if err := c.check(kind); err != nil {
				return err
			}
			return a.body(func(cmd *cobra.Command, _ []string) error { return a.runColumn(cmd, kind, c, apply) })(cmd, args)
		},
	}
	cmd.Flags().StringVar(&column, "column", "version", "the `name` of the column")
	cmd.Flags().BoolVar(&apply, "apply", false, "run the statement instead of printing it")
	cmd.Flags().StringVar(&database, "database", "", "print for this `kind` of database, without a DSN: postgres, mysql, mariadb or sqlite")
	_ = cmd.RegisterFlagCompletionFunc("database", func(cmd *cobra.Command, _ []string, s string) ([]string, cobra.ShellCompDirective) {
		return completeKinds(cmd, nil, s)
	})
	return cmd
}

func (a *app) columnKind(database string, apply bool) (sqldb.Kind, error) {
	if database != "" {
		if apply {
			return 0, cli.Usagef("--database is for printing: with --apply, the DSN says which database it is")
		}
		kind, err := sqldb.ParseKind(database)
		if err != nil {
			return 0, cli.Usagef("--database: %w", err)
		}
		return kind, nil
	}
	d, err := a.parseDSN()
	if err != nil {
		return 0, err
	}
	return d.Kind(), nil
}

func (a *app) runColumn(cmd *cobra.Command, kind sqldb.Kind, c versionColumn, apply bool) error {
	if !apply {
		return a.columnResult(columnResult{Table: c.table, Column: c.column, SQL: c.sql(kind)})
	}
	return a.withDB(cmd.Context(), refuse, func(ctx context.Context, s *session) error {
		added, err := c.apply(ctx, s.in.Hard(), s.db, a.lockTimeout, func() {
			a.out.Say("table %s is in use: trying again for up to %s", c.table, a.lockTimeout)
		})
		if err != nil {
			return err
		}
		if !added {
			a.out.Say("column %s of %s is there already: nothing was done", c.column, c.table)
		}
		return a.columnResult(columnResult{Table: c.table, Column: c.column, SQL: c.sql(s.db.Kind()), Applied: added, Existed: !added})
	})
}

func (a *app) columnResult(r columnResult) error {
	return a.out.Result(r, func(w io.Writer) error {
		if r.Existed {
			return nil
		}
		_, err := fmt.Fprintf(w, "%s;\n", r.SQL)
		return err
	})
}

func completeKinds(_ *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	var names []string
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	for _, k := range sqldb.Kinds() {
		names = append(names, k.String())
	}
	return names, cobra.ShellCompDirectiveNoFileComp
}

// versionColumn is a column to be added to a table.
type versionColumn struct{ table, column string }

// check says what is wrong with the names, before any connection.
func (c versionColumn) check(kind sqldb.Kind) error {
	if _, err := kind.QuoteTable(c.table); err != nil {
		return cli.Exit(cli.Usage, err)
	}
	if err := sqldb.CheckIdent(c.column); err != nil {
		return cli.Usagef("--column: %w", err)
	}
	if schema, _ := c.split(); kind == sqldb.SQLite && schema != "" && schema != "main" {
		return cli.Usagef("table %s: SQLite has its tables in main", c.table)
	}
	return nil
}

// split cuts the schema off the table's name.
func (c versionColumn) split() (schema, table string) {
	if s, t, ok := strings.Cut(c.table, "."); ok {
		return s, t
	}
	return "", c.table
}

// sql is the statement.
func (c versionColumn) sql(kind sqldb.Kind) string {
	table, _ := kind.QuoteTable(c.table) // check has seen it
	return fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s BIGINT NOT NULL DEFAULT 0", table, kind.Quote(c.column))
}
