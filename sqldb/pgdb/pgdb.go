// Package pgdb makes a [sqldb.DB] of a pool of connections to PostgreSQL: of
// pgx's own pool ([New]), or of a *sql.DB ([SQL]) with pgx's stdlib, lib/pq or
// another driver.
package pgdb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/internal/std"
)

// minVersion is PostgreSQL 14: the first with idle_session_timeout, and the
// oldest that is still maintained.
const minVersion = 140000

// New makes a DB of a pool of pgx. It asks the server once what it is, and
// refuses it with the reason: a server older than PostgreSQL 14, another product
// that speaks its protocol (wrapping [errors.ErrUnsupported]), a hot standby, a
// session that is read-only by default. The pool stays the caller's; it is never
// closed, and no session state of its connections is changed.
//
// No named prepared statement is needed: default_query_exec_mode may be exec,
// describe_exec, cache_describe or simple_protocol, as poolers ask for. In the last, pgx
// itself refuses every connection whose client_encoding is not UTF8, or not told: New
// says so then. Put client_encoding=UTF8 into the DSN.
//
// db.Tx takes a pgx.Tx, and a *sql.Tx of a stdlib.OpenDBFromPool on the same pool.
func New(ctx context.Context, pool *pgxpool.Pool, opts ...sqldb.Option) (*sqldb.DB, error) {
	if pool == nil {
		return nil, errors.New("pgdb: the pool is nil")
	}
	return open(ctx, newPool(pool), opts)
}

// SQL makes a DB of a *sql.DB, whatever its PostgreSQL driver is, as [New] does.
//
// With a driver other than pgx's stdlib, a connection that had died in the pool can
// not be told from one that died under a statement: then [sqldb.DB.Change] and
// [sqldb.DB.InTx] answer an [sqldb.UncertainError] where pgx's would just take
// another connection. And a statement is ended by a second connection of the same
// pool: with none free, the caller waits for [sqldb.Bound]. Such a driver need not
// return when a ctx ends while the server is silent: then its call is left to a
// goroutine, which keeps the connection until the driver gives it up.
//
// db.Tx takes a *sql.Tx and what wraps one, and a pgx.Tx.
func SQL(ctx context.Context, db *sql.DB, opts ...sqldb.Option) (*sqldb.DB, error) {
	if db == nil {
		return nil, errors.New("pgdb: the *sql.DB is nil")
	}
	_, isPgx := db.Driver().(*stdlib.Driver)
	drv := throughSQL{std.New(db, std.Options{
		Name: "pgdb", Interrupt: interrupter, Native: native, RolledBack: rolledBackByServer, End: end,
		VagueBadConn: !isPgx, // lib/pq's is an EOF at any moment, and every FATAL
	})}
	if !isPgx {
		return open(ctx, throughDeaf{drv}, opts)
	}
	return open(ctx, drv, opts)
}

// end closes a connection of a *sql.DB that pgx makes of its pool: what database/sql
// closes goes back there, with all that its session holds. The pool destroys what is
// closed.
func end(driverConn any) {
	if c, ok := driverConn.(*stdlib.Conn); ok {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.Conn().Close(ctx)
	}
}

// inspect asks what every promise here depends on, in one round trip.
const inspect = `SELECT version(), current_setting('server_version_num'), coalesce(current_schema(), ''),
	pg_is_in_recovery(), current_setting('transaction_read_only')`

func open(ctx context.Context, drv sqldb.Driver, opts []sqldb.Option) (*sqldb.DB, error) {
	if err := sqldb.CheckOptions(opts...); err != nil {
		return nil, err
	}
	s := sqldb.Server{Kind: sqldb.Postgres, Schema: "pg_catalog"}
	probe, err := sqldb.New(drv, s)
	if err != nil {
		return nil, err
	}
	var standby bool
	var readOnly string
	err = probe.QueryRow(ctx, inspect).Scan(&s.Version, &s.Number, &s.Schema, &standby, &readOnly)
	if err != nil {
		return nil, fmt.Errorf("pgdb: asking the server what it is: %w", err)
	}
	if err := accept(s, standby, readOnly == "on"); err != nil {
		return nil, err
	}
	return sqldb.New(drv, s, opts...)
}

// accept says why a server is refused.
func accept(s sqldb.Server, standby, readOnly bool) error {
	for _, other := range []string{"CockroachDB", "YugabyteDB", "-YB-", "Redshift", "Materialize", "H2"} {
		if strings.Contains(s.Version, other) {
			return fmt.Errorf("pgdb: the server is no PostgreSQL: %s: %w", s.Version, errors.ErrUnsupported)
		}
	}
	switch {
	case s.Number < minVersion:
		return fmt.Errorf("pgdb: the server is too old: %s; PostgreSQL 14 is the oldest that is supported: %w", s.Version, errors.ErrUnsupported)
	case standby:
		return errors.New("pgdb: the server is a hot standby, and read-only: connect to the primary (target_session_attrs=read-write)")
	case readOnly:
		return errors.New("pgdb: transactions are read-only by default here (default_transaction_read_only): a lock has to write")
	}
	return nil
}
