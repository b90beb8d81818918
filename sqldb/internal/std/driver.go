// Package std makes a [sqldb.Driver] of database/sql, for the adapters.
package std

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"time"

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
	// Begin, if not nil, gives the statements that begin a transaction on a
	// connection; COMMIT and ROLLBACK are then statements as well. nil: it is begun
	// and ended as database/sql does.
	Begin func(opts sqldb.TxOptions) ([]string, error)
	// PromptBegin says that the driver gives a BEGIN up as soon as its ctx ends, also
	// while it waits for a lock.
	PromptBegin bool
	// CommitAgain says that COMMIT can answer [sqldb.LockTimeout] and leave a
	// transaction of Begin open.
	CommitAgain bool
	// RolledBack recognises errors of COMMIT that carry no server's code, and behind
	// which the transaction has surely been rolled back.
	RolledBack func(err error) bool
	// VagueBadConn says that the driver may answer [driver.ErrBadConn] for what has
	// been sent, though database/sql forbids it.
	VagueBadConn bool
	// End, if not nil, closes a connection of the driver where database/sql's Close need
	// not.
	End func(driverConn any)
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
	vague  bool
}

// errBroke stands for a [driver.ErrBadConn] that cannot be trusted.
var errBroke = fmt.Errorf("the connection broke: %w", io.ErrUnexpectedEOF)

func (q querier) failed(err error) error {
	if q.vague && errors.Is(err, driver.ErrBadConn) {
		return errBroke
	}
	return err
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
		return sqldb.Result{}, q.failed(err)
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
		return nil, q.failed(err)
	}
	return &rowset{querier: q, rows: rows}, nil
}

func (d *Driver) querier() querier {
	return querier{r: d.db, inline: d.o.Inline, vague: d.o.VagueBadConn}
}

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
	c, err := d.conn(ctx)
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

// Conn takes a connection out of the pool.
func (d *Driver) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := d.conn(ctx)
	if err != nil {
		return nil, err
	}
	return c, nil
}

func (d *Driver) conn(ctx context.Context) (*conn, error) {
	c, err := d.db.Conn(ctx)
	if err != nil {
		return nil, err
	}
	conn := &conn{querier: querier{r: c, inline: d.o.Inline, vague: d.o.VagueBadConn}, c: c, o: d.o}
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
	doubtful  bool // a BEGIN that failed could not be taken back
}

// PromptBegin reports whether Begin answers as soon as its ctx ends.
func (c *conn) PromptBegin() bool { return c.o.PromptBegin }

// Interrupt ends the statement that runs.
func (c *conn) Interrupt(ctx context.Context) error {
	if c.interrupt == nil {
		return fmt.Errorf("%s: no way to end a statement: %w", c.o.Name, errors.ErrUnsupported)
	}
	return c.interrupt(ctx)
}

// Close gives the connection back, or closes it.
func (c *conn) Close(discard bool) error {
	if !discard && !c.doubtful {
		return c.giveBack()
	}
	// Closing waits for a call of the driver that has not come back, such as a
	// COMMIT without an answer: nobody is to wait for it here.
	done := make(chan error, 1)
	go func() {
		_ = c.c.Raw(func(driverConn any) error {
			if c.o.End != nil {
				c.o.End(driverConn)
			}
			return driver.ErrBadConn // the way to close it for good
		})
		done <- c.giveBack()
	}()
	timer := time.NewTimer(closeBound)
	defer timer.Stop()
	select {
	case err := <-done:
		return err
	case <-timer.C:
		return nil
	}
}

func (c *conn) giveBack() error {
	if err := c.c.Close(); err != nil && !errors.Is(err, sql.ErrConnDone) {
		return err
	}
	return nil
}

// closeBound is how long Close waits for a connection to be closed.
const closeBound = time.Second

// Begin begins a transaction. database/sql would roll it back when the ctx of
// BeginTx ends, behind the back of a COMMIT that runs detached: so ctx bounds the
// beginning only.
func (c *conn) Begin(ctx context.Context, opts sqldb.TxOptions) (sqldb.DriverTx, error) {
	if c.o.Begin != nil {
		return c.beginByHand(ctx, opts)
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
	q := c.querier
	q.r, q.mark = tx, ""
	return &transaction{querier: q, tx: tx, end: end, rolledBack: c.o.RolledBack}, nil
}
