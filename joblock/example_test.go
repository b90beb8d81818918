package joblock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log"
	"time"

	_ "modernc.org/sqlite"

	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
	"github.com/sqlnative/locks/sqllock"
)

// machine opens a database in memory, and what a program on a machine has.
func machine() (jobs *joblock.Jobs, done func()) {
	ctx := context.Background()
	pool, err := sql.Open("sqlite", ":memory:") // a program has its PostgreSQL, MySQL, MariaDB
	if err != nil {
		log.Fatal(err)
	}
	pool.SetMaxOpenConns(1)
	db, err := sqlitedb.New(ctx, pool)
	if err != nil {
		log.Fatal(err)
	}
	if err := migrations.Up(ctx, db); err != nil {
		log.Fatal(err)
	}
	locker, err := sqllock.New(ctx, db)
	if err != nil {
		log.Fatal(err)
	}
	if jobs, err = joblock.New(ctx, db, locker); err != nil {
		log.Fatal(err)
	}
	return jobs, func() { _ = errors.Join(locker.Close(), pool.Close()) }
}

// A job that runs once a day, wherever and how often its schedules fire.
func ExampleJobs_Run() {
	ctx := context.Background()
	jobs, done := machine()
	defer done()

	nightly := joblock.Job{Name: "nightly-report", AtMost: time.Hour, Every: 24 * time.Hour}
	report := func(ctx context.Context) error {
		fmt.Println("reporting")
		return nil
	}
	res, err := jobs.Run(ctx, nightly, report)
	fmt.Println(res.Ran, res.Outcome, err)
	res, err = jobs.Run(ctx, nightly, report)
	fmt.Println(res.Ran, res.NotDue, err)
	// Output:
	// reporting
	// true ok <nil>
	// false true <nil>
}

// To switch a job off, on all machines.
func ExampleJobs_Disable() {
	ctx := context.Background()
	jobs, done := machine()
	defer done()

	err := jobs.Disable(ctx, "nightly-report", "the archive is being moved")
	fmt.Println(err)
	res, err := jobs.Run(ctx, joblock.Job{Name: "nightly-report"}, nothing)
	fmt.Println(res, err)
	// Output:
	// <nil>
	// skipped: disabled: the archive is being moved <nil>
}

// What has run, how it ended, and how to keep that short.
func ExampleJobs_History() {
	ctx := context.Background()
	jobs, done := machine()
	defer done()

	_, err := jobs.Run(ctx, joblock.Job{Name: "backup"}, func(context.Context) error { return errors.New("no space left") })
	fmt.Println(err)
	runs, err := jobs.History(ctx, joblock.Filter{Job: "backup", Limit: 10})
	for _, r := range runs {
		fmt.Println(r.Job, r.Outcome, r.Error)
	}
	fmt.Println(err)
	fmt.Println(jobs.Prune(ctx, 90*24*time.Hour))
	// Output:
	// no space left
	// backup failed no space left
	// <nil>
	// 0 <nil>
}
