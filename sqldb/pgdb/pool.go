package pgdb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/internal/std"
)

// runner is what a pool, a connection and a transaction of pgx share.
type runner interface {
	Exec(ctx context.Context, query string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, query string, args ...any) (pgx.Rows, error)
}

// querier is a [sqldb.Querier] on a runner.
type querier struct{ r runner }

// Exec runs a statement without rows.
func (q querier) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	tag, err := q.r.Exec(ctx, query, args...)
	return sqldb.Result{RowsAffected: tag.RowsAffected()}, err
}

// Query runs a statement with rows.
func (q querier) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	rows, err := q.r.Query(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	return rowset{rows}, nil
}

// pool is a [sqldb.Driver] on pgx's pool.
type pool struct {
	querier
	p *pgxpool.Pool
}

func newPool(p *pgxpool.Pool) *pool { return &pool{querier: querier{p}, p: p} }

func (p *pool) MaxConns() int { return int(p.p.Config().MaxConns) }

// SQL is the same pool through database/sql; closing that does not close it.
func (p *pool) SQL() (*sql.DB, func()) {
	db := stdlib.OpenDBFromPool(p.p)
	return db, func() { _ = db.Close() }
}

func (p *pool) Begin(ctx context.Context, opts sqldb.TxOptions) (sqldb.DriverTx, error) {
	tx, err := p.p.BeginTx(ctx, txOptions(opts))
	if err != nil {
		return nil, err
	}
	return transaction{querier{tx}, tx}, nil
}

func (p *pool) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := p.p.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	return &conn{querier{c}, c}, nil
}

// Tx takes pgx's transactions, and those of database/sql on the same pool.
func (p *pool) Tx(x any) (sqldb.DriverTx, error) {
	return std.New(nil, std.Options{Name: "pgdb", Native: native}).Tx(x)
}

// native recognises pgx's transactions.
func native(x any) (sqldb.DriverTx, bool) {
	tx, ok := x.(pgx.Tx)
	if !ok {
		return nil, false
	}
	return transaction{querier{tx}, tx}, true
}

func txOptions(o sqldb.TxOptions) pgx.TxOptions {
	var p pgx.TxOptions
	switch o.Isolation {
	case sql.LevelDefault:
	case sql.LevelReadUncommitted, sql.LevelReadCommitted:
		p.IsoLevel = pgx.ReadCommitted
	case sql.LevelRepeatableRead, sql.LevelSnapshot:
		p.IsoLevel = pgx.RepeatableRead
	default:
		p.IsoLevel = pgx.Serializable
	}
	if o.ReadOnly {
		p.AccessMode = pgx.ReadOnly
	}
	return p
}

// conn is a connection of pgx's pool.
type conn struct {
	querier
	c *pgxpool.Conn
}

func (c *conn) Begin(ctx context.Context, opts sqldb.TxOptions) (sqldb.DriverTx, error) {
	tx, err := c.c.BeginTx(ctx, txOptions(opts))
	if err != nil {
		return nil, err
	}
	return transaction{querier{tx}, tx}, nil
}

// Interrupt sends a cancel request, which travels on a connection of its own.
func (c *conn) Interrupt(ctx context.Context) error {
	return c.c.Conn().PgConn().CancelRequest(ctx)
}

func (c *conn) Close(discard bool) error {
	if discard {
		// The pool throws away what is closed. Terminate is one small write.
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = c.c.Conn().Close(ctx)
	}
	c.c.Release()
	return nil
}

// transaction is a transaction of pgx.
type transaction struct {
	querier
	tx pgx.Tx
}

// Nested reports whether it is one that Begin of another transaction has made: a
// savepoint. Such ones have a type of their own in pgx, which is not exported; a
// wrapper around one that embeds it is seen through.
func (t transaction) Nested() bool {
	v := reflect.ValueOf(t.tx)
	for range 4 {
		for v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface {
			v = v.Elem()
		}
		if v.Kind() != reflect.Struct {
			return false
		}
		if typ := v.Type(); typ.PkgPath() == pgxPath && typ.Name() == "dbSimulatedNestedTx" {
			return true
		}
		f, ok := v.Type().FieldByName("Tx")
		if !ok || !f.Anonymous {
			// What pgxpool wraps around a transaction has it in an unexported field;
			// it is never a nested one.
			return false
		}
		v = v.FieldByIndex(f.Index)
	}
	return false
}

// InTransaction reports whether the server was in a transaction when it last
// answered. It is asked after a statement that t has run.
func (t transaction) InTransaction() bool { return t.tx.Conn().PgConn().TxStatus() != 'I' }

// pgxPath is pgx's import path, as reflection tells it.
var pgxPath = reflect.TypeFor[pgx.TxOptions]().PkgPath()

func (t transaction) Commit(ctx context.Context) error {
	err := t.tx.Commit(ctx)
	if rolledBackByServer(err) {
		return rolledBack{err}
	}
	return err
}

// rolledBackByServer recognises what drivers say when COMMIT met an aborted
// transaction: pgx, and lib/pq, whose package is not imported for it.
func rolledBackByServer(err error) bool {
	return errors.Is(err, pgx.ErrTxCommitRollback) || errors.Is(err, pgx.ErrTxClosed) ||
		err != nil && strings.EqualFold(err.Error(), "pq: could not complete operation in a failed transaction")
}

func (t transaction) Rollback(ctx context.Context) error {
	err := t.tx.Rollback(ctx)
	if errors.Is(err, pgx.ErrTxClosed) {
		return nil
	}
	return err
}

// rolledBack marks an error of COMMIT behind which the transaction has surely
// been rolled back.
type rolledBack struct{ error }

func (rolledBack) NotApplied() bool { return true }
func (r rolledBack) Unwrap() error  { return r.error }

// rowset is a [sqldb.DriverRows] on pgx's rows.
type rowset struct{ rows pgx.Rows }

func (r rowset) Next() bool { return r.rows.Next() }
func (r rowset) Err() error { return r.rows.Err() }

func (r rowset) Close() error {
	r.rows.Close()
	return nil
}

// Values brings what pgx decodes into the few types that [sqldb.DriverRows]
// names.
func (r rowset) Values() ([]any, error) {
	values, err := r.rows.Values()
	if err != nil {
		return nil, err
	}
	for i, v := range values {
		switch x := v.(type) {
		case nil, int64, float64, bool, string, []byte, time.Time:
		case int32:
			values[i] = int64(x)
		case int16:
			values[i] = int64(x)
		case int8:
			values[i] = int64(x)
		case uint32:
			values[i] = int64(x)
		case uint64: // xid8
			values[i] = strconv.FormatUint(x, 10)
		case float32:
			values[i] = float64(x)
		case [16]byte:
			values[i] = fmt.Sprintf("%x-%x-%x-%x-%x", x[0:4], x[4:6], x[6:8], x[8:10], x[10:16]) // a uuid
		case driver.Valuer:
			if values[i], err = x.Value(); err != nil {
				return nil, err
			}
		case fmt.Stringer:
			values[i] = x.String()
		default:
			return nil, fmt.Errorf("pgdb: column %d: a %T has no plain value", i+1, v)
		}
	}
	return values, nil
}
