// Package cronlock makes a job of robfig/cron v3 one that runs on one machine at a time,
// once per period, with a history, by package joblock:
//
//	c := cron.New()
//	once := cronlock.Wrap(ctx, jobs, joblock.Job{Name: "report", Every: 24 * time.Hour}, log)
//	_, err := c.AddJob("0 3 * * *", once(cronlock.Func(report)))
package cronlock

import (
	"context"

	"github.com/robfig/cron/v3"

	"github.com/sqlnative/locks/joblock"
)

// Func is a job that is told when to stop, and says how it ended.
type Func func(ctx context.Context) error

// Run is cron.Job's, for a Func that is not wrapped: its error is lost.
func (f Func) Run() { _ = f(context.Background()) }

// RunContext calls f.
func (f Func) RunContext(ctx context.Context) error { return f(ctx) }

// Wrap returns a cron.JobWrapper, which has a job run by jobs.Run. A job with a method
// RunContext(ctx) error, as a [Func], gets the ctx that ends with ctx, when AtMost has
// passed, and when the lock is lost, and its error is the run's; of any other, only a
// panic counts as failed, which goes on: [cron.Recover] belongs before Wrap in a chain.
// told, if not nil, is told what became of each fire.
//
// Give the job Every, or AtLeast: with neither, one that takes less time than the machines'
// clocks differ by runs on each of them.
func Wrap(ctx context.Context, jobs *joblock.Jobs, job joblock.Job, told func(joblock.Result, error)) cron.JobWrapper {
	return func(inner cron.Job) cron.Job {
		return cron.FuncJob(func() {
			res, err := jobs.Run(ctx, job, func(ctx context.Context) error {
				if f, ok := inner.(interface{ RunContext(context.Context) error }); ok {
					return f.RunContext(ctx)
				}
				inner.Run()
				return nil
			})
			if told != nil {
				told(res, err)
			}
		})
	}
}
