package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
)

// gcResult is the JSON of gc.
type gcResult struct {
	place
	Locks int64 `json:"locks"`
	Runs  int64 `json:"runs"`
}

func (a *app) gcCommand() *cobra.Command {
	var olderThan, keep time.Duration
	cmd := &cobra.Command{
		Use:   "gc",
		Short: "Remove the rows of locks that have long been free, and old runs",
		Long: `gc removes the rows of locks that have been free for long, and the history of runs
that have started long ago. It is safe beside everything else: tokens go on growing,
what is held or runs is left alone, and when a job is due is not in its history. A
lock whose name comes again needs no gc.`,
		Example:           "  sqllock gc\n  sqllock gc --older-than 24h --keep-runs 2160h",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().DurationVar(&olderThan, "older-than", 7*24*time.Hour, "how long a lock has to have been free; at least 1m")
	cmd.Flags().DurationVar(&keep, "keep-runs", 90*24*time.Hour, "how long the history is kept")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case olderThan < time.Minute:
			return fmt.Errorf("--older-than is %v; it has to be at least 1m", olderThan)
		case keep < 0:
			return fmt.Errorf("--keep-runs is %v; it cannot be negative", keep)
		}
		return a.connected(func(ctx context.Context, s *session, _ []string) error {
			r := gcResult{place: s.place()}
			var err error
			if r.Locks, err = s.locker.GC(ctx, olderThan); err != nil {
				return err
			}
			if r.Runs, err = s.jobs.Prune(ctx, keep); err != nil {
				return err
			}
			return s.out.Result(r, func(w io.Writer) error {
				return cli.Linef(w, "removed %d locks that were free for more than %v, and %d runs older than %v", r.Locks, olderThan, r.Runs, keep)
			})
		})(cmd, args)
	}
	return cmd
}
