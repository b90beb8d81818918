package joblock_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// cases are what every database and strategy has to show. Each has a job of its own.
var cases = []struct {
	name string
	f    func(t *testing.T, s *site)
}{
	{"Record", testRecord},
	{"Held", testHeld},
	{"AtLeast", testAtLeast},
	{"AtMost", testAtMost},
	{"Long", testLong},
	{"Period", testPeriod},
	{"EarlyFire", testEarlyFire},
	{"Failed", testFailed},
	{"Disabled", testDisabled},
	{"Panic", testPanic},
	{"Goexit", testGoexit},
	{"Cancelled", testCancelled},
	{"Texts", testTexts},
}

func TestRun(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel() // the cases wait more than they work
		migrated(t, db)
		for _, advisory := range []bool{false, true} {
			if advisory && db.Kind() == sqldb.SQLite {
				continue
			}
			s := &site{db, advisory}
			t.Run(map[bool]string{false: "sqllock", true: "advisory"}[advisory], func(t *testing.T) {
				for _, c := range cases {
					t.Run(c.name, func(t *testing.T) {
						db.MustExec(t, "DELETE FROM "+db.Table("jobs"), "DELETE FROM "+db.Table("job_runs"))
						c.f(t, s)
					})
				}
			})
		}
	})
}

// The row is there while fn runs, and is completed when it has returned.
func testRecord(t *testing.T, s *site) {
	p := s.process(t)
	job := joblock.Job{Name: "record", Note: "the first", Label: "nightly"}
	r := start(t, p, job)
	run := history(t, p, "record", 1)[0]
	host, _ := os.Hostname()
	if run.Outcome != joblock.Running || run.Finished != nil || run.Started.IsZero() || run.Host != host || run.PID != os.Getpid() || run.Note != "the first" || run.Error != "" {
		t.Errorf("while it runs: %+v", run)
	}
	if s.advisory != (run.Token == 0) {
		t.Errorf("token %d", run.Token)
	}
	res, err := r.end(nil)
	if err != nil || !res.Ran || res.Outcome != joblock.OK || res.Run != run.ID || res.Token != run.Token || !strings.HasPrefix(res.String(), "ran in ") {
		t.Errorf("%+v, %v", res, err)
	}
	after := history(t, p, "record", 1)[0]
	if after.Outcome != joblock.OK || after.Finished == nil || after.Finished.Before(after.Started) || !after.Started.Equal(run.Started) || after.ID != run.ID {
		t.Errorf("when it has ended: %+v", after)
	}
	if d := time.Since(after.Started); d < -time.Minute || d > time.Minute { // the servers run on this machine
		t.Errorf("it started at %v", after.Started)
	}
	ran(t, p, job, joblock.OK, nothing) // no period, no AtLeast: at once again
	runs := history(t, p, "record", 2)
	if runs[1].ID != run.ID {
		t.Error("the latest does not come first")
	}
}

// Who finds it held returns, while it is held, without an error.
func testHeld(t *testing.T, s *site) {
	one, two := s.process(t), s.process(t)
	job := joblock.Job{Name: "held", Label: "nightly"}
	r := start(t, one, job)
	res := skipped(t, two, job)
	if res.Held == nil || res.NotDue || res.Disabled || !strings.HasPrefix(res.String(), "skipped: ") {
		t.Fatalf("%+v", res)
	}
	if !s.advisory && (res.Held.Holder.PID != os.Getpid() || res.Held.Holder.Label != "nightly") {
		t.Errorf("held by %+v", res.Held.Holder)
	}
	history(t, two, "held", 1)
	if _, err := r.end(nil); err != nil {
		t.Error(err)
	}
	ran(t, two, job, joblock.OK, nothing)
}

