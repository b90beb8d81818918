package joblock_test

import (
	"bufio"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock/locktest"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
	"github.com/sqlnative/locks/sqllock"
)

// child opens a database in a child, with one connection.
func child(ctx context.Context, kind, dsn string) (*joblock.Jobs, func(), error) {
	driver, open := "sqlite", sqlitedb.New
	switch kind {
	case "postgres":
		driver, open = "pgx", pgdb.SQL
	case "mysql", "mariadb":
		driver, open = "mysql", mysqldb.New
	}
	pool, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, nil, err
	}
	pool.SetMaxOpenConns(1)
	db, err := open(ctx, pool)
	if err != nil {
		return nil, nil, err
	}
	locker, err := sqllock.New(ctx, db)
	if err != nil {
		return nil, nil, err
	}
	jobs, err := joblock.New(ctx, db, locker)
	return jobs, func() { _ = errors.Join(locker.Close(), pool.Close()) }, err
}

// fire is a process that, at each line of stdin with a kind and a DSN, is ready for that
// database, and at the next runs the job there.
func fire([]string) int {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		kind, dsn, _ := strings.Cut(in.Text(), " ")
		jobs, done, err := child(context.Background(), kind, dsn)
		if err != nil {
			fmt.Println("error", err)
			return 1
		}
		fmt.Println("ready")
		if !in.Scan() {
			return 0
		}
		job := joblock.Job{Name: "nightly", Every: 24 * time.Hour}
		if in.Text() == "always" {
			job.Every = 0
		}
		res, err := jobs.Run(context.Background(), job, nothing)
		for job.Every == 0 && err == nil && res.Held != nil {
			time.Sleep(5 * time.Millisecond)
			res, err = jobs.Run(context.Background(), job, nothing)
		}
		switch {
		case err != nil:
			fmt.Println("error", err)
		case res.Ran:
			fmt.Println("ran")
		case res.Held != nil:
			fmt.Println("held")
		case res.NotDue:
			fmt.Println("not due")
		default:
			fmt.Println("error", res)
		}
		done()
	}
	return 0
}

// 32 processes fire at the same moment, on each database: one run. That their clocks
// may be minutes apart is shown by [TestNoWallClock]: none is asked.
func TestProcesses(t *testing.T) {
	const processes = 32
	all := make([]*locktest.Process, processes)
	for i := range all {
		all[i] = locktest.Start(t, "fire")
	}
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		migrated(t, db)
		// The control: without a period, and with patience, every one of them runs.
		for how, all := range map[string][]*locktest.Process{"daily": all, "always": all[:8]} {
			for _, p := range all {
				p.Send(db.Kind().String() + " " + db.DSN)
			}
			for _, p := range all {
				p.Expect("ready")
			}
			for _, p := range all {
				p.Send(how)
			}
			count := map[string]int{}
			for _, p := range all {
				count[p.Line()]++
			}
			t.Log(how, count)
			want := map[string]int{"daily": 1, "always": len(all)}[how]
			if count["ran"] != want || count["ran"]+count["held"]+count["not due"] != len(all) {
				t.Errorf("%s: %v", how, count)
			}
			history(t, (&site{DB: db}).process(t), "nightly", want)
			db.MustExec(t, "DELETE FROM "+db.Table("jobs"))
			db.MustExec(t, "DELETE FROM "+db.Table("job_runs"))
		}
	})
}

// stuck is a process that runs a job which never ends.
func stuck(args []string) int {
	jobs, _, err := child(context.Background(), args[0], args[1])
	if err == nil {
		ttl, least := 2*time.Second, time.Hour
		_, err = jobs.Run(context.Background(), joblock.Job{Name: "stuck", TTL: ttl, AtLeast: least}, func(context.Context) error {
			fmt.Println("runs")
			select {}
		})
	}
	fmt.Println("error", err)
	return 1
}

// A process that is killed leaves a run that reads as running while its lease lasts, and
// then as abandoned; AtLeast keeps others off all the same.
func TestKilled(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		s := &site{DB: db}
		p := s.process(t)
		c := locktest.Start(t, "stuck", db.Kind().String(), db.DSN)
		c.Expect("runs")
		run := history(t, p, "stuck", 1)[0]
		if run.Outcome != joblock.Running || run.PID != c.PID() {
			t.Errorf("while it runs: %+v", run)
		}
		c.Kill()
		job := joblock.Job{Name: "stuck", Every: 2 * time.Hour, RetryFailed: true}
		if res := skipped(t, p, job); res.Held == nil || res.Held.Holder.PID != c.PID() {
			t.Errorf("%+v", res)
		}
		eventually(t, "it reads as abandoned", func() bool { return history(t, p, "stuck", 1)[0].Outcome == joblock.Abandoned })
		if run := history(t, p, "stuck", 1)[0]; run.Finished != nil || run.ID == "" {
			t.Errorf("%+v", run)
		}
		if res := skipped(t, p, job); res.Held == nil || res.Held.Left < 55*time.Minute {
			t.Errorf("AtLeast has not passed: %+v", res)
		}
		s.later(t, "stuck", time.Hour)
		once := job
		once.RetryFailed = false
		if res := skipped(t, p, once); !res.NotDue {
			t.Errorf("a run that was killed has had its turn: %+v", res)
		}
		ran(t, p, job, joblock.OK, nothing) // but with RetryFailed
		var marked string
		if err := db.QueryRow(t.Context(), "SELECT outcome FROM "+db.Table("job_runs")+" WHERE pid = "+fmt.Sprint(c.PID())).Scan(&marked); err != nil || marked != "abandoned" {
			t.Errorf("the next has not marked it: %q, %v", marked, err)
		}
	})
}
