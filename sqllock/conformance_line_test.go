package sqllock_test

import (
	"context"
	"errors"
	"sync"

	"github.com/sqlnative/locks/sqldb"
)

// line is what a Locker talks to its database through: it can be cut.
type line struct {
	mu    sync.Mutex
	state state
	moved chan struct{} // closed when the state changes
}

type state int

const (
	whole  state = iota
	gone         // every statement fails at once
	paused       // nothing answers
)

var errGone = errors.New("the database is gone")

func (l *line) set(s state) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// pass returns when a statement may be sent, or says why it cannot.
func (l *line) pass(ctx context.Context) error {
	for {
		l.mu.Lock()
		s := l.state
		if l.moved == nil {
			l.moved = make(chan struct{})
		}
		moved := l.moved
		l.mu.Unlock()
		switch s {
		case whole:
			return nil
		case gone:
			return errGone
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (l *line) wrap(d sqldb.Driver) sqldb.Driver { return lineDriver{d, l} }

type lineDriver struct {
	sqldb.Driver
	l *line
}

func (d lineDriver) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	if err := d.l.pass(ctx); err != nil {
		return sqldb.Result{}, err
	}
	return d.Driver.Exec(ctx, query, args)
}

func (d lineDriver) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	if err := d.l.pass(ctx); err != nil {
		return nil, err
	}
	return d.Driver.Query(ctx, query, args)
}

func (d lineDriver) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	if err := d.l.pass(ctx); err != nil {
		return nil, err
	}
	return d.Driver.Begin(ctx, o)
}

func (d lineDriver) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	if err := d.l.pass(ctx); err != nil {
		return nil, err
	}
	conn, err := d.Driver.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return lineConn{conn, d.l}, nil
}

type lineConn struct {
	sqldb.DriverConn
	l *line
}

func (c lineConn) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	if err := c.l.pass(ctx); err != nil {
		return sqldb.Result{}, err
	}
	return c.DriverConn.Exec(ctx, query, args)
}

func (c lineConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	if err := c.l.pass(ctx); err != nil {
		return nil, err
	}
	return c.DriverConn.Query(ctx, query, args)
}

func (c lineConn) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	if err := c.l.pass(ctx); err != nil {
		return nil, err
	}
	return c.DriverConn.Begin(ctx, o)
}