// AtLeast keeps others off when the run has long ended.
func testAtLeast(t *testing.T, s *site) {
	one, two := s.process(t), s.process(t)
	job := joblock.Job{Name: "least", AtLeast: time.Hour}
	ran(t, one, job, joblock.OK, nothing)
	for _, p := range []process{one, two} {
		// A new process of a strategy that cannot hold does not know that yet, and has to
		// find it out under the lock.
		if res := skipped(t, p, job); res.Held == nil || res.Held.Left < 59*time.Minute || res.Held.Left > time.Hour {
			t.Errorf("%+v", res)
		}
	}
	s.later(t, "least", 59*time.Minute)
	if res := skipped(t, two, job); res.Held == nil || res.Held.Left > time.Minute || res.Held.Holder.PID != os.Getpid() {
		t.Errorf("%+v", res)
	}
	s.later(t, "least", time.Minute)
	ran(t, two, job, joblock.OK, nothing)
	// Who does not say so is not kept from it by the row, but by the lock that can.
	res, err := two.Run(t.Context(), joblock.Job{Name: "least"}, nothing)
	if err != nil || res.Ran != s.advisory {
		t.Errorf("%s, %v", res, err)
	}
}

// AtMost ends fn's ctx; what others see is that the job is held until fn has returned.
func testAtMost(t *testing.T, s *site) {
	one, two := s.process(t), s.process(t)
	job := joblock.Job{Name: "most", AtMost: 20 * time.Millisecond}
	r := start(t, one, job)
	if cause := r.ended(); !errors.Is(cause, joblock.ErrTimedOut) || !errors.Is(r.ctx.Err(), context.DeadlineExceeded) {
		t.Errorf("the ctx ends with %v", cause)
	}
	if res := skipped(t, two, job); res.Held == nil {
		t.Errorf("%+v", res)
	}
	if run := history(t, two, "most", 1)[0]; run.Outcome != joblock.Running {
		t.Errorf("%+v", run)
	}
	res, err := r.end(nil) // it has ended well, but too late
	if !errors.Is(err, joblock.ErrTimedOut) || res.Outcome != joblock.TimedOut {
		t.Errorf("%s, %v", res, err)
	}
	if run := history(t, two, "most", 1)[0]; run.Outcome != joblock.TimedOut || run.Finished == nil || run.Error == "" {
		t.Errorf("%+v", run)
	}
	r = start(t, two, job)
	_ = r.ended()
	if _, err := r.end(r.ctx.Err()); !errors.Is(err, joblock.ErrTimedOut) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("with its ctx's error: %v", err)
	}
}

// A run that takes several TTLs stays locked, and does not read as abandoned.
func testLong(t *testing.T, s *site) {
	one, two := s.process(t), s.process(t)
	ttl := time.Second
	job := joblock.Job{Name: "long", TTL: ttl}
	r := start(t, one, job)
	begun := time.Now()
	for time.Since(begun) < 2*ttl {
		if res := skipped(t, two, job); res.Held == nil {
			t.Fatalf("after %v: %+v", time.Since(begun), res)
		}
		time.Sleep(50 * time.Millisecond)
	}
	// The beats wrote a later lease: the first ended a TTL after the start.
	if run := history(t, two, "long", 1)[0]; run.Outcome != joblock.Running {
		t.Errorf("after %v it reads as %s", time.Since(begun), run.Outcome)
	}
	if res, err := r.end(nil); err != nil || res.Outcome != joblock.OK {
		t.Errorf("%s, %v", res, err)
	}
}

