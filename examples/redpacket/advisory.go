package main

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// advised is the flow of [locked] under an advisory lock, which needs no table.
func advised(ctx context.Context, db *sqldb.DB, c config) (*contest, error) {
	noGuard := func(context.Context, *lock.Lock, *sqldb.Tx) error { return nil }
	if !c.Stall {
		l, err := advisory.New(ctx, db, lock.TTL(lockTTL), advisory.Connections(2))
		if err != nil {
			return nil, err
		}
		return oneAtATime(db, c, func(int) (lock.Locker, func()) { return l, nil }, noGuard, l.Close), nil
	}
	// A process that is stopped sends no pings. Here only one goroutine of it is; so its
	// users have two Lockers, as two processes would, and what is stopped with the
	// goroutine is everything that its Locker sends.
	var lockers [2]*advisory.Locker
	var stops [2]*stopper
	for i := range lockers {
		stops[i] = &stopper{}
		l, err := advisory.New(ctx, db.Wrap(stops[i].wrap), lock.TTL(stallTTL), advisory.Connections(1))
		if err != nil {
			return nil, err
		}
		lockers[i] = l
	}
	its := func(user int) (lock.Locker, func()) {
		i := user % len(lockers)
		return lockers[i], func() { stops[i].stop(stall) }
	}
	return oneAtATime(db, c, its, noGuard, func() error { return errors.Join(lockers[0].Close(), lockers[1].Close()) }), nil
}

// stopper holds back the statements of a Locker while its process is stopped.
type stopper struct{ sync.RWMutex }

func (s *stopper) stop(d time.Duration) {
	s.Lock()
	time.Sleep(d)
	s.Unlock()
}

func (s *stopper) wrap(d sqldb.Driver) sqldb.Driver { return stoppedDriver{d, s} }

type stoppedDriver struct {
	sqldb.Driver
	s *stopper
}

func (d stoppedDriver) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := d.Driver.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return stoppedConn{c, d.s}, nil
}

type stoppedConn struct {
	sqldb.DriverConn
	s *stopper
}

func (c stoppedConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	c.s.RLock()
	defer c.s.RUnlock()
	return c.DriverConn.Query(ctx, query, args)
}
