package handle_test

import (
	"context"
	"database/sql"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/jmoiron/sqlx"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

// ended ends a transaction as f wants it.
func ended(err error, commit, rollback func() error) error {
	if err != nil {
		return errors.Join(err, rollback())
	}
	return commit()
}

func rawTx(pool *sql.DB) transact {
	return func(ctx context.Context, f func(any) error) error {
		tx, err := pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		return ended(f(tx), tx.Commit, tx.Rollback)
	}
}

// A *sql.Tx, through every driver and with every setting.
func TestSQLTx(t *testing.T) {
	each(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
		conforms(t, fresh, db, rawTx(pool))
	})
}

// wrapped and deep embed a *sql.Tx, as programs do.
type wrapped struct{ *sql.Tx }

type deep struct {
	Name string
	wrapped2
}

type wrapped2 = Wrapped

// Wrapped is exported, so that it can be embedded from elsewhere.
type Wrapped struct{ *sql.Tx }

// named has the methods, and embeds nothing.
type named struct{ tx *sql.Tx }

func (n named) ExecContext(ctx context.Context, q string, args ...any) (sql.Result, error) {
	return n.tx.ExecContext(ctx, q, args...)
}

func (n named) QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error) {
	return n.tx.QueryContext(ctx, q, args...)
}

func (n named) QueryRowContext(ctx context.Context, q string, args ...any) *sql.Row {
	return n.tx.QueryRowContext(ctx, q, args...)
}
func (n named) Commit() error   { return n.tx.Commit() }
func (n named) Rollback() error { return n.tx.Rollback() }

func TestWrappedTx(t *testing.T) {
	for name, wrap := range map[string]func(*sql.Tx) any{
		"embedded":            func(tx *sql.Tx) any { return wrapped{tx} },
		"a pointer to that":   func(tx *sql.Tx) any { return &wrapped{tx} },
		"embedded twice":      func(tx *sql.Tx) any { return deep{"x", Wrapped{tx}} },
		"not embedded at all": func(tx *sql.Tx) any { return named{tx} },
		"sqlx":                func(tx *sql.Tx) any { return &sqlx.Tx{Tx: tx} },
	} {
		t.Run(name, func(t *testing.T) {
			plain(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
				conforms(t, fresh, db, func(ctx context.Context, f func(any) error) error {
					return rawTx(pool)(ctx, func(tx any) error { return f(wrap(tx.(*sql.Tx))) })
				})
			})
		})
	}
}

func TestSQLX(t *testing.T) {
	plain(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
		driver := map[sqldb.Kind]string{sqldb.Postgres: "pgx", sqldb.SQLite: "sqlite3"}[fl.kind]
		if driver == "" {
			driver = "mysql"
		}
		x := sqlx.NewDb(pool, driver)
		conforms(t, fresh, db, func(ctx context.Context, f func(any) error) error {
			tx, err := x.BeginTxx(ctx, nil)
			if err != nil {
				return err
			}
			return ended(f(tx), tx.Commit, tx.Rollback)
		})
	})
}

// pgxTx are the ways to have a pgx.Tx.
func pgxTx(pool *pgxpool.Pool) map[string]transact {
	return map[string]transact{
		"pool": func(ctx context.Context, f func(any) error) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return f(tx) })
		},
		"pgxpool.Tx": func(ctx context.Context, f func(any) error) error {
			tx, err := pool.Begin(ctx)
			if err != nil {
				return err
			}
			return ended(f(tx.(*pgxpool.Tx)), func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) })
		},
		"conn": func(ctx context.Context, f func(any) error) error {
			conn, err := pgx.ConnectConfig(ctx, pool.Config().ConnConfig)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close(ctx) }()
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return f(tx) })
		},
		"nested": func(ctx context.Context, f func(any) error) error {
			return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
				return pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error { return f(tx) })
			})
		},
		"simple protocol": func(ctx context.Context, f func(any) error) error {
			config := pool.Config().ConnConfig
			config.DefaultQueryExecMode = pgx.QueryExecModeSimpleProtocol
			config.RuntimeParams["client_encoding"] = "UTF8"
			conn, err := pgx.ConnectConfig(ctx, config)
			if err != nil {
				return err
			}
			defer func() { _ = conn.Close(ctx) }()
			return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error { return f(tx) })
		},
		"stdlib from the pool": func(ctx context.Context, f func(any) error) error {
			db := stdlib.OpenDBFromPool(pool)
			defer func() { _ = db.Close() }()
			return rawTx(db)(ctx, f)
		},
	}
}

func TestPgxTx(t *testing.T) {
	for name := range pgxTx(nil) {
		t.Run(name, func(t *testing.T) {
			on(t, func(fl flavour) bool { return fl.kind == sqldb.Postgres }, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
				conforms(t, fresh, db, pgxTx(fresh.Pool)[name])
			})
		})
	}
}
