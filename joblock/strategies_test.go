package joblock_test

import (
	"errors"
	"net"
	"slices"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// strategies runs f on every database, with every strategy that it has.
func strategies(t *testing.T, f func(t *testing.T, s *site)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		migrated(t, db)
		for _, s := range []*site{{DB: db}, {DB: db, advisory: true}} {
			if s.advisory && db.Kind() == sqldb.SQLite { // which refuses it
				continue
			}
			t.Run(s.strategy(), func(t *testing.T) {
				s.empty(t)
				f(t, s)
			})
		}
	})
}

func (s *site) strategy() string {
	if s.advisory {
		return "advisory"
	}
	return "sqllock"
}

// The run says where it ran: an address of this machine, and the owner of the lock, if its
// strategy has one, by which it is told from another process of that host.
func TestWhere(t *testing.T) {
	strategies(t, func(t *testing.T, s *site) {
		p := s.process(t)
		var owner string
		jobs, err := joblock.New(t.Context(), s.DB.DB, slow{p.locker, func(l *lock.Lock) { owner = l.Owner() }})
		if err != nil {
			t.Fatal(err)
		}
		ran(t, process{Jobs: jobs}, joblock.Job{Name: "where"}, joblock.OK, nothing)
		run := history(t, p, "where", 1)[0]
		if run.Owner != owner || owner == "" && !s.advisory {
			t.Errorf("the owner is %q, and it says %q", owner, run.Owner)
		}
		all, err := net.InterfaceAddrs()
		if err != nil {
			t.Fatal(err)
		}
		mine := slices.ContainsFunc(all, func(a net.Addr) bool {
			ip, ok := a.(*net.IPNet)
			return ok && ip.IP.IsGlobalUnicast() && ip.IP.String() == run.Address
		})
		none := !slices.ContainsFunc(all, func(a net.Addr) bool {
			ip, ok := a.(*net.IPNet)
			return ok && ip.IP.IsGlobalUnicast()
		})
		if !mine && (!none || run.Address != "") {
			t.Errorf("the address is %q, and this machine has %v", run.Address, all)
		}
	})
}

// empty removes all jobs and runs.
func (s *site) empty(t testing.TB) {
	t.Helper()
	s.MustExec(t, "DELETE FROM "+s.Table("jobs"), "DELETE FROM "+s.Table("job_runs"))
}

// held reports whether somebody has the lock of a job.
func (s *site) held(t testing.TB, job string) bool {
	t.Helper()
	l, err := s.locker(t).Acquire(t.Context(), joblock.LockName(job), lock.Try())
	switch {
	case errors.Is(err, lock.ErrHeld):
		return true
	case err != nil:
		t.Fatal(err)
	}
	if err := l.Release(t.Context()); err != nil {
		t.Error(err)
	}
	return false
}
