package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// How a line of doctor turns out.
const (
	ok   = "ok"
	warn = "warn"
	fail = "fail"
)

// doctorResult is the JSON of doctor.
type doctorResult struct {
	place
	OK     bool    `json:"ok"`
	Checks []check `json:"checks"`
}

// check is one line.
type check struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Value  string `json:"value"`
	Advice string `json:"advice"`
}

// doctor collects the lines.
type doctor struct {
	*session
	checks []check
}

func (d *doctor) add(name, state, value, advice string) {
	if state == ok {
		advice = ""
	}
	d.checks = append(d.checks, check{name, state, value, advice})
}

// when adds a line that is ok, unless bad.
func (d *doctor) when(bad bool, state, name, value, advice string) {
	if !bad {
		state = ok
	}
	d.add(name, state, value, advice)
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Look at the database, and say what will not work well, and what to do",
		Long: `doctor looks at the database as sqllock will use it, and writes one line for each
thing that matters, with ok, warn or fail, and what to do about it. It changes
nothing, but for the lock "sqllock:doctor", which it takes and releases a few times.
It ends with 1 if a line says fail.`,
		Example:           "  sqllock doctor\n  sqllock doctor --json | jq '.checks[] | select(.state != \"ok\")'",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.body(func(cmd *cobra.Command, _ []string) error {
			return a.interruptible(cmd.Context(), func(ctx context.Context) error {
				s, err := a.connect(ctx, 2)
				if err != nil {
					return err
				}
				defer s.leave()
				return s.doctor(ctx)
			})
		}),
	}
}

func (s *session) doctor(ctx context.Context) error {
	if s.migrate || s.own {
		if err := migrations.Up(ctx, s.db); err != nil {
			return err
		}
	}
	d := &doctor{session: s}
	d.add("server", ok, s.db.Kind().String()+" "+s.db.Version(), "")
	tables, err := d.tables(ctx)
	if err != nil {
		return err
	}
	if err := d.clock(ctx); err != nil {
		return err
	}
	switch {
	case s.db.Kind() == sqldb.Postgres:
		err = d.postgres(ctx)
	case s.db.Kind().InnoDB():
		err = d.mysql(ctx)
	default:
		err = d.sqlite(ctx)
	}
	if err != nil {
		return err
	}
	if tables {
		if err := d.pair(ctx); err != nil {
			return err
		}
	}
	r := doctorResult{place: s.place(), OK: true, Checks: d.checks}
	for _, c := range d.checks {
		r.OK = r.OK && c.State != fail
	}
	err = s.out.Result(r, func(w io.Writer) error {
		p := newPainter(s.out.Stdout)
		for _, c := range r.Checks {
			text := c.Value
			if c.Advice != "" {
				text += ": " + c.Advice
			}
			p.row(cell{c.State, map[string]int{ok: green, warn: yellow, fail: red}[c.State]}, cell{c.Name, bold}, cell{text, 0})
		}
		return p.flush(w)
	})
	if err == nil && !r.OK {
		return cli.Exit(cli.Failed, nil)
	}
	return err
}

// tables compares the tables, and reports whether they can be used.
func (d *doctor) tables(ctx context.Context) (bool, error) {
	version, err := migrations.Version(ctx, d.db)
	if err != nil {
		return false, err
	}
	problems, err := migrations.Check(ctx, d.db)
	if err != nil {
		return false, err
	}
	value := fmt.Sprintf("version %d", version)
	if len(problems) == 0 {
		d.add("tables", ok, value, "")
		return true, nil
	}
	what := strings.TrimLeft(problems[0].Table+" "+problems[0].What, " ")
	d.add("tables", fail, fmt.Sprintf("%s, problems: %d, the first: %s", value, len(problems), what), `"sqllock-migrate check" says what to do`)
	return false, nil
}

// clock compares the database's clock with this machine's. Nothing depends on it, but
// people who read times do.
func (d *doctor) clock(ctx context.Context) error {
	var best, diff time.Duration
	for i := range 3 {
		sent := time.Now()
		now, err := d.now(ctx)
		if err != nil {
			return err
		}
		took := time.Since(sent)
		if i == 0 || took < best {
			best, diff = took, now.Sub(sent.Add(took/2)).Round(time.Millisecond)
		}
	}
	d.when(diff.Abs() > time.Second, warn, "clock", fmt.Sprintf("the database's is %v from this machine's; a round trip takes %v", diff, best.Round(10*time.Microsecond)),
		"let both follow NTP; locks do not depend on it, logs and schedules do")
	return nil
}

// pair measures what it takes to acquire and to release a lock.
func (d *doctor) pair(ctx context.Context) error {
	locker, err := sqllock.New(ctx, d.db)
	if err != nil {
		return err
	}
	defer func() { _ = locker.Close() }()
	const n = 5
	best := time.Duration(0)
	for range n {
		begun := time.Now()
		l, err := locker.Acquire(ctx, "sqllock:doctor", lock.Wait(5*time.Second), lock.Label("doctor"))
		if errors.Is(err, lock.ErrHeld) {
			d.add("lock pair", warn, "not measured", "another doctor is at work")
			return nil
		}
		if err != nil {
			return err
		}
		if err := l.Release(ctx); err != nil {
			return err
		}
		if took := time.Since(begun); best == 0 || took < best {
			best = took
		}
	}
	d.when(best > 100*time.Millisecond, warn, "lock pair", fmt.Sprintf("acquire and release: %v, the best of %d", best.Round(10*time.Microsecond), n),
		"the disk or the network is slow: take TTLs of at least 100 times that")
	return nil
}

// settings reads rows of two columns.
func (d *doctor) settings(ctx context.Context, query string) (map[string]string, error) {
	rows, err := d.db.Query(ctx, query)
	if err != nil {
		return nil, err
	}
	defer func() { _ = rows.Close() }()
	all := map[string]string{}
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, err
		}
		all[name] = value
	}
	return all, rows.Err()
}
