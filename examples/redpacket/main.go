// Command redpacket lets many users race for the few gifts of a red packet, once
// for every way of counting them, and shows which ways hold.
//
//	go run ./examples/redpacket
//	go run ./examples/redpacket -processes 4 -dsn postgres://user@localhost/test
//
// It makes the table t_bonus(id, left_count, version), t_bonus_slots, which has several
// rows for an id, and, for the record of who was served, t_bonus_record, in a temporary
// SQLite file or behind -dsn. One line comes out for each strategy:
//
//	naive             reads the count, then writes what it computed from it: oversold,
//	                  always, since everybody has read before anybody writes
//	guarded           stock.Take, in one transaction with the record: never oversold
//	version           as naive, and writes only if the version is still the one that was
//	                  read; else reads again: never oversold
//	take-once         stock.TakeOnce with the user as the claim, and everybody presses
//	                  twice: never oversold, and nobody is served twice
//	combined          the same by stock.Combine: those who press at the same time are
//	                  one statement and one commit; the record is written afterwards
//	slotted           as guarded, with the gifts spread over 16 rows by stock.Slotted
//	lock-table        as naive, one user at a time under lock.Do: never oversold,
//	                  unless a holder is stopped for longer than its lease
//	lock-table+guard  the same, with the lock's Guard in the transaction that writes:
//	                  never oversold, whatever stops
//	advisory          as lock-table, under an advisory lock of the server (GET_LOCK on
//	                  MySQL and MariaDB), which needs no table; SQLite has none
//
// With -stall, holders of the lock are stopped between reading and writing now and
// then, for longer than their lease: as a process is by its debugger, its virtual
// machine or its swap. lock-table and advisory are then unprotected, and fail; with Guard, whoever
// was stopped is refused and tries again.
//
// claimed counts the records; oversold is by how much they exceed the gifts;
// duplicates counts users that were served more than once; left_count is what the
// tables say in the end. ops/s counts all attempts, p50 and p99 are of those that
// were served. For naive they have the wait in them that makes its bad luck a
// certainty: this is no benchmark (scripts/bench is).
//
// The locks and claims need tables of their own, named sqllock_*. Where there are none,
// they are made; with -reset they are also removed in the end. Where there are some,
// they are used as they are, and stay, without the claims of this race.
//
// The exit code is 1 if a strategy that protects has oversold, served somebody
// twice or lost a gift, or if something else went wrong; 2 if a flag is wrong.
package main

import (
	"context"
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/sqlnative/locks/internal/dsn"
	"github.com/sqlnative/locks/sqldb"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// config is what the flags say. It travels to the processes of the race as JSON.
type config struct {
	DSN        string
	Users      int
	Gifts      int
	Goroutines int
	Processes  int
	Strategies []string
	Stall      bool
	Race       string // tells the claims of this race from those of others
	reset      bool
	json       bool
	more       []strategy // of a test
}

// errUsage ends the program with exit code 2.
var errUsage = errors.New("usage")

func parse(args []string, stderr io.Writer) (config, error) {
	var c config
	var only string
	f := flag.NewFlagSet("redpacket", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.StringVar(&c.DSN, "dsn", "", "the database: postgres://, mysql://, mariadb:// or sqlite:FILE (default: a temporary SQLite file)")
	f.IntVar(&c.Users, "users", 500, "how many users race; each tries once")
	f.IntVar(&c.Gifts, "gifts", 100, "how many gifts there are")
	f.IntVar(&c.Goroutines, "goroutines", 8, "how many users try at once, in each process")
	f.IntVar(&c.Processes, "processes", 1, "how many processes they are spread over")
	f.StringVar(&only, "strategy", "", "only these strategies, separated by commas")
	f.BoolVar(&c.Stall, "stall", false, "stop holders of the lock for longer than their lease now and then")
	f.BoolVar(&c.reset, "reset", false, "drop existing tables t_bonus, t_bonus_slots and t_bonus_record first; in the end remove the tables of sqllock, if they were made")
	f.BoolVar(&c.json, "json", false, "print one JSON object")
	if err := f.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return c, err
		}
		return c, errUsage // the flag set has said why
	}
	fail := func(format string, args ...any) (config, error) {
		_, _ = fmt.Fprintf(stderr, "redpacket: "+format+"\n", args...)
		return c, errUsage
	}
	for _, n := range []struct {
		name      string
		value     int
		low, high int
	}{{"users", c.Users, 2, 1_000_000}, {"gifts", c.Gifts, 1, 1_000_000}, {"goroutines", c.Goroutines, 2, 1000}, {"processes", c.Processes, 1, 64}} {
		if n.value < n.low || n.value > n.high {
			return fail("-%s is %d; it can be %d to %d", n.name, n.value, n.low, n.high)
		}
	}
	if f.NArg() > 0 {
		return fail("unexpected argument %q", f.Arg(0))
	}
	switch {
	case c.Users < c.Goroutines*c.Processes:
		return fail("-users is %d, fewer than the %d goroutines of all processes", c.Users, c.Goroutines*c.Processes)
	case c.Users <= c.Gifts:
		return fail("-users is %d, no more than the %d gifts: there is nothing to race for", c.Users, c.Gifts)
	}
	if c.DSN != "" {
		d, err := dsn.Parse(c.DSN)
		if err != nil {
			return fail("-dsn: %v", err)
		}
		if d.Kind() == sqldb.SQLite && d.File() == "" && c.Processes > 1 {
			return fail("-dsn is a database in memory, which %d processes cannot share: use sqlite:FILE", c.Processes)
		}
	}
	c.Strategies = names()
	if only != "" {
		c.Strategies = strings.Split(only, ",")
		for _, s := range c.Strategies {
			if !slices.Contains(names(), s) {
				return fail("unknown strategy %q; there are: %s", s, strings.Join(names(), ", "))
			}
		}
		slices.Sort(c.Strategies)
		c.Strategies = slices.Compact(c.Strategies)
	}
	return c, nil
}

