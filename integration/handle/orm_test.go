package handle_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"testing"

	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/mysqldialect"
	"github.com/uptrace/bun/dialect/pgdialect"
	"github.com/uptrace/bun/dialect/sqlitedialect"
	"github.com/uptrace/bun/schema"
	"gorm.io/driver/mysql"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

func openGORM(t *testing.T, kind sqldb.Kind, pool *sql.DB, prepare bool) *gorm.DB {
	t.Helper()
	var dialect gorm.Dialector = mysql.New(mysql.Config{Conn: pool})
	if kind == sqldb.Postgres {
		dialect = postgres.New(postgres.Config{Conn: pool})
	}
	g, err := gorm.Open(dialect, &gorm.Config{PrepareStmt: prepare, Logger: logger.Discard})
	if err != nil {
		t.Fatal(err)
	}
	if p, ok := g.ConnPool.(*gorm.PreparedStmtDB); ok {
		t.Cleanup(p.Close)
	}
	return g
}

func gormTx(g *gorm.DB, nested bool) transact {
	return func(ctx context.Context, f func(any) error) error {
		return g.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			if nested {
				return tx.Transaction(func(tx *gorm.DB) error { return f(tx.Statement.ConnPool) })
			}
			return f(tx.Statement.ConnPool)
		})
	}
}

// orms runs f where GORM has a dialect: on everything but SQLite, where GORM brings a
// driver under a name that is taken already.
func orms(t *testing.T, f func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB)) {
	servers(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
		f(t, fl, fresh, pool, db)
	})
}

func TestGORM(t *testing.T) {
	for name, c := range map[string]struct{ prepare, nested bool }{"plain": {}, "prepared": {prepare: true}, "nested": {nested: true}, "prepared, nested": {true, true}} {
		t.Run(name, func(t *testing.T) {
			orms(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
				g := openGORM(t, fl.kind, pool, c.prepare)
				conforms(t, fresh, db, gormTx(g, c.nested))
				conforms(t, fresh, db, func(ctx context.Context, f func(any) error) error {
					tx := g.WithContext(ctx).Begin()
					return ended(f(tx.Statement.ConnPool), func() error { return tx.Commit().Error }, func() error { return tx.Rollback().Error })
				})
			})
		})
	}
}

// GORM keeps a prepared statement for every text: what goes through it has its
// arguments beside the text, or the cache would grow with every value.
func TestGORMPreparedTexts(t *testing.T) {
	orms(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
		fresh.MustExec(t, "CREATE TABLE c (id BIGINT PRIMARY KEY, s VARCHAR(100))")
		g := openGORM(t, fl.kind, pool, true)
		prepared, ok := g.ConnPool.(*gorm.PreparedStmtDB)
		if !ok {
			t.Fatalf("GORM's pool is a %T", g.ConnPool)
		}
		err := gormTx(g, false)(t.Context(), func(x any) error {
			tx := db.Tx(x)
			for i := range 20 {
				if _, err := tx.Exec(t.Context(), holes(fl.kind, "INSERT INTO c VALUES (?, ?)"), i, "secret text"); err != nil {
					return err
				}
				if err := tx.QueryRow(t.Context(), holes(fl.kind, "SELECT id FROM c WHERE id = ?"), i).Scan(new(int)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		keys := prepared.Stmts.Keys()
		for _, k := range keys {
			if strings.Contains(k, "x'") || strings.Contains(k, "secret") {
				t.Errorf("an argument stands in the text: %s", k)
			}
		}
		if len(keys) != 2 {
			t.Errorf("%d texts are cached, and two statements were run: %q", len(keys), keys)
		}
	})
}

// A deadlock ends GORM's transaction too, whatever wraps its *sql.Tx.
func TestGORMDeadlock(t *testing.T) {
	for name, prepare := range map[string]bool{"plain": false, "prepared": true} {
		t.Run(name, func(t *testing.T) {
			orms(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
				if !fl.kind.InnoDB() {
					t.Skip("PostgreSQL aborts the transaction, and says so")
				}
				fresh.MustExec(t, "CREATE TABLE c (id BIGINT PRIMARY KEY, n BIGINT)", "INSERT INTO c VALUES (1, 0), (2, 0), (3, 0), (4, 0)")
				g := openGORM(t, fl.kind, pool, prepare)
				err := gormTx(g, false)(t.Context(), func(x any) error {
					tx := db.Tx(x)
					other, err := pool.Begin()
					if err != nil {
						return err
					}
					defer func() { _ = other.Rollback() }()
					if _, err := other.Exec("UPDATE c SET n = 10 WHERE id >= 2"); err != nil {
						return err
					}
					if _, err := tx.Exec(t.Context(), "UPDATE c SET n = ? WHERE id = 1", 1); err != nil {
						return err
					}
					done := make(chan error, 1)
					go func() {
						_, err := tx.Exec(t.Context(), "UPDATE c SET n = ? WHERE id = 2", 1)
						done <- err
					}()
					if _, err := other.Exec("UPDATE c SET n = 10 WHERE id = 1"); err != nil {
						return err
					}
					if err := <-done; sqldb.ClassOf(err) != sqldb.Deadlock {
						t.Errorf("the error is %v", err)
					}
					raw := x.(gorm.ConnPool)
					if _, err := raw.ExecContext(t.Context(), "INSERT INTO c VALUES (9, 9)"); err == nil {
						t.Error("GORM itself can go on in it")
					}
					return nil // swallowed
				})
				if !errors.Is(err, sql.ErrTxDone) {
					t.Errorf("GORM's Commit: %v", err)
				}
				var n int
				if err := fresh.QueryRow(t.Context(), "SELECT COUNT(*) FROM c WHERE id = 9 OR n <> 0").Scan(&n); err != nil || n != 0 {
					t.Errorf("%d rows were written, %v", n, err)
				}
			})
		})
	}
}

var dialects = map[sqldb.Kind]schema.Dialect{
	sqldb.Postgres: pgdialect.New(), sqldb.MySQL: mysqldialect.New(), sqldb.MariaDB: mysqldialect.New(), sqldb.SQLite: sqlitedialect.New(),
}

func TestBun(t *testing.T) {
	plain(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, pool *sql.DB, db *sqldb.DB) {
		b := bun.NewDB(pool, dialects[fl.kind])
		inTx := func(wrap func(bun.Tx) any) transact {
			return func(ctx context.Context, f func(any) error) error {
				return b.RunInTx(ctx, nil, func(_ context.Context, tx bun.Tx) error { return f(wrap(tx)) })
			}
		}
		conforms(t, fresh, db, inTx(func(tx bun.Tx) any { return tx }))
		conforms(t, fresh, db, inTx(func(tx bun.Tx) any { return &tx }))
		conforms(t, fresh, db, inTx(func(tx bun.Tx) any { return struct{ bun.Tx }{tx} }))
	})
}
