// Package std makes a [sqldb.Driver] of database/sql, for the adapters.
package std

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"

	"github.com/sqlnative/locks/sqldb"
)

// Options say what differs between databases and drivers.
type Options struct {
	// Name stands in front of errors: "mysqldb".
	Name string
	// Inline, if not nil, writes arguments into a statement that goes to database/sql
	// itself. It is not used behind a wrapper, which may keep prepared statements by
	// their text.
	Inline func(query string, args []any) (string, []any)
	// Interrupt prepares for ending a statement of a connection: it returns what is
	// to stand in front of the statement's text, and the function that ends it. nil:
	// it can't be done.
	Interrupt func(db *sql.DB, conn *sql.Conn) (mark string, interrupt func(ctx context.Context) error)
	// Immediate begins transactions with BEGIN IMMEDIATE.
	Immediate bool
	// Native recognises transactions that are not database/sql's; ok=false if it
	// does not.
	Native func(x any) (tx sqldb.DriverTx, ok bool)
}

// Driver is a [sqldb.Driver] on an [*sql.DB].
type Driver struct {
	db *sql.DB
	o  Options
}

// New returns a Driver on db.
func New(db *sql.DB, o Options) *Driver { return &Driver{db: db, o: o} }

// runner is what the pool, a connection and a transaction of database/sql share.
type runner interface {
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// querier is a [sqldb.Querier] on a runner.
type querier struct {
	r      runner
	inline func(string, []any) (string, []any)
	mark   string
}

func (q querier) prepare(query string, args []any) (string, []any) {
	if q.inline != nil && len(args) > 0 {
		query, args = q.inline(query, args)
	}
	return q.mark + query, args
}

// Exec runs a statement without rows.
func (q querier) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	query, args = q.prepare(query, args)
	res, err := q.r.ExecContext(ctx, query, args...)
	if err != nil {
		return sqldb.Result{}, err
	}
	n, err := res.RowsAffected()
	if err != nil {
		return sqldb.Result{}, err
	}
	id, err := res.LastInsertId()
	if err != nil {
		id = 0 // PostgreSQL's drivers have none
	}
	return sqldb.Result{RowsAffected: n, LastInsertID: id}, nil
}

// Query runs a statement with rows.
func (q querier) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	query, args = q.prepare(query, args)
	rows, err := q.r.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return &rowset{rows: rows}, nil
}

func (d *Driver) querier() querier { return querier{r: d.db, inline: d.o.Inline} }

// Exec runs a statement on any connection.
func (d *Driver) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	return d.querier().Exec(ctx, query, args)
}

// Query runs a statement with rows on any connection.
func (d *Driver) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return d.querier().Query(ctx, query, args)
}

// MaxConns is the pool's bound.
func (d *Driver) MaxConns() int { return d.db.Stats().MaxOpenConnections }

// SQL is the pool itself.
func (d *Driver) SQL() (*sql.DB, func()) { return d.db, func() {} }

// Begin begins a transaction on a connection of its own.
func (d *Driver) Begin(ctx context.Context, opts sqldb.TxOptions) (sqldb.DriverTx, error) {
	c, err := d.Conn(ctx)
	if err != nil {
		return nil, err
	}
	tx, err := c.Begin(ctx, opts)
	if err != nil {
		_ = c.Close(false)
		return nil, err
	}
	return &owning{DriverTx: tx, conn: c}, nil
}

// owning is a transaction that gives its connection back at its end.
type owning struct {
	sqldb.DriverTx
	conn sqldb.DriverConn
}

func (o *owning) Commit(ctx context.Context) error {
	err := o.DriverTx.Commit(ctx)
	if err != nil && sqldb.ClassOf(err) == sqldb.LockTimeout {
		return err // SQLite: still open, and to be committed again or rolled back
	}
	return o.end(err)
}

func (o *owning) Rollback(ctx context.Context) error { return o.end(o.DriverTx.Rollback(ctx)) }

func (o *owning) end(err error) error {
	_ = o.conn.Close(err != nil && !errors.Is(err, sql.ErrTxDone))
	return err
}

// Conn takes a connection out of the pool.
func (d *Driver) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := d.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	conn := &conn{querier: querier{r: c, inline: d.o.Inline}, c: c, o: d.o}
	if d.o.Interrupt != nil {
		conn.mark, conn.interrupt = d.o.Interrupt(d.db, c)
	}
	return conn, nil
}

// conn is one connection.
type conn struct {
	querier
	c         *sql.Conn
	o         Options
	interrupt func(ctx context.Context) error
}

// Interrupt ends the statement that runs.
func (c *conn) Interrupt(ctx context.Context) error {
	if c.interrupt == nil {
		return fmt.Errorf("%s: no way to end a statement: %w", c.o.Name, errors.ErrUnsupported)
	}
	return c.interrupt(ctx)
}

// Close gives the connection back, or closes it.
func (c *conn) Close(discard bool) error {
	if discard {
		_ = c.c.Raw(func(any) error { return driver.ErrBadConn }) // the way to close it for good
	}
	if err := c.c.Close(); err != nil && !errors.Is(err, sql.ErrConnDone) {
		return err
	}
	return nil
}

// Begin begins a transaction. database/sql would roll it back when the ctx of
// BeginTx ends, behind the back of a COMMIT that runs detached: so ctx bounds the
// beginning only.
func (c *conn) Begin(ctx context.Context, opts sqldb.TxOptions) (sqldb.DriverTx, error) {
	if c.o.Immediate {
		return c.beginImmediate(ctx, opts)
	}
	life, end := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, end)
	tx, err := c.c.BeginTx(life, &sql.TxOptions{Isolation: opts.Isolation, ReadOnly: opts.ReadOnly})
	if !stop() {
		if err == nil {
			_ = tx.Rollback()
		}
		end()
		return nil, ctx.Err()
	}
	if err != nil {
		end()
		return nil, err
	}
	return &transaction{querier: querier{r: tx, inline: c.inline}, tx: tx, end: end}, nil
}

// ender is how a transaction of database/sql, or what wraps one, ends.
type ender interface {
	Commit() error
	Rollback() error
}

// transaction is a transaction of database/sql or of what wraps one.
type transaction struct {
	querier
	tx  ender
	end func()
}

// Commit commits; when ctx ends first, the connection is closed, and the error is
// ctx's.
func (t *transaction) Commit(ctx context.Context) error { return t.bounded(ctx, t.tx.Commit) }

// Rollback rolls back. A transaction that has ended already is no error.
func (t *transaction) Rollback(ctx context.Context) error {
	err := t.bounded(ctx, t.tx.Rollback)
	if errors.Is(err, sql.ErrTxDone) {
		return nil
	}
	return err
}

// bounded runs f, which takes no ctx, and stops waiting for it when ctx ends.
// database/sql gives COMMIT the ctx that the transaction was begun with: ending
// that one ends the wait inside the driver too.
func (t *transaction) bounded(ctx context.Context, f func() error) error {
	if ctx.Done() == nil {
		err := f()
		t.finish()
		return err
	}
	done := make(chan error, 1)
	go func() {
		err := f()
		t.finish()
		done <- err
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		t.finish()
		return ctx.Err()
	}
}

func (t *transaction) finish() {
	if t.end != nil {
		t.end()
	}
}
