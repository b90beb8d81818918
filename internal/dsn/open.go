package dsn

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"
	_ "modernc.org/sqlite" // the driver of sqlite: and file:

	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

// errNoAnswer is the cause of a server that has not answered for too long.
var errNoAnswer = errors.New("no answer")

// Open opens a pool of connections and makes a [sqldb.DB] of it; the server is
// asked what it is. The pool is closed by the function that comes back, which is
// never nil, and if there is an error it has been closed already. An error has the
// redacted DSN in it and no password, and wraps what the driver said. A server that
// does not answer is given up after the time that a connection attempt may take.
func (d *DSN) Open(ctx context.Context, opts ...sqldb.Option) (db *sqldb.DB, closePool func() error, err error) {
	nothing := func() error { return nil }
	if err := sqldb.CheckOptions(opts...); err != nil {
		return nil, nothing, err
	}
	asking, cancel := ctx, context.CancelFunc(func() {})
	if d.answer > 0 {
		asking, cancel = context.WithTimeoutCause(ctx, d.answer, errNoAnswer)
	}
	defer cancel()
	who := "PostgreSQL"
	switch d.kind {
	case sqldb.Postgres:
		db, closePool, err = d.openPostgres(asking, opts)
		err = connectError(err)
	case sqldb.MySQL, sqldb.MariaDB:
		who = "MySQL/MariaDB"
		db, closePool, err = d.openMySQL(asking, opts)
	default:
		db, closePool, err = d.openSQLite(ctx, opts)
	}
	if err != nil {
		if closePool != nil {
			_ = closePool()
		}
		// pgx has a bound of its own for one attempt, which may be the first to end.
		late := context.Cause(asking) == errNoAnswer || d.answer > 0 && errors.Is(err, context.DeadlineExceeded)
		if ctx.Err() == nil && late {
			err = &scrubbedError{text: fmt.Sprintf("no %s answer from %s within %v: is it another server?", who, d.hosts, d.answer), err: err}
		}
		return nil, nothing, fmt.Errorf("cannot open %s: %w", d.redacted, d.scrub.Error(err))
	}
	return db, closePool, nil
}

func (d *DSN) openPostgres(ctx context.Context, opts []sqldb.Option) (*sqldb.DB, func() error, error) {
	cfg := d.pg.Copy()
	if d.conns > 0 {
		cfg.MaxConns = int32(d.conns)
		cfg.MinConns, cfg.MinIdleConns = min(cfg.MinConns, cfg.MaxConns), min(cfg.MinIdleConns, cfg.MaxConns)
	}
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, nil, err
	}
	closePool := func() error { pool.Close(); return nil }
	db, err := pgdb.New(ctx, pool, opts...)
	return db, closePool, err
}

func (d *DSN) openMySQL(ctx context.Context, opts []sqldb.Option) (*sqldb.DB, func() error, error) {
	connector, err := mysql.NewConnector(d.my.Clone())
	if err != nil {
		return nil, nil, err
	}
	pool := sql.OpenDB(connector)
	pool.SetMaxOpenConns(d.conns)
	db, err := mysqldb.New(ctx, pool, opts...)
	return db, pool.Close, err
}

func (d *DSN) openSQLite(ctx context.Context, opts []sqldb.Option) (*sqldb.DB, func() error, error) {
	if file := d.File(); file != "" {
		// SQLite would say "unable to open database file (14)".
		if _, err := os.Stat(filepath.Dir(file)); errors.Is(err, os.ErrNotExist) {
			return nil, nil, fmt.Errorf("the folder %s does not exist: make it first", filepath.Dir(file))
		}
		if info, err := os.Stat(file); err == nil && info.IsDir() {
			return nil, nil, fmt.Errorf("%s is a folder: name a file in it", file)
		}
	}
	pool, err := sql.Open("sqlite", d.lite.uri())
	if err != nil {
		return nil, nil, err
	}
	pool.SetMaxOpenConns(d.conns)
	if d.lite.memory {
		// Every connection would have a database of its own, gone when it closes.
		pool.SetMaxOpenConns(1)
		pool.SetMaxIdleConns(1)
		pool.SetConnMaxLifetime(0)
	}
	db, err := sqlitedb.New(ctx, pool, opts...)
	return db, pool.Close, err
}
