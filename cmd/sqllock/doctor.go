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

	clock    func() time.Time // of this machine
	oldAge   time.Duration    // from when on a transaction is in the way of cleaning up
	slowPair time.Duration    // from when on acquire and release are slow
	patience time.Duration    // with another doctor
}

func (s *session) newDoctor() *doctor {
	return &doctor{session: s, clock: time.Now, oldAge: 10 * time.Minute, slowPair: 100 * time.Millisecond, patience: 5 * time.Second}
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

// unknown adds a line for what could not be asked.
func (d *doctor) unknown(name string, err error, advice string) {
	d.add(name, warn, "unknown: "+d.out.Clean(firstLine(err)), advice)
}

func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return line
}

func (a *app) doctorCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "doctor",
		Short: "Look at the database, and say what will not work well, and what to do",
		Long: `doctor looks at the database as sqllock will use it, and writes one line for each
thing that matters, with ok, warn or fail, and what to do about it. It changes
nothing, but for the lock "sqllock:doctor", which it takes and releases a few times.
It ends with 1 if a line says fail, and with 0 if the worst is a warn.`,
		Example:           "  sqllock doctor\n  sqllock doctor --json | jq '.checks[] | select(.state != \"ok\")'",
		Args:              cobra.NoArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: a.body(func(cmd *cobra.Command, _ []string) error {
			return a.interruptible(cmd.Context(), func(ctx context.Context) error {
				d, own, err := a.parseDSN()
				if err != nil {
					return err
				}
				s, err := a.open(ctx, d, own, 2)
				if err != nil {
					return a.refused(ctx, d.Kind(), err)
				}
				defer s.leave()
				doc := s.newDoctor()
				if s.migrate || s.own {
					if err := migrations.Up(ctx, s.db); err != nil {
						doc.add("migration", fail, a.out.Clean(firstLine(err)), "the tables are as they were")
					}
				}
				if err := doc.examine(ctx); err != nil {
					return err
				}
				return a.findings(s.place(), doc.checks)
			})
		}),
	}
}

// refused is the whole result where there is no way to a database that serves.
func (a *app) refused(ctx context.Context, kind sqldb.Kind, err error) error {
	if ctx.Err() != nil {
		return err
	}
	return a.findings(place{Database: kind.String(), Schema: a.where.Schema, TablePrefix: a.where.Prefix},
		[]check{{"server", fail, a.out.Clean(err.Error()), "nothing else could be looked at"}})
}

// findings writes the result.
func (a *app) findings(p place, checks []check) error {
	r := doctorResult{place: p, OK: true, Checks: checks}
	for _, c := range checks {
		r.OK = r.OK && c.State != fail
	}
	err := a.out.Result(r, func(w io.Writer) error {
		t := a.out.Table(cli.Column{}, cli.Column{}, cli.Column{Flow: cli.Wrap})
		for _, c := range checks {
			text := c.Value
			if c.Advice != "" {
				text += "; " + c.Advice
			}
			t.Row(cli.Cell{Text: c.State, Style: map[string]cli.Style{ok: cli.Green, warn: cli.Yellow, fail: cli.Red}[c.State]},
				cli.Cell{Text: c.Name, Style: cli.Bold}, plain(text))
		}
		return t.Write(w)
	})
	if err == nil && !r.OK {
		return cli.Exit(cli.Failed, nil)
	}
	return err
}

// examine looks at everything. What cannot be asked is a line, too; an error says that
// ctx has ended.
func (d *doctor) examine(ctx context.Context) error {
	version, _, _ := strings.Cut(d.db.Version(), " on ") // and then what it was built with
	d.add("server", ok, d.db.Kind().String()+", "+version, "")
	tables := d.tables(ctx)
	d.time(ctx)
	switch {
	case d.db.Kind() == sqldb.Postgres:
		d.postgres(ctx)
	case d.db.Kind().InnoDB():
		d.mysql(ctx)
	default:
		d.sqlite(ctx)
	}
	if tables {
		d.pair(ctx)
	}
	return ctx.Err()
}

// tables compares the tables, and reports whether they can be used.
func (d *doctor) tables(ctx context.Context) bool {
	version, err := migrations.Version(ctx, d.db)
	var problems []migrations.Problem
	if err == nil {
		problems, err = migrations.Check(ctx, d.db)
	}
	const advice = `"sqllock-migrate check" says what to do`
	switch value := fmt.Sprintf("version %d", version); {
	case err != nil:
		d.add("tables", fail, d.out.Clean(firstLine(err)), "grant this user what it needs to read them")
		return false
	case len(problems) == 0:
		d.add("tables", ok, value, "")
		return true
	case version == 0:
		d.add("tables", fail, "there are none", `"sqllock-migrate up" makes them, or --migrate`)
		return false
	default:
		what := strings.TrimLeft(problems[0].Table+" "+problems[0].What, " ")
		d.add("tables", fail, fmt.Sprintf("%s, problems: %d, the first: %s", value, len(problems), what), advice)
		return false
	}
}

// time compares the database's clock with this machine's. Nothing depends on it, but
// people who read times do.
func (d *doctor) time(ctx context.Context) {
	var best, diff time.Duration
	for i := range 3 {
		sent := d.clock()
		begun := time.Now()
		now, err := d.db.Now(ctx)
		if err != nil {
			d.unknown("clock", err, "it has to tell the time")
			return
		}
		took := time.Since(begun)
		if i == 0 || took < best {
			best, diff = took, now.Sub(sent.Add(took/2)).Round(time.Millisecond)
		}
	}
	d.when(diff.Abs() > time.Second, warn, "clock", fmt.Sprintf("the database's is %v from this machine's; a round trip takes %v", diff, best.Round(10*time.Microsecond)),
		"let both follow NTP; locks do not depend on it, logs and schedules do")
}

// pair measures what it takes to acquire and to release a lock.
func (d *doctor) pair(ctx context.Context) {
	const n = 5
	var best time.Duration
	err := func() error {
		locker, err := sqllock.New(ctx, d.db)
		if err != nil {
			return err
		}
		defer func() { _ = locker.Close() }()
		for range n {
			begun := time.Now()
			l, err := locker.Acquire(ctx, "sqllock:doctor", lock.Wait(d.patience), lock.Label("doctor"))
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
		return nil
	}()
	var held *lock.HeldError
	switch {
	case errors.As(err, &held):
		d.add("lock pair", warn, "not measured: the lock sqllock:doctor is held by "+held.Holder.String(), "another doctor is at work: try again")
	case err != nil:
		d.add("lock pair", fail, d.out.Clean(firstLine(err)), "no lock can be had so: mend that first")
	default:
		d.when(best > d.slowPair, warn, "lock pair", fmt.Sprintf("acquire and release take %v, the best of %d", best.Round(10*time.Microsecond), n),
			"the disk or the network is slow: take TTLs of at least 100 times that")
	}
}

// oldest judges the age of the oldest transaction that is open.
func (d *doctor) oldest(seconds string) {
	var n int64
	_, _ = fmt.Sscan(seconds, &n)
	age := time.Duration(n) * time.Second
	d.when(age > d.oldAge, warn, "oldest snapshot", age.String(), "a transaction has been open for long: old versions of lock rows cannot be cleaned up, and locks get slower; end it")
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
