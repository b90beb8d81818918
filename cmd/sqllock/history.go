package main

import (
	"context"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/joblock"
)

// historyResult is the JSON of history.
type historyResult struct {
	place
	Now  time.Time `json:"now"`
	Runs []runJSON `json:"runs"`
}

// runJSON is one run, in the results of history and show.
type runJSON struct {
	ID         string     `json:"id"`
	Job        string     `json:"job"`
	Token      int64      `json:"token"`
	Host       string     `json:"host"`
	Address    string     `json:"address"`
	PID        int        `json:"pid"`
	Started    time.Time  `json:"started"`
	Finished   *time.Time `json:"finished"`
	DurationMS *int64     `json:"duration_ms"`
	Outcome    string     `json:"outcome"`
	ExitCode   *int       `json:"exit_code"`
	Error      string     `json:"error"`
	Note       string     `json:"note"`
}

func runsOf(all []joblock.Run) []runJSON {
	list := []runJSON{}
	for _, r := range all {
		j := runJSON{
			ID: r.ID, Job: r.Job, Token: r.Token, Host: r.Host, Address: r.Address, PID: r.PID, Started: r.Started.UTC(),
			Outcome: string(r.Outcome), ExitCode: r.ExitCode, Error: r.Error, Note: r.Note,
		}
		if r.Finished != nil {
			at, ms := r.Finished.UTC(), r.Finished.Sub(r.Started).Milliseconds()
			j.Finished, j.DurationMS = &at, &ms
		}
		list = append(list, j)
	}
	return list
}

func (a *app) historyCommand() *cobra.Command {
	var f joblock.Filter
	var outcome string
	cmd := &cobra.Command{
		Use:   "history [JOB]",
		Short: "Show the runs of a job, or of all, the latest first",
		Long: `history shows the runs of a job, or of all jobs, the latest first: of "sqllock run"
and of programs that use the package joblock. How a run has ended is one of running,
ok, failed, timed_out (--at-most), lost (its lock), abandoned (its process has died).`,
		Example:           "  sqllock history\n  sqllock history nightly-report --limit 7\n  sqllock history --outcome failed --within 24h --json",
		Args:              cobra.MaximumNArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().IntVarP(&f.Limit, "limit", "n", 20, "how many at most")
	cmd.Flags().StringVar(&outcome, "outcome", "", "only those that have ended so")
	cmd.Flags().DurationVar(&f.Within, "within", 0, "only those that have started so long ago at most")
	_ = cmd.RegisterFlagCompletionFunc("outcome", cobra.FixedCompletions(outcomes, cobra.ShellCompDirectiveNoFileComp))
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if f.Limit < 1 || f.Limit > 10000 {
			return fmt.Errorf("--limit is %d; it can be 1 to 10000", f.Limit)
		}
		if f.Within < 0 {
			return fmt.Errorf("--within is %v; it cannot be negative", f.Within)
		}
		if outcome != "" && outcomeStyle(outcome) == cli.Plain {
			return fmt.Errorf("--outcome %q: there are %s", outcome, strings.Join(outcomes, ", "))
		}
		if len(args) == 1 {
			if err := checkJob(args[0]); err != nil {
				return err
			}
			f.Job = args[0]
		}
		f.Outcome = joblock.Outcome(outcome)
		return a.connected(func(ctx context.Context, s *session, _ []string) error {
			all, err := s.jobs.History(ctx, f)
			if err != nil {
				return err
			}
			r := historyResult{place: s.place(), Runs: runsOf(all)}
			if r.Now, err = s.db.Now(ctx); err != nil {
				return err
			}
			return s.out.Result(r, func(w io.Writer) error {
				if len(r.Runs) == 0 {
					return cli.Linef(w, "no run")
				}
				return s.ran(w, r.Now, r.Runs)
			})
		})(cmd, args)
	}
	return cmd
}

var outcomes = []string{"running", "ok", "failed", "timed_out", "lost", "abandoned"}

// outcomeStyle is Plain for what is none.
func outcomeStyle(outcome string) cli.Style {
	switch outcome {
	case "ok":
		return cli.Green
	case "running":
		return cli.Cyan
	case "failed", "lost":
		return cli.Red
	case "timed_out", "abandoned":
		return cli.Yellow
	}
	return cli.Plain
}

// barWidth is how many characters the longest duration gets, on a terminal.
const barWidth = 16

// ran writes runs to w, as stdout can show them.
func (s *session) ran(w io.Writer, now time.Time, runs []runJSON) error {
	took := func(r runJSON) time.Duration {
		switch {
		case r.DurationMS != nil:
			return time.Duration(*r.DurationMS) * time.Millisecond
		case r.Outcome == "running":
			return now.Sub(r.Started)
		}
		return 0
	}
	var longest time.Duration
	for _, r := range runs {
		longest = max(longest, took(r))
	}
	cols := []cli.Column{{Title: "STARTED"}, {Title: "JOB"}, {Title: "OUTCOME"}, {Title: "TOOK"}}
	bars := s.out.Screen().Terminal
	if bars {
		cols = append(cols, cli.Column{Spare: 2})
	}
	t := s.out.Table(append(cols, cli.Column{Title: "EXIT"}, cli.Column{Title: "HOST", Spare: 1}, cli.Column{Title: "PID", Spare: 3},
		cli.Column{Title: "TOKEN", Spare: 4}, cli.Column{Title: "ERROR", Flow: cli.Cut})...)
	for _, r := range runs {
		style := outcomeStyle(r.Outcome)
		duration, exit := "", ""
		if d := took(r); d > 0 || r.DurationMS != nil {
			duration = short(d)
		}
		if r.ExitCode != nil {
			exit = fmt.Sprint(*r.ExitCode)
		}
		row := []cli.Cell{{Text: stamp(r.Started), Style: cli.Faint}, {Text: r.Job, Style: cli.Bold}, {Text: r.Outcome, Style: style}, {Text: duration}}
		if bars {
			row = append(row, cli.Cell{Text: bar(took(r), longest, barWidth), Style: style})
		}
		text, _, _ := strings.Cut(r.Error, "\n")
		t.Row(append(row, plain(exit), plain(r.Host), plain(pid(r.PID)), cli.Cell{Text: fmt.Sprint(r.Token), Style: cli.Faint}, plain(text))...)
	}
	return t.Write(w)
}
