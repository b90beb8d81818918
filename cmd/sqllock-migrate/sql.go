package main

import (
	"io"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// sqlResult is the JSON of sql.
type sqlResult struct {
	Database string `json:"database"`
	SQL      string `json:"sql"`
}

func (a *app) sqlCommand() *cobra.Command {
	var to int64
	cmd := &cobra.Command{
		Use:   "sql DATABASE",
		Short: "Print the SQL of all migrations, for other migration tools",
		Long: `sql prints the SQL of all migrations for DATABASE, one of postgres, mysql,
mariadb, sqlite. It needs no database. Names have no schema in front unless
--schema says so. "check" tells whether what was made of it serves.`,
		Example: `  sqllock-migrate sql postgres > V7__sqllock.sql
  sqllock-migrate sql mysql --table-prefix locks_ --to 3`,
		Args:              cli.OneArg("DATABASE", "postgres, mysql, mariadb, sqlite"),
		ValidArgsFunction: completeKinds,
		RunE: func(cmd *cobra.Command, args []string) error {
			kind, err := sqldb.ParseKind(args[0])
			if err != nil {
				return cli.Exit(cli.Usage, err)
			}
			if err := a.where.CheckSchema(kind); err != nil {
				return err
			}
			opts := []migrations.Option{migrations.TablePrefix(a.where.Prefix)}
			if a.where.Schema != "" {
				opts = append(opts, migrations.Schema(a.where.Schema))
			}
			if cmd.Flags().Changed("to") {
				if to < 1 || to > latest {
					return cli.Usagef("--to %d: it is a version from 1 to %d", to, latest)
				}
				opts = append(opts, migrations.To(to))
			}
			return a.body(func(*cobra.Command, []string) error {
				text, err := migrations.SQL(kind, opts...)
				if err != nil {
					return cli.Exit(cli.Usage, err) // it depends on nothing else
				}
				return a.out.Result(sqlResult{Database: kind.String(), SQL: text}, func(w io.Writer) error {
					_, err := io.WriteString(w, text)
					return err
				})
			})(cmd, args)
		},
	}
	cmd.Flags().Int64Var(&to, "to", 0, "end at this `version`")
	return cmd
}
