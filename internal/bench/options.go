package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// defaultRounds is enough for a median that moves by about a hundredth between
// runs on a machine that has other things to do.
const defaultRounds = 100

// options are what the command line asks for.
type options struct {
	figures   []figure
	databases []sqldb.Kind // nil: all that are there
	rounds    int
	check     bool
	explain   bool
	json      bool
}

func parseOptions(all []figure, args []string, stderr io.Writer) (o options, err error) {
	var only, databases string
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // an error is told by the caller, once
	flags.StringVar(&only, "only", "", "measure only the figures `NAME[,NAME]`")
	flags.StringVar(&databases, "database", "", "measure only on `NAME[,NAME]`, of postgres, mysql, mariadb, sqlite; one that is not there is then an error")
	flags.IntVar(&o.rounds, "rounds", defaultRounds, "how many rounds a figure is the median of")
	flags.BoolVar(&o.check, "check", false, "exit 1 if a figure misses its bound")
	flags.BoolVar(&o.explain, "explain", false, "measure nothing; print what each figure is, its bounds, and the SQL of its floor, as text")
	flags.BoolVar(&o.json, "json", false, "print one JSON document in place of lines")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			flags.SetOutput(stderr)
			flags.Usage()
		}
		return o, err
	}
	switch {
	case flags.NArg() > 0:
		return o, fmt.Errorf("%q: there are no arguments, only flags", flags.Arg(0))
	case o.rounds < 1:
		return o, fmt.Errorf("--rounds is %d, and has to be at least 1", o.rounds)
	}
	for _, name := range list(databases) {
		kind, err := sqldb.ParseKind(name)
		if err != nil {
			return o, fmt.Errorf("--database: %w", err)
		}
		o.databases = append(o.databases, kind)
	}
	o.figures, err = choose(all, list(only))
	return o, err
}

// list splits at commas; an empty text is an empty list.
func list(s string) []string {
	if s == "" {
		return nil
	}
	return strings.Split(s, ",")
}

// choose finds the figures by name, in their own order; no name means all.
func choose(all []figure, names []string) (chosen []figure, err error) {
	if len(names) == 0 {
		return all, nil
	}
	known := make([]string, len(all))
	for i, f := range all {
		known[i] = f.name
		if slices.Contains(names, f.name) {
			chosen = append(chosen, f)
		}
	}
	for _, name := range names {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("--only: there is no figure %q: there are %s", name, strings.Join(known, ", "))
		}
	}
	return chosen, nil
}

// wants says whether a database is to be measured on, if it is there.
func (o options) wants(kind sqldb.Kind) bool {
	return o.databases == nil || slices.Contains(o.databases, kind)
}

// named says whether a database has to be there.
func (o options) named(kind sqldb.Kind) bool { return slices.Contains(o.databases, kind) }
