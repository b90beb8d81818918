package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// showResult is the JSON of show.
type showResult struct {
	place
	Now     time.Time    `json:"now"`
	Name    string       `json:"name"`
	Locks   []lockJSON   `json:"locks"` // of the job, and the plain one
	Waiting []waiterJSON `json:"waiting"`
	Job     *jobJSON     `json:"job"`
	Runs    []runJSON    `json:"runs"`
}

// jobJSON is the row of a job.
type jobJSON struct {
	Disabled   bool       `json:"disabled"`
	DisabledAt *time.Time `json:"disabled_at"`
	Note       string     `json:"note"`
	PeriodMS   *int64     `json:"period_ms"`
	LastStart  *time.Time `json:"last_start"`
}

func (a *app) showCommand() *cobra.Command {
	var limit int
	cmd := &cobra.Command{
		Use:   "show NAME",
		Short: "Show who holds a lock, who waits for it, and the last runs of the job",
		Long: `show shows who holds the lock of the job NAME, and the lock that is called NAME,
with the tokens that "sqllock release" asks for; who waits in their queues; whether
the job is switched off; and its last runs.`,
		Example:           "  sqllock show nightly-report\n  sqllock show nightly-report --json",
		Args:              oneName("NAME"),
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().IntVarP(&limit, "limit", "n", 5, "how many runs at most")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if limit < 1 || limit > 10000 {
			return fmt.Errorf("--limit is %d; it can be 1 to 10000", limit)
		}
		return a.connected(func(ctx context.Context, s *session, args []string) error {
			r, err := s.look(ctx, args[0], limit)
			if err != nil {
				return err
			}
			return s.out.Result(r, s.looked(r))
		})(cmd, args)
	}
	return cmd
}

func (s *session) look(ctx context.Context, name string, limit int) (r showResult, err error) {
	all, err := s.list(ctx)
	if err != nil {
		return r, err
	}
	r = showResult{place: all.place, Now: all.Now, Name: name, Locks: []lockJSON{}, Waiting: []waiterJSON{}}
	for _, n := range lockNames(name) {
		for _, l := range all.Locks {
			if l.Name == n {
				r.Locks = append(r.Locks, l)
			}
		}
		for _, w := range all.Waiting {
			if w.Name == n {
				r.Waiting = append(r.Waiting, w)
			}
		}
	}
	if r.Job, err = s.job(ctx, name); err != nil {
		return r, err
	}
	runs, err := s.jobs.History(ctx, joblock.Filter{Job: name, Limit: limit})
	r.Runs = runsOf(runs)
	return r, err
}

// job reads the row of a job; nil if there is none.
func (s *session) job(ctx context.Context, name string) (*jobJSON, error) {
	var j jobJSON
	var note *string
	var period *int64
	arg, mark := any(name), "?"
	switch s.db.Kind() {
	case sqldb.MySQL, sqldb.MariaDB:
		arg = []byte(name)
	case sqldb.Postgres:
		mark = "$1"
	case sqldb.SQLite:
	}
	err := s.db.QueryRow(ctx, "SELECT disabled, disabled_at, note, period_us, last_start FROM "+s.db.Table("jobs")+" WHERE name = "+mark, arg).
		Scan(&j.Disabled, &j.DisabledAt, &note, &period, &j.LastStart)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, nil
	case err != nil:
		return nil, err
	}
	if note != nil {
		j.Note = *note
	}
	if period != nil {
		ms := *period / 1000
		j.PeriodMS = &ms
	}
	return &j, nil
}

// looked shows it to people.
func (s *session) looked(r showResult) func(w io.Writer) error {
	return func(w io.Writer) error {
		t := s.out.Table(cli.Column{}, cli.Column{Flow: cli.Wrap})
		line := func(what, text string, style cli.Style) {
			t.Row(cli.Cell{Text: what, Style: cli.Faint}, cli.Cell{Text: text, Style: style})
		}
		for _, l := range r.Locks {
			line("lock", l.Name, cli.Bold)
			line("  held by", who(l.Holder), cli.Plain)
			line("  for", since(r.Now, l.Since)+", lease left "+short(time.Duration(l.LeftMS)*time.Millisecond), cli.Plain)
			line("  token", fmt.Sprint(l.Token), cli.Plain)
		}
		if len(r.Locks) == 0 {
			line("lock", "not held", cli.Plain)
		}
		for _, q := range r.Waiting {
			line("waiting", who(q.Holder)+", for "+since(r.Now, &q.Since), cli.Yellow)
		}
		if j := r.Job; j != nil {
			switch {
			case j.Disabled && j.Note != "":
				line("job", "disabled: "+j.Note, cli.Yellow)
			case j.Disabled:
				line("job", "disabled", cli.Yellow)
			}
			if j.DisabledAt != nil {
				line("  since", stamp(*j.DisabledAt), cli.Plain)
			}
			if j.PeriodMS != nil {
				line("every", short(time.Duration(*j.PeriodMS)*time.Millisecond), cli.Plain)
			}
		}
		if err := t.Write(w); err != nil || len(r.Runs) == 0 {
			return err
		}
		if err := cli.Linef(w, ""); err != nil {
			return err
		}
		return s.ran(w, r.Now, r.Runs)
	}
}

// who is a holder, in a few words.
func who(h holderJSON) string {
	return lock.Holder{Host: h.Host, PID: h.PID, Label: h.Label}.String()
}
