package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/migrations"
)

// statusResult is the JSON of status.
type statusResult struct {
	place
	Version    int64       `json:"version"`
	Latest     int64       `json:"latest"`
	Pending    int         `json:"pending"`
	Migrations []stateJSON `json:"migrations"`
}

type stateJSON struct {
	Version   int64      `json:"version"`
	Name      string     `json:"name"`
	Applied   bool       `json:"applied"`
	AppliedAt *time.Time `json:"applied_at"`
	Known     bool       `json:"known"`
}

// versionResult is the JSON of version.
type versionResult struct {
	place
	Version int64 `json:"version"`
	Latest  int64 `json:"latest"`
}

func (a *app) statusCommand() *cobra.Command {
	var exitCode bool
	cmd := &cobra.Command{
		Use:   "status",
		Short: "Show which migrations have been applied",
		Long: `status shows which migrations have been applied, and since when (UTC). It only
reads, takes no lock, and answers while another process migrates. Of an SQLite file
that does not exist yet, everything is pending.`,
		Example: `  sqllock-migrate status
  sqllock-migrate status --exit-code || sqllock-migrate up`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVar(&exitCode, "exit-code", false, "exit with 3 if migrations are pending")
	cmd.RunE = a.connected(empty, func(ctx context.Context, s *session) error {
		states, err := migrations.Status(ctx, s.db)
		if err != nil {
			return err
		}
		r := statusResult{place: s.place(), Latest: latest, Migrations: []stateJSON{}}
		for _, m := range states {
			j := stateJSON{Version: m.Version, Name: m.Name, Applied: m.Applied, Known: m.Known}
			if m.Applied {
				at := m.AppliedAt.UTC()
				j.AppliedAt = &at
				if r.Pending == 0 {
					r.Version = m.Version
				}
			} else {
				r.Pending++
			}
			r.Migrations = append(r.Migrations, j)
		}
		if err := s.out.Result(r, r.text(s.out.Table(cli.Columns("VERSION", "NAME", "STATE", "SINCE")...))); err != nil {
			return err
		}
		if r.Pending > 0 {
			s.out.Say("pending: %d; \"sqllock-migrate up\" applies them", r.Pending)
			if exitCode {
				return cli.Exit(cli.Pending, nil)
			}
		}
		return nil
	})
	return cmd
}

// text shows it to people.
func (r statusResult) text(t *cli.Table) func(w io.Writer) error {
	return func(w io.Writer) error {
		for _, m := range r.Migrations {
			state, since := cli.Cell{Text: "pending", Style: cli.Yellow}, ""
			if m.Applied {
				state, since = cli.Cell{Text: "applied", Style: cli.Green}, m.AppliedAt.Format("2006-01-02 15:04:05")
			}
			if !m.Known {
				state = cli.Cell{Text: "applied, by a later release", Style: cli.Cyan}
			}
			t.Row(cli.Cell{Text: fmt.Sprint(m.Version)}, cli.Cell{Text: m.Name, Style: cli.Bold}, state, cli.Cell{Text: since})
		}
		return t.Write(w)
	}
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Show the version that the tables have",
		Long: `version shows the version that the tables in the database have, 0 if there are
none. (--version shows that of this program.)`,
		Example:           `  sqllock-migrate version`,
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.connected(refuse, func(ctx context.Context, s *session) error {
			v, err := migrations.Version(ctx, s.db)
			if err != nil {
				return err
			}
			return s.out.Result(versionResult{place: s.place(), Version: v, Latest: latest}, func(w io.Writer) error {
				_, err := fmt.Fprintln(w, v)
				return err
			})
		}),
	}
}
