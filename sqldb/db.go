package sqldb

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Handle is where a statement runs: a [*DB], in autocommit, or a [*Tx], in the
// caller's transaction. No other type implements it.
type Handle interface {
	// Exec runs a statement that answers no rows.
	Exec(ctx context.Context, query string, args ...any) (Result, error)
	// Query runs a statement that answers rows. Close them.
	Query(ctx context.Context, query string, args ...any) (*Rows, error)
	// QueryRow runs a statement that answers at most one row that matters.
	QueryRow(ctx context.Context, query string, args ...any) *Row
	// DB is the database that the handle belongs to.
	DB() *DB

	sealed()
}

var (
	_ Handle = (*DB)(nil)
	_ Handle = (*Tx)(nil)
)

// DB is a database with the schema and the table prefix that sqllock uses in
// it. It is made once, by the adapter's New, and is safe for concurrent use. It
// owns nothing: closing the pool stays with whoever opened it.
type DB struct {
	drv     Driver
	kind    Kind
	version string
	number  int
	schema  string
	prefix  string
}

// Server is what an adapter has found out about the server.
type Server struct {
	Kind Kind
	// Version is the server's own text.
	Version string
	// Number is major*10000 + minor*100 + patch: 8.0.36 is 80036. PostgreSQL has
	// no third number: 17.2 is 170002 there, as the server counts.
	Number int
	// Schema is where unqualified tables would be: PostgreSQL's current_schema(),
	// the database of a MySQL connection, "main" on SQLite. Empty: there is none.
	Schema string
}

// Option is an option of an adapter's New.
type Option func(*options) error

type options struct{ schema, prefix string }

// DefaultTablePrefix stands in front of the name of every table of sqllock
// where [TablePrefix] says nothing else.
const DefaultTablePrefix = "sqllock_"

// maxPrefix leaves room for the longest name of a table or an index behind it.
const maxPrefix = 32

// Schema says in which schema (MySQL and MariaDB: database) the tables of sqllock
// are. Default: the one where the pool's connections find unqualified tables when
// New is called; it is asked for once, and stands in front of every table name
// from then on, so that a changed search_path changes nothing. SQLite knows only
// "main".
func Schema(name string) Option {
	return func(o *options) error {
		if err := CheckIdent(name); err != nil {
			return fmt.Errorf("schema: %w", err)
		}
		o.schema = name
		return nil
	}
}

// TablePrefix says what stands in front of the names of sqllock's tables, at most
// 32 bytes; the empty string is allowed. Default: "sqllock_".
func TablePrefix(prefix string) Option {
	return func(o *options) error {
		if len(prefix) > maxPrefix {
			return fmt.Errorf("table prefix %q has %d bytes, more than %d", prefix, len(prefix), maxPrefix)
		}
		if CheckIdent(prefix+"x") != nil { // a name that begins with it
			return fmt.Errorf("table prefix %q: only ASCII letters, digits, '_' and '$' are allowed, and a letter or '_' in front", prefix)
		}
		o.prefix = prefix
		return nil
	}
}

// CheckOptions is for adapters: it says what is wrong with options before any
// statement has run.
func CheckOptions(opts ...Option) error {
	_, err := collect(opts)
	return err
}

func collect(opts []Option) (options, error) {
	o := options{prefix: DefaultTablePrefix}
	for _, opt := range opts {
		if opt == nil {
			return o, errors.New("sqldb: an option is nil")
		}
		if err := opt(&o); err != nil {
			return o, fmt.Errorf("sqldb: option: %w", err)
		}
	}
	return o, nil
}

// New is for adapters; a program calls pgdb.New, pgdb.SQL, mysqldb.New or
// sqlitedb.New.
func New(drv Driver, s Server, opts ...Option) (*DB, error) {
	o, err := collect(opts)
	if err != nil {
		return nil, err
	}
	if o.schema != "" {
		s.Schema = o.schema
	}
	switch {
	case s.Schema == "" && s.Kind == Postgres:
		return nil, errors.New("sqldb: search_path names no schema that exists, so there is no place for the tables: give one with sqldb.Schema")
	case s.Schema == "":
		return nil, errors.New("sqldb: the DSN names no database: name one there, or give it with sqldb.Schema")
	case s.Kind == SQLite && s.Schema != "main":
		return nil, fmt.Errorf("sqldb: schema %q: SQLite has its tables in main: %w", s.Schema, errors.ErrUnsupported)
	}
	return &DB{drv: drv, kind: s.Kind, version: s.Version, number: s.Number, schema: s.Schema, prefix: o.prefix}, nil
}

