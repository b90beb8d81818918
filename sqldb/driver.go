package sqldb

import (
	"context"
	"database/sql"
	"time"
)

// Driver is what an adapter tells sqldb about a pool of connections. Users of
// sqllock never call it; a test wraps it to count statements or to inject
// faults ([DB.Wrap]).
//
// Arguments arrive as int64, float64, bool, string, []byte or nil: sqldb has
// normalised them. [time.Time] is left as it is on PostgreSQL only.
type Driver interface {
	// Querier runs a statement on any connection of the pool, in autocommit.
	Querier
	// Begin begins a transaction. ctx bounds the beginning only.
	Begin(ctx context.Context, opts TxOptions) (DriverTx, error)
	// Conn takes a connection out of the pool. ctx bounds the taking only.
	Conn(ctx context.Context) (DriverConn, error)
	// Tx makes a DriverTx of a caller's transaction, or says why it is none.
	Tx(x any) (DriverTx, error)
	// MaxConns is how many connections the pool may have; 0 means no limit.
	MaxConns() int
	// SQL gives the pool as database/sql knows it, for goose; done gives back
	// what was made for that, and never closes the caller's pool.
	SQL() (db *sql.DB, done func())
}

// Querier runs statements.
type Querier interface {
	Exec(ctx context.Context, query string, args []any) (Result, error)
	Query(ctx context.Context, query string, args []any) (DriverRows, error)
}

// DriverRows is what a query answers.
type DriverRows interface {
	// Next reports whether there is a further row.
	Next() bool
	// Values are those of the current row: nil, int64, float64, bool, string,
	// []byte or time.Time (as the driver means it: UTC, or, on MySQL and MariaDB,
	// the UTC wall clock whatever its location says).
	Values() ([]any, error)
	// Err is what ended the rows, if not their end.
	Err() error
	// Close frees the connection. It is safe to call twice.
	Close() error
}

// DriverTx is a transaction.
type DriverTx interface {
	Querier
	Commit(ctx context.Context) error
	Rollback(ctx context.Context) error
}

// DriverConn is one connection, outside of the pool until Close.
type DriverConn interface {
	Querier
	// Begin begins a transaction on this connection.
	Begin(ctx context.Context, opts TxOptions) (DriverTx, error)
	// Interrupt asks the server to end the statement that runs on this
	// connection just now. It is called while another goroutine waits for that
	// statement; the statement's own answer says whether it was ended. An error
	// wraps [errors.ErrUnsupported] where there is no such thing.
	Interrupt(ctx context.Context) error
	// Close gives the connection back to the pool, or, if discard is set, closes
	// it: its state is in doubt.
	Close(discard bool) error
}

// TxOptions are the options of a transaction.
type TxOptions struct {
	// Isolation is the isolation level; the zero value takes the server's own
	// default. SQLite has one level, serializable, and takes it for any.
	Isolation sql.IsolationLevel
	// ReadOnly begins a read-only transaction. On SQLite every other one is begun
	// with BEGIN IMMEDIATE.
	ReadOnly bool
}

// Result is what a statement without rows answers.
type Result struct {
	// RowsAffected counts changed rows; on MySQL and MariaDB matched ones where
	// the DSN says clientFoundRows=true, which cannot be seen from here: every
	// statement whose count matters must change a column.
	RowsAffected int64
	// LastInsertID is what MySQL and MariaDB send in the OK packet (also after
	// LAST_INSERT_ID(expr) in an UPDATE), 0 elsewhere.
	LastInsertID int64
}

// Bound is how long sqldb waits for a statement after the caller's context has
// ended: as long as a server that answers needs to end it, and then no longer.
const Bound = 5 * time.Second
