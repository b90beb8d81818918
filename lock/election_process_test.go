//go:build unix

package lock_test

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock/locktest"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// race is an election between processes.
type race struct {
	t        *testing.T
	db       *dbtest.DB
	strategy string
	ttl      time.Duration
	all      []*locktest.Process
	term     int // the last one that was seen
	token    int64
	two      bool // there are to be two leaders
}

// races runs f on every database, with every strategy that it has.
func races(t *testing.T, ttl time.Duration, f func(t *testing.T, r *race)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel() // it waits more than it works
		if err := migrations.Up(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		db.MustExec(t, seat)
		for _, strategy := range []string{"sqllock", "advisory"} {
			if strategy == "advisory" && db.Kind() == sqldb.SQLite { // which refuses it
				continue
			}
			t.Run(strategy, func(t *testing.T) {
				db.MustExec(t, "DELETE FROM seat", "INSERT INTO seat VALUES (-1, 0, 0, 0, 0, 0, 0)")
				r := &race{t: t, db: db, strategy: strategy, ttl: ttl}
				f(t, r)
				if n := r.read("twice"); n != 0 && !r.two {
					t.Errorf("%d times there were two leaders", n)
				}
			})
		}
	})
}

// enter starts a further process.
func (r *race) enter(name string) *locktest.Process {
	r.t.Helper()
	p := locktest.Start(r.t, "campaign", r.db.Kind().String(), r.strategy, r.db.DSN, strconv.Itoa(len(r.all)), r.ttl.String(), name)
	r.all = append(r.all, p)
	p.Expect("campaigns")
	return p
}

// read reads a column of the seat.
func (r *race) read(column string) (n int64) {
	r.t.Helper()
	if err := r.db.SQL.QueryRowContext(r.t.Context(), "SELECT "+column+" FROM seat").Scan(&n); err != nil {
		r.t.Fatal(err)
	}
	return n
}

// next waits until the seat is taken for a later term, and has been written to by its
// leader; it returns by whom, and when it was seen. On a machine that is very busy a
// leader may have lost its lease meanwhile: then it is the one after.
func (r *race) next() (leader *locktest.Process, at time.Time) {
	r.t.Helper()
	var by, term, beats, first int
	var token int64
	for deadline := time.Now().Add(r.ttl + 30*time.Second); ; time.Sleep(2 * time.Millisecond) {
		if err := r.db.SQL.QueryRowContext(r.t.Context(), "SELECT leader, term, token, beats FROM seat").Scan(&by, &term, &token, &beats); err != nil {
			r.t.Fatal(err)
		}
		if time.Now().After(deadline) {
			r.t.Fatalf("nobody leads: the term is %d, seen is %d", term, r.term)
		}
		if term > r.term {
			if r.strategy == "sqllock" && token <= r.token {
				r.t.Errorf("the token went from %d to %d", r.token, token)
			}
			if leader == nil {
				at = time.Now()
			}
			r.term, r.token, leader, first = term, token, r.all[by], beats
		}
		if leader != nil && beats >= first+3 {
			break
		}
	}
	for want := fmt.Sprint("leads ", token); leader.Line() != want; { // what it said in earlier terms
	}
	return leader, at
}

// A leader that is killed is followed within its TTL, again and again, and there are never
// two.
func TestElectionLeaderIsKilled(t *testing.T) {
	races(t, 4*time.Second, func(t *testing.T, r *race) {
		for range 3 {
			r.enter("seat")
		}
		killed := map[*locktest.Process]bool{}
		leader, _ := r.next()
		for range 2 {
			leader.Kill()
			begun := time.Now()
			killed[leader] = true
			var at time.Time
			leader, at = r.next()
			r.enter("seat") // its pod is started again
			took := at.Sub(begun)
			t.Logf("the next one leads after %v", took.Round(time.Millisecond))
			if killed[leader] {
				t.Error("who is dead leads")
			}
			if took > r.ttl+5*time.Second { // the poll, and a machine that does other things
				t.Errorf("it took %v; the TTL is %v", took, r.ttl)
			}
		}
	})
}

// A leader that is stopped for longer than its TTL, and goes on: its ctx has ended, it does
// not say that it leads, and its guarded write is refused. The control: its unguarded
// write is not. When its function has returned it campaigns again.
func TestElectionLeaderIsStopped(t *testing.T) {
	races(t, 4*time.Second, func(t *testing.T, r *race) {
		r.enter("seat")
		stopped, _ := r.next()
		stopped.Send("stay")
		stopped.Expect("stays")
		writes := []string{"plain", "guarded"}
		for _, w := range writes {
			stopped.Send(w)
			stopped.Expect(w + " done")
		}
		r.enter("seat")
		stopped.Stop()
		other, _ := r.next()
		if other == stopped {
			t.Fatal("who is stopped leads")
		}
		if r.strategy == "sqllock" {
			stopped.Send("guarded")
		}
		stopped.Send("plain")
		stopped.Send("go on")
		stopped.Send("check")
		stopped.Continue()
		if r.strategy == "sqllock" {
			stopped.Expect("guarded lost")
		}
		stopped.Expect("plain done")
		stopped.Expect("goes on")
		stopped.Expect("check lost")
		if plain, guarded := r.read("plain"), r.read("guarded"); plain != 2 || guarded != 1 {
			t.Errorf("%d plain and %d guarded writes; it has to be 2 and 1", plain, guarded)
		}
		stopped.Send("return") // the error of its ctx, which is no end of Run after a loss
		r.terminate(other)
		if again, _ := r.next(); again != stopped {
			t.Error("who had lost the leadership does not lead again")
		}
	})
}

// terminate sends SIGTERM, and returns when.
func (r *race) terminate(p *locktest.Process) time.Time {
	r.t.Helper()
	begun := time.Now()
	if err := syscall.Kill(p.PID(), syscall.SIGTERM); err != nil {
		r.t.Fatal(err)
	}
	return begun
}

// A leader that gets SIGTERM resigns: the next one leads long before the TTL has passed.
func TestElectionLeaderIsTerminated(t *testing.T) {
	races(t, time.Minute, func(t *testing.T, r *race) {
		for range 3 {
			r.enter("seat")
		}
		leader, _ := r.next()
		for n := range 3 {
			begun := r.terminate(leader)
			if cause := leader.Expect("ended"); !strings.Contains(cause, "terminated") {
				t.Errorf("its ctx ended with %s", cause)
			}
			leader.Expect("shut down")
			if n == 2 {
				break
			}
			var at time.Time
			leader, at = r.next()
			took := at.Sub(begun)
			t.Logf("the next one leads after %v", took.Round(time.Millisecond))
			if took > r.ttl/2 {
				t.Errorf("it took %v; the TTL is %v", took, r.ttl)
			}
		}
	})
}

// The control: two elections under two names have two leaders, and the seat tells.
func TestElectionOfTwoIsSeen(t *testing.T) {
	races(t, time.Minute, func(t *testing.T, r *race) {
		r.two = true
		for i := range 2 {
			r.enter(fmt.Sprint("seat", i)).Expect("leads")
		}
		for deadline := time.Now().Add(30 * time.Second); r.read("twice") == 0; time.Sleep(5 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("two leaders are not seen")
			}
		}
	})
}
