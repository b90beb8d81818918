package dbtest

import (
	"context"
	"errors"
	"sync"

	"github.com/sqlnative/locks/sqldb"
)

// Line is what a handle talks to its database through ([sqldb.DB.Wrap] with
// Line.Wrap): it can be cut. Its zero value is whole.
type Line struct {
	mu    sync.Mutex
	state LineState
	moved chan struct{} // closed when the state changes
}

// LineState is what has become of a Line.
type LineState int

// The states of a Line.
const (
	Whole  LineState = iota
	Gone             // every statement fails at once
	Paused           // nothing answers
)

// ErrGone is what a statement on a line that is Gone answers.
var ErrGone = errors.New("the database is gone")

// Set cuts the line, or mends it.
func (l *Line) Set(s LineState) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state = s
	if l.moved != nil {
		close(l.moved)
		l.moved = nil
	}
}

// pass returns when a statement may be sent, or says why it cannot.
func (l *Line) pass(ctx context.Context) error {
	for {
		l.mu.Lock()
		s := l.state
		if l.moved == nil {
			l.moved = make(chan struct{})
		}
		moved := l.moved
		l.mu.Unlock()
		switch s {
		case Whole:
			return nil
		case Gone:
			return ErrGone
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Wrap puts the line before a driver.
func (l *Line) Wrap(d sqldb.Driver) sqldb.Driver { return lineDriver{d, l} }

type lineDriver struct {
	sqldb.Driver
	l *Line
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
	l *Line
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
