package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqllock"
)

// lockJSON is a lock that is held, in the results of ls and show.
type lockJSON struct {
	Name    string     `json:"name"`
	Token   int64      `json:"token"`
	Owner   string     `json:"owner"`
	Since   *time.Time `json:"since"`
	LeftMS  int64      `json:"left_ms"`
	Holder  holderJSON `json:"holder"`
	Waiters int        `json:"waiters"`
}

// holderJSON is who holds or waits, as it described itself.
type holderJSON struct {
	Host  string `json:"host"`
	PID   int    `json:"pid"`
	Label string `json:"label"`
}

func holderOf(h lock.Holder) holderJSON { return holderJSON{h.Host, h.PID, h.Label} }

func lockOf(i sqllock.Info, waiting []waiterJSON) lockJSON {
	j := lockJSON{Name: i.Name, Token: i.Token, Owner: i.Owner, LeftMS: i.Left.Milliseconds(), Holder: holderOf(i.Holder)}
	if !i.Since.IsZero() {
		since := i.Since.UTC()
		j.Since = &since
	}
	for _, w := range waiting {
		if w.Name == i.Name {
			j.Waiters++
		}
	}
	return j
}

// lsResult is the JSON of ls.
type lsResult struct {
	place
	Now     time.Time    `json:"now"`
	Locks   []lockJSON   `json:"locks"`
	Waiting []waiterJSON `json:"waiting"`
}

func (a *app) lsCommand() *cobra.Command {
	var again bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the locks that are held, and who waits",
		Long: `ls lists the locks of the lock table that are held, with their holders, and those
who wait for one, if they show themselves: who stands in a queue does, and "sqllock
run --wait" after a second. The lock of the job NAME is called job:NAME. LEFT is what
is left of the holder's lease, or until its --at-least has passed. Advisory locks
(--strategy advisory) are the server's, and not listed.

With --watch it goes on until Ctrl-C. If the database cannot be read meanwhile it says
so, and tries again.`,
		Example:           "  sqllock ls\n  sqllock ls --watch\n  sqllock ls --json | jq -r '.locks[].name'",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVarP(&again, "watch", "w", false, "show it again and again: in place on a terminal, one after the other elsewhere")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "how often, with --watch")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if interval < 10*time.Millisecond {
			return fmt.Errorf("--interval is %v; it has to be at least 10ms", interval)
		}
		if cmd.Flags().Changed("interval") && !again {
			return errors.New("--interval goes with --watch")
		}
		return a.connected(func(ctx context.Context, s *session, _ []string) error {
			if again {
				return s.watch(ctx, interval)
			}
			r, err := s.list(ctx)
			if err != nil {
				return err
			}
			return s.out.Result(r, s.listed(r))
		})(cmd, args)
	}
	return cmd
}

func (s *session) list(ctx context.Context) (r lsResult, err error) {
	held, err := s.locker.List(ctx)
	if err != nil {
		return r, err
	}
	r = lsResult{place: s.place(), Locks: []lockJSON{}}
	if r.Waiting, err = s.waiting(ctx); err != nil {
		return r, err
	}
	if r.Now, err = s.db.Now(ctx); err != nil {
		return r, err
	}
	for _, i := range held {
		r.Locks = append(r.Locks, lockOf(i, r.Waiting))
	}
	return r, nil
}

// listed shows it to people.
func (s *session) listed(r lsResult) func(w io.Writer) error {
	return func(w io.Writer) error {
		if len(r.Locks)+len(r.Waiting) == 0 {
			return cli.Linef(w, "no lock is held")
		}
		t := s.out.Table(cli.Column{Title: "NAME"}, cli.Column{Title: "STATE"}, cli.Column{Title: "FOR"}, cli.Column{Title: "LEFT"},
			cli.Column{Title: "TOKEN", Spare: 2}, cli.Column{Title: "HOST"}, cli.Column{Title: "PID", Spare: 1}, cli.Column{Title: "LABEL", Flow: cli.Cut})
		for _, l := range r.Locks {
			left := time.Duration(l.LeftMS) * time.Millisecond
			t.Row(cli.Cell{Text: l.Name, Style: cli.Bold}, cli.Cell{Text: "held", Style: cli.Green}, plain(since(r.Now, l.Since)), plain(short(left)),
				plain(fmt.Sprint(l.Token)), plain(l.Holder.Host), plain(pid(l.Holder.PID)), plain(l.Holder.Label))
		}
		for _, q := range r.Waiting {
			t.Row(cli.Cell{Text: q.Name, Style: cli.Bold}, cli.Cell{Text: "waiting", Style: cli.Yellow}, plain(since(r.Now, &q.Since)), plain(""),
				plain(""), plain(q.Holder.Host), plain(pid(q.Holder.PID)), plain(q.Holder.Label))
		}
		return t.Write(w)
	}
}

func plain(text string) cli.Cell { return cli.Cell{Text: text} }

// since is for how long something has been so.
func since(now time.Time, t *time.Time) string {
	if t == nil {
		return ""
	}
	return short(now.Sub(*t))
}

func pid(n int) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}