// Thirty days on which three machines fire within seconds: thirty runs. What a day is
// says the database's clock.
func testPeriod(t *testing.T, s *site) {
	machines := []process{s.process(t), s.process(t), s.process(t)}
	job := joblock.Job{Name: "daily", Every: 24 * time.Hour}
	runs := 0
	jitter := time.Duration(0)
	for day := range 30 {
		for range machines {
			res, err := machines[rand.IntN(len(machines))].Run(t.Context(), job, func(context.Context) error { runs++; return nil })
			if err != nil || !res.Ran && !res.NotDue {
				t.Fatalf("day %d: %s, %v", day, res, err)
			}
		}
		if runs != day+1 {
			t.Fatalf("day %d: %d runs", day, runs)
		}
		// The next day's fires come up to 50 s too early or too late.
		next := time.Duration(rand.IntN(100)-50) * time.Second
		s.later(t, "daily", 24*time.Hour+next-jitter)
		jitter = next
	}
	ran(t, machines[0], job, joblock.OK, nothing)
	// Not before period - min(period/10, 1 h), and then.
	s.later(t, "daily", 22*time.Hour+59*time.Minute)
	last := history(t, machines[0], "daily", 31)[0]
	res := skipped(t, machines[1], job)
	if d := res.Next.Sub(last.Started); !res.NotDue || d < 23*time.Hour-time.Second || d > 23*time.Hour+time.Second || !strings.HasPrefix(res.String(), "skipped: not due until ") {
		t.Errorf("%s, %v after the last start", res, d)
	}
	s.later(t, "daily", time.Minute)
	ran(t, machines[1], job, joblock.OK, nothing)
	// The control: without a period every fire runs.
	for range 3 {
		ran(t, machines[2], joblock.Job{Name: "daily"}, joblock.OK, nothing)
	}
}

// A fire that comes too early takes no lock for AtLeast, which would keep the job from
// starting when it is due.
func testEarlyFire(t *testing.T, s *site) {
	one, two := s.process(t), s.process(t)
	job := joblock.Job{Name: "early", Every: time.Hour, AtLeast: 30 * time.Minute}
	ran(t, one, job, joblock.OK, nothing)
	s.later(t, "early", 31*time.Minute)
	if res := skipped(t, two, job); !res.NotDue {
		t.Errorf("%+v", res)
	}
	s.later(t, "early", 24*time.Minute)
	ran(t, one, job, joblock.OK, nothing)
}

// A run that has failed has had its turn, unless RetryFailed says otherwise.
func testFailed(t *testing.T, s *site) {
	one, two := s.process(t), s.process(t)
	broken := errors.New("the printer is out of paper")
	job := joblock.Job{Name: "failed", Every: time.Hour}
	if _, err := ran(t, one, job, joblock.Failed, func(context.Context) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("Run returned %v", err)
	}
	run := history(t, two, "failed", 1)[0]
	if run.Outcome != joblock.Failed || run.Error != broken.Error() || run.Finished == nil || run.ExitCode != nil {
		t.Errorf("%+v", run)
	}
	if res := skipped(t, two, job); !res.NotDue {
		t.Errorf("%+v", res)
	}
	job.RetryFailed = true
	ran(t, two, job, joblock.Failed, func(context.Context) error { return fmt.Errorf("sh: %w", exit(3)) })
	if run := history(t, two, "failed", 2)[0]; run.ExitCode == nil || *run.ExitCode != 3 {
		t.Errorf("%+v", run)
	}
	ran(t, two, job, joblock.OK, nothing)
	if res := skipped(t, one, job); !res.NotDue {
		t.Errorf("after it went well: %+v", res)
	}
}

// exit is an error as a command has it.
type exit int

func (e exit) Error() string { return fmt.Sprintf("exit status %d", int(e)) }
func (e exit) ExitCode() int { return int(e) }

func testDisabled(t *testing.T, s *site) {
	one, two := s.process(t), s.process(t)
	job := joblock.Job{Name: "disabled"}
	if err := one.Disable(t.Context(), "disabled", "until the flood is over"); err != nil { // it has never run
		t.Fatal(err)
	}
	for _, p := range []process{one, two} {
		if res := skipped(t, p, job); !res.Disabled || res.Note != "until the flood is over" || res.String() != "skipped: disabled: until the flood is over" {
			t.Errorf("%+v", res)
		}
	}
	if err := one.Disable(t.Context(), "disabled", ""); err != nil {
		t.Fatal(err)
	}
	if res := skipped(t, two, job); !res.Disabled || res.Note != "" {
		t.Errorf("%+v", res)
	}
	history(t, two, "disabled", 0)
	for range 2 {
		if err := two.Enable(t.Context(), "disabled"); err != nil {
			t.Fatal(err)
		}
	}
	// What runs goes on.
	r := start(t, one, job)
	if err := two.Disable(t.Context(), "disabled", ""); err != nil {
		t.Fatal(err)
	}
	if res, err := r.end(nil); err != nil || res.Outcome != joblock.OK {
		t.Errorf("%s, %v", res, err)
	}
	skipped(t, one, job)
}