// Wrap returns a copy of the DB whose statements go through what f makes of its
// driver: a counter, a tracer, a fault.
func (db *DB) Wrap(f func(Driver) Driver) *DB {
	c := *db
	c.drv = f(db.drv)
	return &c
}

// Kind says which database it is.
func (db *DB) Kind() Kind { return db.kind }

// Version is the server's version as it tells it, read when the DB was made.
func (db *DB) Version() string { return db.version }

// VersionNumber is the server's version as a number: see [Server].
func (db *DB) VersionNumber() int { return db.number }

// Schema is the schema (MySQL and MariaDB: database) of sqllock's tables.
func (db *DB) Schema() string { return db.schema }

// TablePrefix is what stands in front of the names of sqllock's tables.
func (db *DB) TablePrefix() string { return db.prefix }

// Table returns the name of one of sqllock's tables, with schema and prefix,
// quoted: Table("locks") is "public"."sqllock_locks".
func (db *DB) Table(base string) string {
	return db.kind.Quote(db.schema) + "." + db.kind.Quote(db.prefix+base)
}

// Driver is what the adapter gave. It is for the packages of sqllock.
func (db *DB) Driver() Driver { return db.drv }

// DB returns db itself.
func (db *DB) DB() *DB { return db }

func (db *DB) sealed() {}

// Exec runs a statement on any connection of the pool, in autocommit, under the
// caller's ctx. For one that changes something, use [DB.Change]: when ctx ends
// while this one runs, nobody knows whether it was applied.
func (db *DB) Exec(ctx context.Context, query string, args ...any) (Result, error) {
	a, err := db.args(args)
	if err != nil {
		return Result{}, err
	}
	return db.drv.Exec(ctx, query, a)
}

// Query runs a statement that answers rows, as Exec does.
func (db *DB) Query(ctx context.Context, query string, args ...any) (*Rows, error) {
	return db.query(ctx, db.drv, nil, query, args)
}

// QueryRow runs a statement of which one row matters.
func (db *DB) QueryRow(ctx context.Context, query string, args ...any) *Row {
	rows, err := db.Query(ctx, query, args...)
	return &Row{rows: rows, err: err}
}

func (db *DB) args(args []any) ([]any, error) { return normalizeArgs(db.kind, args) }

func (db *DB) query(ctx context.Context, q Querier, failed func(error) error, query string, args []any) (*Rows, error) {
	a, err := db.args(args)
	if err != nil {
		return nil, err
	}
	rows, err := q.Query(ctx, query, a)
	if err != nil {
		if failed != nil {
			err = failed(err)
		}
		return nil, err
	}
	return &Rows{rows: rows, kind: db.kind, failed: failed}, nil
}

// Conn is one connection of the pool, taken out of it until Close. Its session
// state is the caller's to put back.
type Conn struct {
	db  *DB
	drv DriverConn
}

// Conn takes a connection out of the pool; ctx bounds the taking.
func (db *DB) Conn(ctx context.Context) (*Conn, error) {
	c, err := db.drv.Conn(ctx)
	if err != nil {
		return nil, fmt.Errorf("sqldb: no connection could be had from the pool: %w", err)
	}
	return &Conn{db: db, drv: c}, nil
}

// Exec runs a statement on this connection.
func (c *Conn) Exec(ctx context.Context, query string, args ...any) (Result, error) {
	a, err := c.db.args(args)
	if err != nil {
		return Result{}, err
	}
	return c.drv.Exec(ctx, query, a)
}

// Query runs a statement that answers rows on this connection. Close them.
func (c *Conn) Query(ctx context.Context, query string, args ...any) (*Rows, error) {
	return c.db.query(ctx, c.drv, nil, query, args)
}

// QueryRow runs a statement of which one row matters on this connection.
func (c *Conn) QueryRow(ctx context.Context, query string, args ...any) *Row {
	rows, err := c.Query(ctx, query, args...)
	return &Row{rows: rows, err: err}
}

// Interrupt asks the server to end the statement that runs on this connection just
// now, as [DB.Change] does when its ctx ends. It may arrive after that statement has
// ended, and meet the next one: discard the connection then. It must not be called
// once Close or Discard was.
func (c *Conn) Interrupt(ctx context.Context) error { return c.drv.Interrupt(ctx) }

// Close gives the connection back to the pool.
func (c *Conn) Close() error { return c.drv.Close(false) }

// Discard closes the connection instead of giving it back: for any doubt about
// its state.
func (c *Conn) Discard() error { return c.drv.Close(true) }

// String describes the DB without anything secret.
func (db *DB) String() string {
	return strings.Join([]string{db.kind.String(), db.version, db.schema}, " ")
}
