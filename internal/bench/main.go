// Command bench measures what sqllock costs, each figure against its floor: the
// least that the same work costs when it is written by hand through the same pool.
//
//	go run ./internal/bench --only take-ratio --database postgres,sqlite
//
// ./scripts/bench is the same with real databases up. On stdout stand only lines
// "figure NAME DATABASE VALUE UNIT", or with --json one JSON document; everything
// else goes to stderr. SQLite is a file in a temporary folder; on the servers behind
// SQLLOCK_TEST_POSTGRES_DSN, _MYSQL_DSN and _MARIADB_DSN a schema or database named
// sqllock_test_* is made for each figure, and dropped afterwards.
//
// # A new figure
//
// A file with a function that returns a [figure], and a line in [figures]. Its
// measure gets a fresh database ([bed]); [bed.timeRatio] is what compares two
// operations of one goroutine, [alternate] is what it is made of, for rounds that
// measure something else: operations per second, a percentile, a count.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/sqlnative/locks/sqldb"
)

func main() {
	// An interrupted run still drops what it has made on the servers; a second signal
	// ends it at once.
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop)
	os.Exit(run(ctx, figures(), os.Args[1:], os.Stdout, os.Stderr))
}

// The exit codes.
const (
	done   = 0
	failed = 1 // a figure could not be measured or, with --check, misses its bound
	usage  = 2
)

// run is main with what it depends on.
func run(ctx context.Context, all []figure, args []string, stdout, stderr io.Writer) int {
	o, err := parseOptions(all, args, stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return done
	case err != nil:
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return usage
	case o.explain:
		err = explain(stdout, o)
	default:
		err = measureAll(ctx, o, stdout, stderr)
	}
	if err != nil {
		fmt.Fprintf(stderr, "bench: %v\n", err)
		return failed
	}
	return done
}

// measureAll measures every figure that was asked for, on every database that is
// there. What fails does not keep the others from being measured.
func measureAll(ctx context.Context, o options, stdout, stderr io.Writer) error {
	out := &report{stdout: stdout, stderr: stderr, json: o.json}
	var errs []error
	for _, f := range o.figures {
		for _, t := range f.on {
			if !o.wants(t.kind) {
				continue
			}
			if !available(t.kind) {
				if o.named(t.kind) {
					errs = append(errs, fmt.Errorf("%s %s: %s is not set", f.name, t.kind, env(t.kind)))
				} else {
					fmt.Fprintf(stderr, "%s %s: not measured: %s is not set\n", f.name, t.kind, env(t.kind))
				}
				continue
			}
			m, err := f.run(ctx, t.kind, o.rounds)
			if errors.Is(err, errUnavailable) {
				fmt.Fprintf(stderr, "%s %s: not measured: %v\n", f.name, t.kind, err)
				continue
			}
			if err == nil {
				err = out.add(f, t, m)
			}
			if err != nil {
				errs = append(errs, fmt.Errorf("%s %s: %w", f.name, t.kind, err))
			}
			if ctx.Err() != nil {
				return errors.Join(append(errs, out.finish())...)
			}
		}
	}
	errs = append(errs, out.finish())
	if o.check && out.missed > 0 {
		errs = append(errs, fmt.Errorf("%d of %d figures miss their bound", out.missed, out.measured))
	}
	if out.measured == 0 {
		errs = append(errs, errors.New("nothing was measured"))
	}
	return errors.Join(errs...)
}

// run measures the figure on a fresh database.
func (f figure) run(ctx context.Context, kind sqldb.Kind, rounds int) (m measurement, err error) {
	b, err := newBed(ctx, kind)
	if err != nil {
		return m, err
	}
	defer func() { err = errors.Join(err, b.close()) }()
	b.rounds = rounds
	return f.measure(ctx, b)
}