func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	if os.Getenv(workerEnv) != "" {
		if err := work(ctx, stdin, stdout); err != nil {
			_, _ = fmt.Fprintln(stderr, "redpacket: worker:", err)
			return 1
		}
		return 0
	}
	// Whatever was typed, in whatever place: a password is not printed.
	scrub := dsn.ScrubArgs(args...)
	say := func(text string) { _, _ = fmt.Fprintln(stderr, scrub.Text(text)) }
	var said strings.Builder
	c, err := parse(args, &said)
	if said.Len() > 0 {
		say(strings.TrimSuffix(said.String(), "\n"))
	}
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		return 2
	}
	err = race(ctx, c, stdout, stderr)
	switch {
	case err != nil && ctx.Err() != nil:
		say("redpacket: interrupted")
		return 1
	case err != nil:
		say("redpacket: " + err.Error())
		return 1
	}
	return 0
}

// race makes the tables, runs every strategy, and prints what came out.
func race(ctx context.Context, c config, stdout, stderr io.Writer) (err error) {
	temporary := c.DSN == ""
	if temporary {
		dir, err := os.MkdirTemp("", "redpacket")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(dir) }()
		c.DSN = "sqlite:" + filepath.Join(dir, "redpacket.db")
	}
	d, err := dsn.Parse(c.DSN)
	if err != nil {
		return err
	}
	db, closePool, err := d.Open(ctx)
	if err != nil {
		return d.Scrubber().Error(err)
	}
	defer func() { err = errors.Join(err, closePool()) }()
	if db.Kind() == sqldb.SQLite {
		all := c.Strategies
		c.Strategies = slices.DeleteFunc(slices.Clone(all), func(name string) bool { return c.find(name).server })
		switch {
		case len(c.Strategies) == 0:
			return fmt.Errorf("%s needs a server, and SQLite is none: give one with -dsn", strings.Join(all, ", "))
		case len(c.Strategies) < len(all):
			_, _ = fmt.Fprintln(stderr, "advisory is left out: it needs a server (-dsn).")
		}
	}
	if err := makeTables(ctx, db, c.reset); err != nil {
		return d.Scrubber().Error(err)
	}
	if slices.ContainsFunc(c.Strategies, func(name string) bool { return c.find(name).locks }) {
		made, lerr := makeLockTables(ctx, db)
		if lerr != nil {
			return d.Scrubber().Error(lerr)
		}
		if made && c.reset {
			defer func() { err = errors.Join(err, d.Scrubber().Error(removeLockTables(ctx, db))) }()
		} else {
			defer func() { err = errors.Join(err, d.Scrubber().Error(removeClaims(ctx, db, c))) }()
		}
	}
	c.Race = rand.Text()
	rep := report{Database: db.Kind().String()}
	var broken []error
	for _, name := range c.Strategies {
		row, err := runStrategy(ctx, db, c, name)
		if err != nil {
			return d.Scrubber().Error(fmt.Errorf("%s: %w", name, err))
		}
		rep.Rows = append(rep.Rows, row)
		switch s := c.find(name); {
		case s.holds(c):
			broken = append(broken, row.broken(c.Gifts))
		case s.protected:
			said := "this time nothing came of it"
			if err := row.broken(c.Gifts); err != nil {
				said = err.Error()
			}
			_, _ = fmt.Fprintf(stderr, "%s is unprotected against stalls: %s.\n", name, said)
		}
	}
	if err := rep.print(stdout, c.json); err != nil {
		return err
	}
	if !c.json {
		_, _ = fmt.Fprintf(stderr, "%d users, %d gifts; processes: %d, with %d goroutines each; %s\n", c.Users, c.Gifts, c.Processes, c.Goroutines, db.Kind())
		if !temporary {
			_, _ = fmt.Fprintln(stderr, "The tables t_bonus, t_bonus_slots and t_bonus_record stay as the last strategy left them.")
		}
	}
	return errors.Join(broken...)
}