func testPanic(t *testing.T, s *site) {
	one, two := s.process(t), s.process(t)
	func() {
		defer func() {
			if p := recover(); p != "boom" {
				t.Errorf("it panicked with %v", p)
			}
		}()
		_, _ = one.Run(t.Context(), joblock.Job{Name: "panic"}, func(context.Context) error { panic("boom") })
	}()
	run := history(t, two, "panic", 1)[0]
	if run.Outcome != joblock.Failed || !strings.HasPrefix(run.Error, "panic: boom\n") || !strings.Contains(run.Error, "run_test.go") || run.Finished == nil {
		t.Errorf("%+v", run)
	}
	ran(t, two, joblock.Job{Name: "panic"}, joblock.OK, nothing) // it was released
}

// runtime.Goexit, which t.Fatal calls, ends a run too.
func testGoexit(t *testing.T, s *site) {
	one, two := s.process(t), s.process(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = one.Run(context.Background(), joblock.Job{Name: "goexit"}, func(context.Context) error {
			runtime.Goexit()
			return nil
		})
	}()
	<-done
	if run := history(t, two, "goexit", 1)[0]; run.Outcome != joblock.Failed || !strings.Contains(run.Error, "Goexit") {
		t.Errorf("%+v", run)
	}
	ran(t, two, joblock.Job{Name: "goexit"}, joblock.OK, nothing)
}

// The end is written, and the lock released, also when ctx is done.
func testCancelled(t *testing.T, s *site) {
	one, two := s.process(t), s.process(t)
	job := joblock.Job{Name: "cancelled"}
	ctx, cancel := context.WithCancel(t.Context())
	r := startCtx(ctx, t, one, job)
	cancel()
	if cause := r.ended(); !errors.Is(cause, context.Canceled) {
		t.Errorf("the ctx ends with %v", cause)
	}
	res, err := r.end(r.ctx.Err())
	if !errors.Is(err, context.Canceled) || res.Outcome != joblock.Failed {
		t.Errorf("%s, %v", res, err)
	}
	if run := history(t, two, "cancelled", 1)[0]; run.Outcome != joblock.Failed || run.Error != "context canceled" || run.Finished == nil {
		t.Errorf("%+v", run)
	}
	if res, err := two.Run(ctx, job, nothing); !errors.Is(err, context.Canceled) || res.Ran {
		t.Errorf("with a ctx that is done: %s, %v", res, err)
	}
	ran(t, two, job, joblock.OK, nothing)
}

// Names and errors of any kind; what is too long is cut at a character.
func testTexts(t *testing.T, s *site) {
	p := s.process(t)
	for _, name := range []string{"texts", "TEXTS", "texts ", "täxts:\\'\"", strings.Repeat("x", 250)} {
		ran(t, p, joblock.Job{Name: name, Every: time.Hour, Note: strings.Repeat("ä", 1000)}, joblock.OK, nothing)
		if run := history(t, p, name, 1)[0]; run.Job != name || run.Note != strings.Repeat("ä", 1000) {
			t.Errorf("%+v", run)
		}
	}
	for text, want := range map[string]string{
		strings.Repeat("€", 5000): strings.Repeat("€", 4000),
		"a\x00b\xffc":             "a\uFFFDb\uFFFDc",
		"":                        "",
	} {
		ran(t, p, joblock.Job{Name: "text"}, joblock.Failed, func(context.Context) error { return errors.New(text) })
		if got := history(t, p, "text", 1)[0].Error; got != want {
			t.Errorf("%.20q is kept as %.20q", text, got)
		}
		s.MustExec(t, "DELETE FROM "+s.Table("job_runs"))
	}
}

