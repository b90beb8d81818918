package migrations_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

const many = 20

// TestConcurrentUps: every step is taken once, whoever takes it.
func TestConcurrentUps(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		var begun [16]atomic.Int32
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range many {
			pool := db.Another(t)
			wg.Go(func() {
				<-start
				err := migrations.Up(t.Context(), pool.DB, migrations.Progress(func(s migrations.Step) { begun[s.Version].Add(1) }))
				if err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
		wantClean(t, db.DB)
		for v := int64(1); v <= latest; v++ {
			if n := begun[v].Load(); n != 1 {
				t.Errorf("version %d was begun %d times", v, n)
			}
		}
	})
}

// TestProcesses: the same with real processes.
func TestProcesses(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range many {
			wg.Go(func() {
				cmd := exec.CommandContext(t.Context(), self)
				cmd.Env = append(os.Environ(), "MIGRATIONS_TEST_DSN="+db.DSN, "MIGRATIONS_TEST_KIND="+db.Kind().String())
				if out, err := cmd.CombinedOutput(); err != nil {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		wg.Wait()
		wantClean(t, db.DB)
	})
}

// TestUnlocked is the negative control: without the lock two processes are in one
// migration at the same time. On PostgreSQL one of them fails, IF NOT EXISTS or not.
func TestUnlocked(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		var in sync.WaitGroup
		in.Add(2)
		errs := make(chan error, 2)
		for range 2 {
			pool := db.Another(t)
			up(t, pool.DB, migrations.To(1)) // so that the table of versions is there
			go func() {
				errs <- migrations.Up(context.Background(), pool.DB, migrations.Unlocked(),
					migrations.Before(func(s migrations.Step, statement int) error {
						switch {
						case s.Version == 2 && statement == 0:
							in.Done()
							in.Wait() // both are in it
						case s.Version == 2 && statement == 1 && db.Kind() == sqldb.Postgres:
							// The other one waits for this transaction now.
							waits := "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%" + db.Schema() + "%'"
							if !comesAbout(func() bool {
								var n int
								_ = db.QueryRow(context.Background(), waits).Scan(&n)
								return n > 0
							}) {
								return errors.New("nobody waits")
							}
						}
						return nil
					}))
			}()
		}
		failed := 0
		for range 2 {
			if <-errs != nil {
				failed++
			}
		}
		if db.Kind() == sqldb.Postgres && failed != 1 {
			t.Errorf("%d of two failed", failed)
		}
	})
}

// TestHandOver: from the lock coming free to the waiter's end, 300 ms at most.
func TestHandOver(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		// The median of five; the machine may be busy with something else for a while.
		var took []time.Duration
		for n := 0; n < 20 && (n < 5 || n%5 != 0 || median(took) > 300*time.Millisecond); n++ {
			if n%5 == 0 {
				took = nil
			}
			other := db.Another(t)
			h := hold(t, db.DB, latest)
			var end time.Time
			waited := make(chan error, 1)
			go func() {
				err := migrations.Up(context.Background(), other.DB)
				end = time.Now()
				waited <- err
			}()
			eventually(t, "the waiter has a connection", func() bool { return inUse(other) == 1 })
			h.end(t)
			free := time.Now()
			if err := <-waited; err != nil {
				t.Fatal(err)
			}
			took = append(took, end.Sub(free))
			down(t, db.DB)
		}
		if median(took) > 300*time.Millisecond {
			t.Errorf("hand-over took %v", took)
		}
	})
}

func median(d []time.Duration) time.Duration {
	d = slices.Sorted(slices.Values(d))
	return d[len(d)/2]
}

func TestLockTimeout(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		other := db.Another(t)
		h := hold(t, db.DB, latest)
		err := migrations.Up(t.Context(), other.DB, migrations.LockTimeout(200*time.Millisecond))
		if !errors.Is(err, migrations.ErrLockTimeout) {
			t.Errorf("Up beside another: %v", err)
		}
		err = migrations.Down(t.Context(), other.DB, migrations.LockTimeout(200*time.Millisecond))
		if !errors.Is(err, migrations.ErrLockTimeout) {
			t.Errorf("Down beside another: %v", err)
		}
		h.end(t)
		wantClean(t, db.DB)
		down(t, other.DB)
	})
}

func TestWaitCancelled(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		other := db.Another(t)
		h := hold(t, db.DB, latest)
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- migrations.Up(ctx, other.DB) }()
		eventually(t, "the waiter has a connection", func() bool { return inUse(other) == 1 })
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("Up whose ctx ended: %v", err)
		}
		h.end(t)
		down(t, other.DB) // the lock is free
	})
}

// TestCancelled: the migration that runs is finished, the next one not begun.
func TestCancelled(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		err := migrations.Up(ctx, db.DB, migrations.Progress(func(s migrations.Step) {
			if s.Version == 3 {
				cancel()
			}
		}))
		if !errors.Is(err, context.Canceled) || !strings.Contains(fmt.Sprint(err), "up 4 reservations, not begun") {
			t.Errorf("Up: %v", err)
		}
		wantVersion(t, db.DB, 3)
		if err := migrations.Up(ctx, db.DB); !errors.Is(err, context.Canceled) {
			t.Errorf("Up under a ctx that has ended: %v", err)
		}
		wantVersion(t, db.DB, 3)
		up(t, db.DB)
		wantClean(t, db.DB)

		ctx, cancel = context.WithCancel(t.Context())
		err = migrations.Down(ctx, db.DB, migrations.To(0), migrations.Progress(func(s migrations.Step) {
			if s.Version == 3 {
				cancel()
			}
		}))
		if !errors.Is(err, context.Canceled) {
			t.Errorf("Down: %v", err)
		}
		wantVersion(t, db.DB, 2)
	})
}
