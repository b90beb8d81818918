package pgdb

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// deafGrace is how long the end of a ctx is left to the driver: what the server says
// to it is worth more than the ctx's error.
const deafGrace = 100 * time.Millisecond

// throughDeaf is the driver of a *sql.DB whose driver does not return when ctx ends:
// lib/pq asks the server to end the statement, and then waits for its answer, from a
// server that is silent without end. So every statement in autocommit, and the making
// of a connection, runs in a goroutine of its own, which is left when ctx has ended; its
// connection is thrown away when it comes back. BEGIN, COMMIT and what runs between
// them are the driver's own.
type throughDeaf struct{ throughSQL }

// Conn takes a connection out of the pool. Making one is such a call as well.
func (d throughDeaf) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	type made struct {
		c   sqldb.DriverConn
		err error
	}
	got := make(chan made, 1)
	back, err := leave(ctx, func() error {
		c, err := d.throughSQL.Conn(ctx)
		got <- made{c, err}
		return err
	})
	if back != nil {
		go func() {
			<-back
			if m := <-got; m.err == nil {
				_ = m.c.Close(false)
			}
		}()
	}
	if err != nil {
		return nil, err
	}
	return &deafConn{DriverConn: (<-got).c}, nil
}

// leave runs a call of the driver, and leaves it some time after ctx has ended: then
// back is closed when it has come back.
func leave(ctx context.Context, call func() error) (back chan struct{}, err error) {
	if ctx.Done() == nil {
		return nil, call()
	}
	done := make(chan error, 1)
	back = make(chan struct{})
	go func() {
		defer close(back)
		done <- call()
	}()
	select {
	case err := <-done:
		return nil, err
	case <-ctx.Done():
	}
	timer := time.NewTimer(deafGrace)
	defer timer.Stop()
	select {
	case err := <-done:
		return nil, err
	case <-timer.C:
		return back, fmt.Errorf("pgdb: the driver has not come back: %w", ctx.Err())
	}
}

// Exec runs a statement on any connection.
func (d throughDeaf) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	c, err := d.Conn(ctx)
	if err != nil {
		return sqldb.Result{}, err
	}
	res, err := c.Exec(ctx, query, args)
	return res, errors.Join(err, c.Close(false))
}

// Query runs a statement with rows on any connection.
func (d throughDeaf) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	c, err := d.Conn(ctx)
	if err != nil {
		return nil, err
	}
	rows, err := c.Query(ctx, query, args)
	if cerr := c.Close(false); err == nil {
		err = cerr
	}
	return rows, err
}

// deafConn is a connection of it. It is used by one goroutine at a time, but for
// Interrupt.
type deafConn struct {
	sqldb.DriverConn
	left chan struct{} // closed when the call that was left has come back; nil: none was
}

// attend runs one call of the driver, unless another was left.
func (c *deafConn) attend(ctx context.Context, call func() error) (err error) {
	if c.left != nil {
		return fmt.Errorf("pgdb: the connection has not answered the statement before: %w", errBroken)
	}
	c.left, err = leave(ctx, call)
	return err
}

// Interrupt asks for it through the pool, with the same driver.
func (c *deafConn) Interrupt(ctx context.Context) error {
	_, err := leave(ctx, func() error { return c.DriverConn.Interrupt(ctx) })
	return err
}

// errBroken is a connection whose state nobody knows.
var errBroken = errors.New("the connection is in doubt")

// Exec runs a statement without rows.
func (c *deafConn) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	var res sqldb.Result
	err := c.attend(ctx, func() (err error) {
		res, err = c.DriverConn.Exec(ctx, query, args)
		return err
	})
	if c.left != nil { // the goroutine may still write it
		return sqldb.Result{}, err
	}
	return res, err
}

// Query runs a statement and reads all its rows, since reading them may wait as
// well.
func (c *deafConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	all := &readRows{}
	err := c.attend(ctx, func() error {
		rows, err := c.DriverConn.Query(ctx, query, args)
		if err != nil {
			return err
		}
		for rows.Next() {
			values, err := rows.Values()
			if err != nil {
				_ = rows.Close()
				return err
			}
			for i, v := range values {
				if b, ok := v.([]byte); ok {
					values[i] = append([]byte{}, b...) // the driver's buffer ends with the row
				}
			}
			all.rows = append(all.rows, values)
		}
		all.err = rows.Err()
		return rows.Close()
	})
	if err != nil {
		return nil, err
	}
	return all, nil
}

// Begin begins a transaction on this connection.
func (c *deafConn) Begin(ctx context.Context, opts sqldb.TxOptions) (tx sqldb.DriverTx, err error) {
	if c.left != nil {
		return nil, fmt.Errorf("pgdb: the connection has not answered the statement before: %w", errBroken)
	}
	return c.DriverConn.Begin(ctx, opts)
}

// Close gives the connection back, or closes it. One with a call that was left is
// closed when that has come back.
func (c *deafConn) Close(discard bool) error {
	if c.left == nil {
		return c.DriverConn.Close(discard)
	}
	go func() {
		<-c.left
		_ = c.DriverConn.Close(true)
	}()
	return nil
}

// readRows are rows that have been read.
type readRows struct {
	rows [][]any
	at   int
	err  error
}

func (r *readRows) Next() bool {
	r.at++
	return r.at <= len(r.rows)
}

func (r *readRows) Values() ([]any, error) { return r.rows[r.at-1], nil }
func (r *readRows) Err() error             { return r.err }
func (r *readRows) Close() error           { return nil }