// Nothing is asked of the database if the call can't be right.
func TestInput(t *testing.T) {
	s := &site{DB: dbtest.New(t, sqldb.SQLite)}
	migrated(t, s.DB)
	db, counter := dbtest.Count(s.DB.DB)
	p := s.processOn(t, db)
	counter.Take()
	run := func(job joblock.Job) error {
		said := job.Check()
		_, err := p.Run(t.Context(), job, nothing)
		if said == nil || said.Error() != err.Error() {
			t.Errorf("Check says %v, and Run %v", said, err)
		}
		return said
	}
	filter := func(f joblock.Filter) error {
		_, err := p.History(t.Context(), f)
		return err
	}
	_, noFn := p.Run(t.Context(), joblock.Job{Name: "x"}, nil)
	_, noDB := joblock.New(t.Context(), nil, p.locker)
	_, noLocker := joblock.New(t.Context(), db, nil)
	counter.Take()
	_, prune := p.Prune(t.Context(), -1)
	for what, err := range map[string]error{
		"no database":        noDB,
		"no Locker":          noLocker,
		"no function":        noFn,
		"no name":            run(joblock.Job{}),
		"a long name":        run(joblock.Job{Name: strings.Repeat("x", 252)}),
		"many colons":        run(joblock.Job{Name: strings.Repeat(":", 126)}),
		"NUL":                run(joblock.Job{Name: "a\x00"}),
		"AtLeast":            run(joblock.Job{Name: "x", AtLeast: -1}),
		"AtMost":             run(joblock.Job{Name: "x", AtMost: time.Microsecond}),
		"Every":              run(joblock.Job{Name: "x", Every: 1 << 62}),
		"AtLeast over Every": run(joblock.Job{Name: "x", AtLeast: 55 * time.Minute, Every: time.Hour}),
		"TTL":                run(joblock.Job{Name: "x", TTL: time.Millisecond}),
		"Label":              run(joblock.Job{Name: "x", Label: "\xff"}),
		"Note":               run(joblock.Job{Name: "x", Note: "\x00"}),
		"a long Note":        run(joblock.Job{Name: "x", Note: strings.Repeat("x", 1001)}),
		"Disable":            p.Disable(t.Context(), "", ""),
		"Disable, Note":      p.Disable(t.Context(), "x", "\xff"),
		"Enable":             p.Enable(t.Context(), ""),
		"Filter, Job":        filter(joblock.Filter{Job: "\xff"}),
		"Filter, Outcome":    filter(joblock.Filter{Outcome: "fine"}),
		"Filter, Limit":      filter(joblock.Filter{Limit: 10001}),
		"Filter, Within":     filter(joblock.Filter{Within: -1}),
		"Prune":              prune,
	} {
		if !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if q := counter.Take(); len(q) > 0 {
		t.Errorf("the database was asked: %q", q)
	}
	longest := joblock.Job{Name: strings.Repeat("x", 251)}
	if res, err := p.Run(t.Context(), longest, nothing); err != nil || !res.Ran || longest.Check() != nil {
		t.Errorf("the longest name: %s, %v", res, err)
	}
	if s := (joblock.Result{}).String(); s != "not run" {
		t.Error(s)
	}
}

func TestNotMigrated(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := &site{DB: db}
		if _, err := joblock.New(t.Context(), db.DB, nowhere{}); !errors.Is(err, lock.ErrNotMigrated) {
			t.Errorf("New: %v", err)
		}
		migrated(t, db)
		p := s.process(t)
		db.MustExec(t, "DROP TABLE "+db.Table("job_runs"))
		if _, err := p.Run(t.Context(), joblock.Job{Name: "x"}, nothing); !errors.Is(err, lock.ErrNotMigrated) {
			t.Errorf("Run: %v", err)
		}
		if _, err := p.History(t.Context(), joblock.Filter{}); !errors.Is(err, lock.ErrNotMigrated) {
			t.Errorf("History: %v", err)
		}
	})
}

type nowhere struct{ lock.Locker }
