package dbtest

import (
	"context"
	"sync"

	"github.com/sqlnative/locks/sqldb"
)

// Counter keeps the texts of the statements that went through a handle.
type Counter struct {
	mu      sync.Mutex
	queries []string
}

// Count returns the same database with a counter of its statements, those of
// transactions and of single connections included. What begins and ends a
// transaction is not counted.
func Count(db *sqldb.DB) (*sqldb.DB, *Counter) {
	c := &Counter{}
	return db.Wrap(func(d sqldb.Driver) sqldb.Driver { return counted{Driver: d, c: c} }), c
}

// Take returns the statements since the last Take.
func (c *Counter) Take() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	q := c.queries
	c.queries = nil
	return q
}

func (c *Counter) add(query string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.queries = append(c.queries, query)
}

type querier struct {
	sqldb.Querier
	c *Counter
}

func (q querier) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	q.c.add(query)
	return q.Querier.Exec(ctx, query, args)
}

func (q querier) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	q.c.add(query)
	return q.Querier.Query(ctx, query, args)
}

type counted struct {
	sqldb.Driver
	c *Counter
}

func (d counted) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	return querier{d.Driver, d.c}.Exec(ctx, query, args)
}

func (d counted) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return querier{d.Driver, d.c}.Query(ctx, query, args)
}

func (d counted) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	return d.tx(d.Driver.Begin(ctx, o))
}

func (d counted) Tx(x any) (sqldb.DriverTx, error) { return d.tx(d.Driver.Tx(x)) }

func (d counted) tx(tx sqldb.DriverTx, err error) (sqldb.DriverTx, error) {
	if err != nil {
		return nil, err
	}
	return countedTx{tx, querier{tx, d.c}}, nil
}

func (d counted) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	conn, err := d.Driver.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return countedConn{conn, querier{conn, d.c}, d}, nil
}

type countedTx struct {
	sqldb.DriverTx
	q querier
}

func (t countedTx) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	return t.q.Exec(ctx, query, args)
}

func (t countedTx) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return t.q.Query(ctx, query, args)
}

type countedConn struct {
	sqldb.DriverConn
	q querier
	d counted
}

func (c countedConn) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	return c.q.Exec(ctx, query, args)
}

func (c countedConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return c.q.Query(ctx, query, args)
}

func (c countedConn) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	return c.d.tx(c.DriverConn.Begin(ctx, o))
}
