package joblock_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
	"github.com/sqlnative/locks/sqllock"
)

// child opens a database in a child, with as few connections as the strategy takes.
func child(ctx context.Context, kind, strategy, dsn string) (*joblock.Jobs, func(), error) {
	db, pool, err := dbtest.Open(ctx, kind, dsn)
	if err != nil {
		return nil, nil, err
	}
	pool.SetMaxOpenConns(1)
	if strategy == "advisory" {
		pool.SetMaxOpenConns(2)
	}
	var locker lock.Locker
	if strategy == "advisory" {
		locker, err = advisory.New(ctx, db)
	} else {
		locker, err = sqllock.New(ctx, db)
	}
	if err != nil {
		return nil, nil, err
	}
	jobs, err := joblock.New(ctx, db, locker)
	return jobs, func() { _ = errors.Join(locker.Close(), pool.Close()) }, err
}

// fire is a process that, at each line of stdin with a kind, a strategy and a DSN, is ready
// for that database, and at the next runs the job there.
func fire([]string) int {
	in := bufio.NewScanner(os.Stdin)
	for in.Scan() {
		where := strings.SplitN(in.Text(), " ", 3)
		jobs, done, err := child(context.Background(), where[0], where[1], where[2])
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
// may be minutes apart is shown by [TestNoWallClock], none is asked, and [TestClocksApart].
func TestProcesses(t *testing.T) {
	const processes = 32
	all := make([]*locktest.Process, processes)
	for i := range all {
		all[i] = locktest.Start(t, "fire")
	}
	strategies(t, func(t *testing.T, s *site) {
		// The control: without a period, and with patience, every one of them runs.
		for how, all := range map[string][]*locktest.Process{"daily": all, "always": all[:8]} {
			for _, p := range all {
				p.Send(s.Kind().String() + " " + s.strategy() + " " + s.DSN)
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
			history(t, s.process(t), "nightly", want)
			s.empty(t)
		}
	})
}

// stuck is a process that runs a job which never ends.
func stuck(args []string) int {
	jobs, _, err := child(context.Background(), args[0], args[1], args[2])
	if err == nil {
		ttl, least := 2*time.Second, time.Hour
		_, err = jobs.Run(context.Background(), joblock.Job{Name: args[3], TTL: ttl, AtLeast: least}, func(context.Context) error {
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
	strategies(t, func(t *testing.T, s *site) {
		t.Parallel() // it waits more than it works
		name := "stuck " + s.strategy()
		p := s.process(t)
		ran(t, p, joblock.Job{Name: name}, joblock.OK, nothing) // which says nothing of the next
		s.later(t, name, 3*time.Hour)
		c := locktest.Start(t, "stuck", s.Kind().String(), s.strategy(), s.DSN, name)
		c.Expect("runs")
		run := history(t, p, name, 2)[0]
		if run.Outcome != joblock.Running || run.PID != c.PID() {
			t.Errorf("while it runs: %+v", run)
		}
		job := joblock.Job{Name: name, Every: 2 * time.Hour, RetryFailed: true}
		least := job // with advisory locks the row keeps others off, from who says so
		least.AtLeast = time.Hour
		if res := skipped(t, p, job); res.Held == nil {
			t.Errorf("while it runs: %+v", res)
		}
		c.Kill()
		if res := skipped(t, p, least); res.Held == nil || !s.advisory && res.Held.Holder.PID != c.PID() {
			t.Errorf("%+v", res)
		}
		eventually(t, "it reads as abandoned", func() bool { return history(t, p, name, 2)[0].Outcome == joblock.Abandoned })
		if run := history(t, p, name, 2)[0]; run.Finished != nil || run.ID == "" {
			t.Errorf("%+v", run)
		}
		// The lock of the dead process may still be there when the run reads as abandoned.
		eventually(t, "its lock is gone", func() bool { return !s.advisory || !s.held(t, name) })
		if res := skipped(t, p, least); res.Held == nil || res.Held.Left < 55*time.Minute || res.Held.Holder.PID != c.PID() {
			t.Errorf("AtLeast has not passed: %+v", res)
		}
		s.later(t, name, time.Hour)
		once := job
		once.RetryFailed = false
		if res := skipped(t, p, once); !res.NotDue {
			t.Errorf("a run that was killed has had its turn: %+v", res)
		}
		ran(t, p, job, joblock.OK, nothing) // but with RetryFailed
		var marked string
		if err := s.QueryRow(t.Context(), "SELECT outcome FROM "+s.Table("job_runs")+" WHERE pid = "+fmt.Sprint(c.PID())).Scan(&marked); err != nil || marked != "abandoned" {
			t.Errorf("the next has not marked it: %q, %v", marked, err)
		}
	})
}
