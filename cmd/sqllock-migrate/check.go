package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/migrations"
)

// checkResult is the JSON of check.
type checkResult struct {
	place
	OK       bool          `json:"ok"`
	Problems []problemJSON `json:"problems"`
}

type problemJSON struct {
	Table   string `json:"table"`
	Column  string `json:"column"`
	Problem string `json:"problem"`
	Fix     string `json:"fix"`
}

func (a *app) checkCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "check",
		Short: "Compare the live tables with what the library needs",
		Long: `check compares the tables in the database with what this release needs: tables,
columns, types, defaults, collations, keys and engine. It only reads. It ends with
1 if something differs, and says what to do: for what is missing, with the SQL that
makes it again.`,
		Example: `  sqllock-migrate check
  sqllock-migrate check --json | jq -r '.problems[].fix'`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.connected(refuse, func(ctx context.Context, s *session) error {
			problems, err := migrations.Check(ctx, s.db)
			if err != nil {
				return err
			}
			r := checkResult{place: s.place(), OK: len(problems) == 0, Problems: []problemJSON{}}
			for _, p := range problems {
				r.Problems = append(r.Problems, problemJSON{p.Table, p.Column, p.What, p.Fix})
			}
			err = s.out.Result(r, func(w io.Writer) error {
				for _, p := range problems {
					if _, err := fmt.Fprintln(w, p); err != nil {
						return err
					}
				}
				if r.OK {
					_, err := fmt.Fprintln(w, "the tables are as they should be")
					return err
				}
				return nil
			})
			if err != nil || r.OK {
				return err
			}
			return cli.Exit(cli.Failed, fmt.Errorf("problems: %d", len(problems)))
		}),
	}
}
