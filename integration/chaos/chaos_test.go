package chaos_test

import (
	"context"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/sqlnative/locks/integration/chaos/proxy"
	"github.com/sqlnative/locks/integration/testdb/control"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// processes is how many there are at a time.
const processes = 3

// duration is for how long there is chaos on each database.
func duration() time.Duration {
	if dbtest.Long() {
		return 5 * time.Minute
	}
	return 10 * time.Second
}

// arena is a database with a counter, a fence, and what can be done to those who use it.
type arena struct {
	*dbtest.DB
	t       *testing.T
	proxy   *proxy.Proxy    // nil on SQLite
	control *control.Server // nil where testdb did not start the server
	task    task
	ledger  ledger
	workers []*worker
}

func newArena(t *testing.T, kind sqldb.Kind, guard bool) *arena {
	fresh := dbtest.New(t, kind)
	if err := migrations.Up(t.Context(), fresh.DB); err != nil {
		t.Fatal(err)
	}
	fresh.MustExec(t, "CREATE TABLE counter (n BIGINT NOT NULL)", "INSERT INTO counter VALUES (0)",
		"CREATE TABLE fence (token BIGINT NOT NULL)", "INSERT INTO fence VALUES (0)")
	a := &arena{DB: fresh, t: t, task: task{kind.String(), fresh.DSN, guard}, ledger: ledger{last: map[string]string{}}}
	if kind != sqldb.SQLite {
		p, dsn, err := proxy.Before(kind, fresh.DSN)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		a.proxy, a.task.DSN = p, dsn
		if c, ok := control.Of(kind.String()); ok {
			a.control = c
		}
	}
	for range processes {
		a.workers = append(a.workers, hire(t, a.task, &a.ledger))
	}
	t.Cleanup(func() {
		for _, w := range a.workers {
			w.signal(syscall.SIGKILL)
			<-w.ended
		}
	})
	return a
}

// end lets the workers come to their end, and returns what the row says then.
func (a *arena) end() (n int64) {
	for _, w := range a.workers {
		w.dismiss(a.t)
	}
	if err := a.QueryRow(context.WithoutCancel(a.t.Context()), "SELECT n FROM counter").Scan(&n); err != nil {
		a.t.Fatal(err)
	}
	return n
}

// kill ends a process in the middle of whatever it does, and hires another.
func (a *arena) kill() {
	i := rand.N(len(a.workers))
	a.workers[i].signal(syscall.SIGKILL)
	<-a.workers[i].ended
	a.workers[i] = hire(a.t, a.task, &a.ledger)
}

// freeze stops a process for as long as up to two TTLs.
func (a *arena) freeze() {
	w := a.workers[rand.N(len(a.workers))]
	w.signal(syscall.SIGSTOP)
	time.AfterFunc(rand.N(2*ttl), func() { w.signal(syscall.SIGCONT) })
}

// cut does something to the network, for as long as up to a TTL.
func (a *arena) cut() {
	if a.proxy == nil {
		return
	}
	switch rand.N(4) {
	case 0:
		a.proxy.CutAll()
		return
	case 1:
		a.proxy.Refuse()
	case 2:
		a.proxy.Pause()
	case 3:
		a.proxy.Swallow()
	}
	time.Sleep(rand.N(ttl))
	if err := a.proxy.Heal(); err != nil {
		a.t.Error(err)
	}
}

// restart restarts the server, or has it crash.
func (a *arena) restart() {
	if a.control == nil {
		return
	}
	ctx := context.WithoutCancel(a.t.Context())
	var err error
	if rand.N(2) == 0 {
		err = a.control.Restart(ctx)
	} else if err = a.control.Kill(ctx); err == nil {
		err = a.control.Start(ctx)
	}
	if err != nil {
		a.t.Errorf("restart: %v", err)
	}
}

// No increment of a guarded transaction gets lost, and tokens only grow, whatever happens.
func TestChaos(t *testing.T) {
	for _, kind := range sqldb.Kinds() {
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, kind, true)
			kills, freezes, cuts, restarts := 0, 0, 0, 0
			until := time.Now().Add(duration())
			restartAt := time.Now().Add(duration() / 2)
			for time.Now().Before(until) {
				time.Sleep(100*time.Millisecond + rand.N(400*time.Millisecond))
				switch what := rand.N(6); {
				case a.control != nil && time.Now().After(restartAt):
					a.restart()
					restarts++
					restartAt = time.Now().Add(20 * time.Second)
				case what == 0:
					a.kill()
					kills++
				case what < 3:
					a.freeze()
					freezes++
				case a.proxy != nil:
					a.cut()
					cuts++
				}
			}
			n := a.end()
			sure, unsure, not := a.ledger.count()
			t.Logf("%d kills, %d freezes and %d stalls, %d cuts, %d restarts: %d increments were made, %d perhaps, %d not; the row says %d",
				kills, freezes, a.ledger.stalls, cuts, restarts, sure, unsure, not, n)
			if n < sure || n > sure+unsure {
				t.Errorf("%d increments are in the row; %d were made, and %d perhaps", n, sure, unsure)
			}
			if len(a.ledger.older) > 0 {
				t.Errorf("older tokens were used after newer ones by %v", a.ledger.older)
			}
			if sure < 20 {
				t.Errorf("%d increments in %v: the run shows nothing", sure, duration())
			}
		})
	}
}

// The negative control: without the guard, a process that stops between reading and writing writes over what others
// have done meanwhile.
func TestWithoutGuardIncrementsAreLost(t *testing.T) {
	for _, kind := range []sqldb.Kind{sqldb.Postgres, sqldb.MySQL, sqldb.MariaDB} { // on SQLite a transaction has the one lock
		t.Run(kind.String(), func(t *testing.T) {
			t.Parallel()
			a := newArena(t, kind, false)
			shown := func() bool {
				var n int64
				if err := a.QueryRow(t.Context(), "SELECT n FROM counter").Scan(&n); err != nil {
					t.Fatal(err)
				}
				sure, _, _ := a.ledger.count()
				a.ledger.mu.Lock()
				defer a.ledger.mu.Unlock()
				return n < sure-processes && len(a.ledger.older) > 0 // some may have come between the two looks
			}
			for deadline := time.Now().Add(30 * time.Second); !shown() && time.Now().Before(deadline); {
				time.Sleep(100 * time.Millisecond)
			}
			n := a.end()
			sure, unsure, _ := a.ledger.count()
			t.Logf("%d stalls: %d increments were made, %d perhaps; the row says %d; older tokens after newer ones: %d", a.ledger.stalls, sure, unsure, n, len(a.ledger.older))
			if n >= sure || len(a.ledger.older) == 0 {
				t.Error("nothing got lost: the run above could not have shown a loss either")
			}
		})
	}
}
