package pgdb

import (
	"context"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/internal/std"
)

// unsent marks an error of pgx's own, before the statement was sent: an argument that
// it cannot encode for the type that the server has told, a setting of the connection
// that its simple protocol refuses.
type unsent struct{ error }

func (unsent) NotApplied() bool { return true }
func (u unsent) Unwrap() error  { return u.error }

// Exec runs a statement without rows.
func (c *conn) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	res, err := c.querier.Exec(ctx, query, args)
	return res, c.failed(err)
}

// Query runs a statement with rows.
func (c *conn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	rows, err := c.querier.Query(ctx, query, args)
	return rows, c.failed(err)
}

// failed marks what pgx said by itself. What went out ends in one of three ways: the
// server answers, with no error or with a PgError; ctx ends; or the connection is
// closed, also by pgx, which closes it when it does not understand an answer.
func (c *conn) failed(err error) error {
	var told *pgconn.PgError
	if err == nil || errors.As(err, &told) || isContext(err) || c.c.Conn().IsClosed() {
		return err
	}
	return unsent{err}
}

func isContext(err error) bool {
	return errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// throughSQL is the driver of a *sql.DB. database/sql hides if a connection is closed,
// so what pgx's stdlib says by itself is known by its text; what is not known stays in
// doubt.
type throughSQL struct{ *std.Driver }

// Conn takes a connection out of the pool.
func (d throughSQL) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := d.Driver.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return sqlConn{c}, nil
}

type sqlConn struct{ sqldb.DriverConn }

func (c sqlConn) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	res, err := c.DriverConn.Exec(ctx, query, args)
	return res, markByText(err)
}

func (c sqlConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	rows, err := c.DriverConn.Query(ctx, query, args)
	return rows, markByText(err)
}

func markByText(err error) error {
	var told interface{ SQLState() string }
	if err == nil || errors.As(err, &told) || isContext(err) {
		return err
	}
	for _, front := range []string{"failed to encode args[", "simple protocol queries must be run with "} {
		if strings.HasPrefix(err.Error(), front) {
			return unsent{err}
		}
	}
	return err
}
