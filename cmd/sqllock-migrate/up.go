package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// stepsResult is the JSON of up and down.
type stepsResult struct {
	place
	DryRun bool       `json:"dry_run"`
	From   int64      `json:"from"`
	To     int64      `json:"to"`
	Steps  []stepJSON `json:"steps"`
}

type stepJSON struct {
	Version    int64    `json:"version"`
	Name       string   `json:"name"`
	Direction  string   `json:"direction"`
	Statements []string `json:"statements"`
}

func (a *app) upCommand() *cobra.Command {
	m := &mover{app: a, move: migrations.Up, lowest: 1, highest: latest}
	cmd := &cobra.Command{
		Use:   "up",
		Short: "Make the tables, or bring them up to date",
		Long: `up applies the migrations that are pending. It is safe to run from many
processes at once, beside programs that use the tables, and again after a failure.
A statement that needs a lock on a table waits for 3s at most at a time, since
everybody else queues behind it, and is tried again until --lock-timeout has passed
in all. A table that is there already and is not sqllock's is refused before
anything is made; where nothing is to be done, the live tables are compared with
what is needed, as "check" does.`,
		Example: `  sqllock-migrate up
  sqllock-migrate up --dry-run              # print the SQL instead
  sqllock-migrate up --dsn sqlite:app.db    # makes the file, too`,
	}
	return m.command(cmd)
}

func (a *app) downCommand() *cobra.Command {
	m := &mover{app: a, move: migrations.Down, down: true, lowest: 0, highest: latest - 1}
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Undo the last migration, or all above a version",
		Long: `down undoes the last migration, and with --to all above that version. The tables
go, with the locks, claims and history that are in them: look at --dry-run first,
and stop the programs that use them. A table that is not as sqllock made it is not
dropped. Tables in use are waited for as "up" does.`,
		Example: `  sqllock-migrate down --dry-run
  sqllock-migrate down --to 0               # take everything away`,
	}
	return m.command(cmd)
}

// mover is up or down.
type mover struct {
	*app
	move            func(context.Context, *sqldb.DB, ...migrations.Option) error
	down            bool
	lowest, highest int64
	to              int64
	toSet, dryRun   bool
}

func (m *mover) command(cmd *cobra.Command) *cobra.Command {
	cmd.Args = cobra.NoArgs
	cmd.ValidArgsFunction = cobra.NoFileCompletions
	cmd.Flags().Int64Var(&m.to, "to", 0, "end at this `version`")
	cmd.Flags().BoolVar(&m.dryRun, "dry-run", false, "print the SQL that would run, and change nothing")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		m.toSet = cmd.Flags().Changed("to")
		if m.toSet && (m.to < m.lowest || m.to > m.highest) {
			return cli.Usagef("--to %d: for %s it is a version from %d to %d", m.to, cmd.Name(), m.lowest, m.highest)
		}
		file := refuse
		switch {
		case m.down:
		case m.dryRun:
			file = empty
		default:
			file = create
		}
		return m.connected(file, m.run)(cmd, args)
	}
	return cmd
}

func (m *mover) run(ctx context.Context, s *session) error {
	from, err := migrations.Version(ctx, s.db)
	if err != nil {
		return err
	}
	r := stepsResult{place: s.place(), DryRun: m.dryRun, From: from, Steps: []stepJSON{}}
	seen := map[int64]bool{}
	if m.toSet && !m.down && from > m.to {
		m.out.Say("the version is %d, above %d already; \"sqllock-migrate down --to %d\" would go back", from, m.to, m.to)
	}
	if m.toSet && m.down && from < m.to {
		m.out.Say("the version is %d, below %d already; \"sqllock-migrate up --to %d\" would go on", from, m.to, m.to)
	}
	add := func(step migrations.Step) {
		direction := "up"
		if step.Down {
			direction = "down"
		}
		seen[step.Version] = true
		r.Steps = append(r.Steps, stepJSON{step.Version, step.Name, direction, step.Statements})
	}
	var opts []migrations.Option
	if m.toSet {
		opts = append(opts, migrations.To(m.to))
	}
	if m.dryRun {
		if err := m.move(ctx, s.db, append(opts, migrations.DryRun(add))...); err != nil {
			return err
		}
		r.To = r.From
		for _, step := range r.Steps {
			r.To = step.Version
			if step.Direction == "down" {
				r.To--
			}
		}
		return s.out.Result(r, r.text)
	}
	opts = append(opts, migrations.LockTimeout(m.lockTimeout), migrations.Progress(func(step migrations.Step) {
		if seen[step.Version] {
			s.out.Say("table in use, trying again")
			return
		}
		s.out.Say("%s", step)
		add(step)
	}), migrations.DDLTimeout(ddlTimeout))
	if err := s.untilAborted(func() error { return m.move(ctx, s.db, opts...) }); err != nil {
		return err
	}
	if r.To, err = migrations.Version(s.in.Hard(), s.db); err != nil {
		return err
	}
	if len(r.Steps) == 0 && !m.down {
		if err := s.compare(ctx, r.To); err != nil {
			return err
		}
	}
	return s.out.Result(r, r.text)
}

// compare is for an up that found nothing to do: it is no success if the tables are
// not what their version says.
func (s *session) compare(ctx context.Context, version int64) error {
	problems, err := migrations.Check(ctx, s.db)
	if err != nil {
		return err
	}
	// The version itself may be what --to asks for.
	problems = slices.DeleteFunc(problems, func(p migrations.Problem) bool { return p.Table == "" })
	if len(problems) == 0 {
		return nil
	}
	return fmt.Errorf("version %d: nothing to do, but the tables are not what they should be (problems: %d); \"sqllock-migrate check\" says what to do. The first: %s: %s",
		version, len(problems), strings.TrimRight(problems[0].Table+"."+problems[0].Column, "."), problems[0].What)
}

func (r stepsResult) text(w io.Writer) error {
	if r.DryRun {
		for _, step := range r.Steps {
			if _, err := fmt.Fprintf(w, "-- %s %d %s\n", step.Direction, step.Version, step.Name); err != nil {
				return err
			}
			for _, statement := range step.Statements {
				if _, err := fmt.Fprintf(w, "%s;\n", statement); err != nil {
					return err
				}
			}
		}
		if len(r.Steps) == 0 {
			_, err := fmt.Fprintf(w, "-- version %d: nothing to do\n", r.From)
			return err
		}
		return nil
	}
	if len(r.Steps) == 0 {
		_, err := fmt.Fprintf(w, "version %d: nothing to do\n", r.To)
		return err
	}
	_, err := fmt.Fprintf(w, "version %d (was %d)\n", r.To, r.From)
	return err
}
