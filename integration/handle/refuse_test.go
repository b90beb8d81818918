package handle_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jmoiron/sqlx"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/gorm"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

// spy counts what reaches the driver.
type spy struct {
	sqldb.Driver
	calls int
}

func (s *spy) Exec(ctx context.Context, q string, args []any) (sqldb.Result, error) {
	s.calls++
	return s.Driver.Exec(ctx, q, args)
}

func (s *spy) Query(ctx context.Context, q string, args []any) (sqldb.DriverRows, error) {
	s.calls++
	return s.Driver.Query(ctx, q, args)
}

func (s *spy) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	s.calls++
	return s.Driver.Conn(ctx)
}

func (s *spy) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	s.calls++
	return s.Driver.Begin(ctx, o)
}

// halves have some of a transaction's methods.
type (
	onlyExec struct{ named }
	legacy   struct{}
	other    struct{ driver.Tx }
)

func (onlyExec) Commit(int) {}

func (legacy) Exec(string, ...any) (sql.Result, error) { return nil, errors.New("was run") }
func (legacy) Commit() error                           { return nil }
func (legacy) Rollback() error                         { return nil }

// Whatever is no transaction is refused with a reason that helps, and no SQL runs.
func TestTxRefuses(t *testing.T) {
	plain(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
		conn, err := pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		const begin, null, ended = "begin one", "the transaction is nil", ""
		refused := map[string]struct {
			x    any
			text string
		}{
			"*sql.DB":                  {pool, begin},
			"*sql.Conn":                {conn, begin},
			"*sqlx.DB":                 {sqlx.NewDb(pool, "x"), begin},
			"*bun.DB":                  {bun.NewDB(pool, pgdialect.New()), begin},
			"*pgxpool.Pool":            {fresh.Pool, ended},
			"*pgx.Conn":                {&pgx.Conn{}, begin},
			"*pgxpool.Conn":            {&pgxpool.Conn{}, begin},
			"*gorm.DB":                 {&gorm.DB{}, "tx.Statement.ConnPool"},
			"GORM's prepared pool":     {&gorm.PreparedStmtDB{ConnPool: pool}, begin},
			"a DB":                     {db, begin},
			"nil":                      {nil, null},
			"*sql.Tx(nil)":             {(*sql.Tx)(nil), null},
			"*pgxpool.Tx(nil)":         {(*pgxpool.Tx)(nil), null},
			"*sqlx.Tx(nil)":            {(*sqlx.Tx)(nil), null},
			"*sql.DB(nil)":             {(*sql.DB)(nil), null},
			"bun.Tx{}":                 {bun.Tx{}, null},
			"&bun.Tx{}":                {&bun.Tx{}, null},
			"&sqlx.Tx{}":               {&sqlx.Tx{}, null},
			"a string":                 {"BEGIN", begin},
			"a func":                   {func() {}, begin},
			"a struct":                 {struct{}{}, begin},
			"a Commit of another kind": {onlyExec{}, begin},
			"no context methods":       {legacy{}, begin},
			"a driver's":               {other{}, begin},
		}
		if fl.kind != sqldb.Postgres {
			refused["pgx.Tx"] = struct {
				x    any
				text string
			}{struct{ pgx.Tx }{}, "another database's driver"}
			delete(refused, "*pgxpool.Tx(nil)")
		}
		for name, c := range refused {
			s := &spy{Driver: db.Driver()}
			tx := db.Wrap(func(sqldb.Driver) sqldb.Driver { return s }).Tx(c.x)
			_, err := tx.Exec(t.Context(), "CREATE TABLE must_not_be (n INT)")
			_, qErr := tx.Query(t.Context(), "SELECT 1")
			rErr := tx.QueryRow(t.Context(), "SELECT 1").Scan(new(int))
			for _, err := range []error{tx.Err(), err, qErr, rErr} {
				if err == nil || !strings.HasPrefix(err.Error(), "sqldb: Tx(") || !strings.Contains(err.Error(), c.text) {
					t.Errorf("%s: %v", name, err)
				}
			}
			if s.calls != 0 {
				t.Errorf("%s: %d calls reached the driver", name, s.calls)
			}
		}
		_, err = fresh.Exec(t.Context(), "SELECT 1 FROM must_not_be")
		if sqldb.ClassOf(err) != sqldb.NoTable {
			t.Errorf("a statement was run: %v", err)
		}
		// The control: a transaction is taken.
		if err := rawTx(pool)(t.Context(), func(x any) error { return db.Tx(x).Err() }); err != nil {
			t.Error(err)
		}
	})
}
