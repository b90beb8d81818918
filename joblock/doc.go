// Package joblock runs a scheduled job on one machine at a time, at most once per
// period, and keeps a history of the runs: under cron, a systemd timer, a Kubernetes
// CronJob or a Go library for schedules, on several machines that all fire.
//
//	jobs, err := joblock.New(ctx, db, locker)
//	res, err := jobs.Run(ctx, joblock.Job{Name: "nightly-report", AtLeast: time.Minute, AtMost: time.Hour, Every: 24 * time.Hour}, report)
//	if err == nil && !res.Ran {
//		log.Print(res) // skipped: held by ..., not due until ..., disabled
//	}
//
// # How it is decided who runs, told in order
//
// The job's row in the table of jobs is read: a job that is switched off, or not due,
// is skipped. Then the lock of the job ([LockName]) is tried, without waiting: if it is
// held, the run is skipped. Under the lock one statement on the job's row decides
// again, by the database's clock, and notes the start; the run's row in the table of
// runs is written by the same transaction. Nobody's wall clock is asked, so it does not
// matter how far the machines' clocks are apart.
//
// The statement also compares fencing tokens: who was stopped between the lock and
// the start for so long that another has run the job meanwhile is refused with
// [lock.ErrLost]. (With a strategy that has no tokens it is the period alone that
// refuses.)
//
// # What is promised, and what is not
//
// Per period the job is started at most once, and, if any machine fires after it
// is due, at least tried: what has failed, crashed or timed out has had its turn,
// unless [Job.RetryFailed] says otherwise. What the job does is not undone when it
// crashes. A job that ignores its ctx can run beside another's when its lock is lost:
// see package lock.
package joblock
