package gocronlock_test

import (
	"context"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"
	"github.com/google/uuid"
	"github.com/jonboulle/clockwork"
	"go.uber.org/goleak"

	"github.com/sqlnative/locks/contrib/internal/site"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// every is the period of the schedulers' job.
const every = time.Minute

// machine is a scheduler with a clock of its own, and the job "report".
type machine struct {
	t     *testing.T
	clock *clockwork.FakeClock
	began chan struct{} // a run has begun; it ends when something is sent to finish
	end   chan struct{}
	// told is what comes of each fire: nil when a run has ended, else the error of Lock.
	told chan error
	gocron.Scheduler
}

// start starts a machine whose task is what only takes time, if task is nil.
func start(t *testing.T, option gocron.SchedulerOption, task any) *machine {
	t.Helper()
	m := &machine{t: t, clock: clockwork.NewFakeClock(), began: make(chan struct{}), end: make(chan struct{}), told: make(chan error, 10)}
	var err error
	if m.Scheduler, err = gocron.NewScheduler(option, gocron.WithClock(m.clock)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Shutdown(); err != nil {
			t.Errorf("Shutdown: %v", err)
		}
	})
	if task == nil {
		task = func() {
			m.began <- struct{}{}
			<-m.end
		}
	}
	_, err = m.NewJob(gocron.DurationJob(every), gocron.NewTask(task), gocron.WithName("report"), gocron.WithEventListeners(
		gocron.AfterJobRuns(func(uuid.UUID, string) { m.told <- nil }),
		gocron.AfterLockError(func(_ uuid.UUID, _ string, err error) { m.told <- err })))
	if err != nil {
		t.Fatal(err)
	}
	m.Start()
	return m
}

// fire has the machine's clock come to the next time of its job.
//
// It asks for the jobs first, because what gocron does at the begin of a run it does in
// another goroutine, beside the run. The interleaving that this closes: the run of one
// time begins and ends, and the clock comes to the next time; only now gocron strikes
// out what lies behind it, which is that time as well; it has nothing to go on from,
// and starts the job for the same time twice.
func (m *machine) fire() {
	m.t.Helper()
	ctx, cancel := context.WithTimeout(m.t.Context(), site.Patience)
	defer cancel()
	if err := m.clock.BlockUntilContext(ctx, 1); err != nil {
		m.t.Fatalf("the scheduler does not wait for its next time: %v", err)
	}
	m.Jobs()
	m.clock.Advance(every)
}

// running waits until the machine's run has begun.
func (m *machine) running() {
	m.t.Helper()
	select {
	case <-m.began:
	case err := <-m.told:
		m.t.Fatalf("it does not run: %v", err)
	case <-time.After(site.Patience):
		m.t.Fatal("it does not run")
	}
}

// answer waits until a fire is over, and returns what came of it.
func (m *machine) answer() error {
	m.t.Helper()
	select {
	case err := <-m.told:
		return err
	case <-time.After(site.Patience):
		m.t.Fatal("a scheduler does nothing")
		return nil
	}
}
