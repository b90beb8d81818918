// Package site gives the tests of the adapters a database with the tables, and a
// strategy to lock by.
package site

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// Patience is how long something that has to happen may take.
const Patience = 30 * time.Second

// Site is a fresh database, and a strategy.
type Site struct {
	*dbtest.DB
	Advisory bool
}

// Each runs f on every database that is there, with every strategy that it has.
func Each(t *testing.T, f func(t *testing.T, s *Site)) {
	t.Helper()
	for _, kind := range sqldb.Kinds() {
		for _, advisory := range []bool{false, true} {
			name := kind.String() + "/" + map[bool]string{false: "sqllock", true: "advisory"}[advisory]
			if advisory && kind == sqldb.SQLite { // which refuses it
				continue
			}
			t.Run(name, func(t *testing.T) {
				s := &Site{dbtest.New(t, kind), advisory}
				if err := migrations.Up(t.Context(), s.DB.DB); err != nil {
					t.Fatal(err)
				}
				f(t, s)
			})
		}
	}
}

// Locker is that of a further machine, with a pool of its own.
func (s *Site) Locker(t testing.TB) lock.Locker {
	t.Helper()
	l, _ := s.locker(t)
	return l
}

// Jobs are those of a further machine.
func (s *Site) Jobs(t testing.TB) *joblock.Jobs {
	t.Helper()
	jobs, _ := s.Machine(t)
	return jobs
}

// Machine is a further machine: its jobs, and their Locker.
func (s *Site) Machine(t testing.TB) (*joblock.Jobs, lock.Locker) {
	t.Helper()
	l, db := s.locker(t)
	jobs, err := joblock.New(t.Context(), db, l)
	if err != nil {
		t.Fatal(err)
	}
	return jobs, l
}

func (s *Site) locker(t testing.TB) (l lock.Locker, db *sqldb.DB) {
	t.Helper()
	db = s.Another(t).DB
	var err error
	if s.Advisory {
		l, err = advisory.New(t.Context(), db)
	} else {
		l, err = sqllock.New(t.Context(), db)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := l.Close(); err != nil {
			t.Errorf("Close: %v", err)
		}
	})
	return l, db
}

// TakeAway takes a lock away from locker, which holds it: its row is released, or its
// session killed.
func (s *Site) TakeAway(t testing.TB, locker lock.Locker, name string) {
	t.Helper()
	_, err := s.Locker(t).Acquire(t.Context(), name, lock.Try())
	var held *lock.HeldError
	if !errors.As(err, &held) {
		t.Fatalf("nobody holds it: %v", err)
	}
	switch l := locker.(type) {
	case *sqllock.Locker:
		err = l.ForceRelease(t.Context(), name, held.Token)
	case *advisory.Locker:
		var all []advisory.Info
		if all, err = l.List(t.Context(), name); err != nil || len(all) != 1 {
			t.Fatalf("%+v, %v", all, err)
		}
		kill := map[sqldb.Kind]string{sqldb.Postgres: "SELECT pg_terminate_backend(%d)", sqldb.MySQL: "KILL %d", sqldb.MariaDB: "KILL %d"}[s.Kind()]
		_, err = s.SQL.ExecContext(t.Context(), fmt.Sprintf(kill, all[0].Conn))
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Pass has d pass for all jobs and locks: what was stored becomes older. So nobody has
// to wait for a day.
func (s *Site) Pass(t testing.TB, d time.Duration) {
	t.Helper()
	s.MustExec(t,
		"UPDATE "+s.Table("jobs")+" SET last_start = "+s.Ago("last_start", d),
		"UPDATE "+s.Table("locks")+" SET hold_until = "+s.Ago("hold_until", d))
}
