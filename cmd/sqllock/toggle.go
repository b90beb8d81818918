package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/lock"
)

// toggleResult is the JSON of disable and enable.
type toggleResult struct {
	place
	Job      string `json:"job"`
	Disabled bool   `json:"disabled"`
	Note     string `json:"note"`
}

func (a *app) disableCommand() *cobra.Command {
	var note string
	cmd := &cobra.Command{
		Use:   "disable JOB",
		Short: "Switch a job off, on all machines",
		Long: `disable switches a job off on all machines, from its next start on: "sqllock run"
and joblock skip it. What runs goes on. The job need not have run before.`,
		Example:           "  sqllock disable nightly-report --note \"until the disk is replaced\"",
		Args:              oneName("JOB"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().StringVar(&note, "note", "", "why, and by whom: those who skip it say so")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		var o lock.Options
		if err := lock.Label(note)(&o); err != nil {
			return fmt.Errorf("--note: %w", err)
		}
		return a.connected(func(ctx context.Context, s *session, args []string) error {
			if err := s.jobs.Disable(ctx, args[0], note); err != nil {
				return err
			}
			return s.toggled(toggleResult{s.place(), args[0], true, note}, "disabled")
		})(cmd, args)
	}
	return cmd
}

func (a *app) enableCommand() *cobra.Command {
	return &cobra.Command{
		Use:               "enable JOB",
		Short:             "Switch a job on again",
		Long:              `enable switches on a job that "sqllock disable" has switched off.`,
		Example:           "  sqllock enable nightly-report",
		Args:              oneName("JOB"),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.connected(func(ctx context.Context, s *session, args []string) error {
			if err := s.jobs.Enable(ctx, args[0]); err != nil {
				return err
			}
			return s.toggled(toggleResult{s.place(), args[0], false, ""}, "enabled")
		}),
	}
}

func (s *session) toggled(r toggleResult, what string) error {
	return s.out.Result(r, func(w io.Writer) error {
		return cli.Linef(w, "%s %s", what, r.Job)
	})
}
