package main

import (
	"context"
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
	var watch bool
	var interval time.Duration
	cmd := &cobra.Command{
		Use:   "ls",
		Short: "List the locks that are held, and who waits",
		Long: `ls lists the locks of the lock table that are held, with their holders, and those
who wait for one in its queue. The lock of the job NAME is called job:NAME. Of a
waiter that polls the database knows nothing: it is told by who waits ("sqllock run
--wait" says so on stderr).`,
		Example:           "  sqllock ls\n  sqllock ls --watch\n  sqllock ls --json | jq '.locks[].name'",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
	}
	cmd.Flags().BoolVarP(&watch, "watch", "w", false, "show it again and again: in place on a terminal, one after the other elsewhere")
	cmd.Flags().DurationVar(&interval, "interval", time.Second, "how often, with --watch")
	list := func(ctx context.Context, s *session) error {
		r, err := s.list(ctx)
		if err != nil {
			return err
		}
		return s.out.Result(r, r.text(s.out.Stdout))
	}
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if interval < 10*time.Millisecond {
			return fmt.Errorf("--interval is %v; it has to be at least 10ms", interval)
		}
		return nil
	}
	cmd.RunE = a.connected(func(ctx context.Context, s *session, _ []string) error {
		if !watch {
			return list(ctx, s)
		}
		screen := isTerminal(s.out.Stdout) && !s.out.JSON
		for {
			if screen { // home, and clear what is below
				if _, err := io.WriteString(s.out.Stdout, "\x1b[H\x1b[J"); err != nil {
					return err
				}
			}
			err := list(ctx, s)
			if ctx.Err() != nil {
				return cli.Exit(cli.Done, nil) // that is how one leaves it
			}
			if err != nil {
				return err
			}
			select {
			case <-time.After(interval):
			case <-ctx.Done():
				return nil
			}
		}
	})
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
	if r.Now, err = s.now(ctx); err != nil {
		return r, err
	}
	for _, i := range held {
		r.Locks = append(r.Locks, lockOf(i, r.Waiting))
	}
	return r, nil
}

func (r lsResult) text(stdout io.Writer) func(w io.Writer) error {
	return func(w io.Writer) error {
		p := newPainter(stdout)
		p.header("NAME", "STATE", "FOR", "LEFT", "TOKEN", "HOST", "PID", "LABEL")
		for _, l := range r.Locks {
			left := time.Duration(l.LeftMS) * time.Millisecond
			p.row(cell{l.Name, bold}, cell{"held", green}, cell{since(r.Now, l.Since), 0}, cell{short(left), 0},
				cell{fmt.Sprint(l.Token), 0}, cell{l.Holder.Host, 0}, cell{pid(l.Holder.PID), 0}, cell{l.Holder.Label, 0})
		}
		for _, q := range r.Waiting {
			p.row(cell{q.Name, bold}, cell{"waiting", yellow}, cell{since(r.Now, &q.Since), 0}, cell{}, cell{},
				cell{q.Holder.Host, 0}, cell{pid(q.Holder.PID), 0}, cell{q.Holder.Label, 0})
		}
		if len(r.Locks)+len(r.Waiting) == 0 {
			_, err := fmt.Fprintln(w, "no lock is held")
			return err
		}
		return p.flush(w)
	}
}

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
