// Command cron shows a scheduled job on three machines whose schedules all fire: it runs
// once, is not due for the others, and what became of it stands in the history.
package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	_ "modernc.org/sqlite"

	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
	"github.com/sqlnative/locks/sqllock"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, out io.Writer) (err error) {
	dir, err := os.MkdirTemp("", "cron")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	pool, err := sql.Open("sqlite", "file:"+filepath.Join(dir, "cron.db")+"?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, pool.Close()) }()
	db, err := sqlitedb.New(ctx, pool) // or pgdb.New(ctx, pgxPool), pgdb.SQL, mysqldb.New
	if err != nil {
		return err
	}
	if err := migrations.Up(ctx, db); err != nil { // or: sqllock-migrate up
		return err
	}

	const machines = 3
	answers := make([]string, machines)
	errs := make([]error, machines)
	var wg sync.WaitGroup
	for i := range machines {
		wg.Go(func() { answers[i], errs[i] = fire(ctx, db) }) // 03:00, everywhere
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	slices.Sort(answers)
	for _, answer := range answers {
		fmt.Fprintln(out, answer)
	}
	return show(ctx, db, out)
}

// nightly is the job. Every machine says the same.
var nightly = joblock.Job{
	Name:    "nightly-report",
	AtMost:  time.Hour,      // then the report's ctx ends
	Every:   24 * time.Hour, // once a day, by the database's clock
	AtLeast: time.Minute,    // others are kept off for a minute, also if it crashes
}

// fire is what the schedule of a machine calls, be it that of a library for schedules,
// or main of a program that cron, a systemd timer or a Kubernetes CronJob starts.
func fire(ctx context.Context, db *sqldb.DB) (answer string, err error) {
	locker, err := sqllock.New(ctx, db)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	jobs, err := joblock.New(ctx, db, locker)
	if err != nil {
		return "", err
	}
	res, err := jobs.Run(ctx, nightly, report)
	switch {
	case err != nil:
		return "", err
	case res.Ran:
		return "ran: " + string(res.Outcome), nil
	case res.Disabled:
		return "skipped: it is switched off", nil
	}
	return "skipped: another machine runs it, or has run it", nil // res.Held, res.NotDue; res.String says more
}

func report(ctx context.Context) error {
	return ctx.Err() // the work; it ends when ctx does
}

// show prints the history.
func show(ctx context.Context, db *sqldb.DB, out io.Writer) (err error) {
	locker, err := sqllock.New(ctx, db)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, locker.Close()) }()
	jobs, err := joblock.New(ctx, db, locker)
	if err != nil {
		return err
	}
	runs, err := jobs.History(ctx, joblock.Filter{Job: nightly.Name})
	if err != nil {
		return err
	}
	for _, r := range runs { // and r.Host, r.PID, r.Started, r.Finished, r.Error
		fmt.Fprintf(out, "history: %s %s\n", r.Job, r.Outcome)
	}
	_, err = jobs.Prune(ctx, 90*24*time.Hour) // now and then
	return err
}
