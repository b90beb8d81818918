package handle_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
)

// through makes a handle of a pool that goes through a proxy.
func through(t *testing.T, fl flavour, fresh *dbtest.DB, needle string, silent bool) (*proxy, *sqldb.DB) {
	t.Helper()
	var db *sqldb.DB
	var err error
	var p *proxy
	if fl.kind.InnoDB() {
		pool := fresh.OpenSQL(t, func(c *mysql.Config) {
			if c.Net != "tcp" {
				t.Skip("the server is not reached by TCP")
			}
			p = newProxy(t, c.Addr, needle, silent)
			c.Addr, c.Logger = p.listener.Addr().String(), &mysql.NopLogger{}
		})
		db, err = mysqldb.New(t.Context(), pool)
	} else {
		u, parseErr := url.Parse(fresh.DSN)
		if parseErr != nil || u.Port() == "" {
			t.Skip("the server is not reached by TCP")
		}
		p = newProxy(t, u.Host, needle, silent)
		u.Host = p.listener.Addr().String()
		q := u.Query()
		q.Set("sslmode", "disable")
		u.RawQuery = q.Encode()
		switch fl.name {
		case "pgxpool":
			pool, poolErr := pgxpool.New(t.Context(), u.String())
			if poolErr != nil {
				t.Fatal(poolErr)
			}
			t.Cleanup(pool.Close)
			db, err = pgdb.New(t.Context(), pool)
		default:
			driver := map[string]string{"pgx stdlib": "pgx", "lib/pq": "postgres"}[fl.name]
			_, db = openSQL(t, fresh, driver, u.String())
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return p, db
}

// cuts runs f for every server and driver.
func cuts(t *testing.T, f func(t *testing.T, fl flavour, fresh *dbtest.DB)) {
	servers(t, func(t *testing.T, fl flavour, fresh *dbtest.DB, _ *sql.DB, _ *sqldb.DB) {
		counters(t, fresh)
		f(t, fl, fresh)
	})
}

// A statement whose answer was lost has been applied once: the caller is told that
// the outcome is unknown, and it is never sent again.
func TestAnswerIsLost(t *testing.T) {
	for name, c := range map[string]struct {
		needle string
		run    func(ctx context.Context, db *sqldb.DB) error
	}{
		"Change": {"left_count - 1", func(ctx context.Context, db *sqldb.DB) error {
			_, err := db.Change(ctx, decrement)
			return err
		}},
		"Change without end": {"left_count - 1", func(ctx context.Context, db *sqldb.DB) error {
			_, err := db.Change(context.WithoutCancel(ctx), decrement)
			return err
		}},
		"COMMIT": {"COMMIT", func(ctx context.Context, db *sqldb.DB) error {
			return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				_, err := tx.Exec(ctx, decrement.Query)
				return err
			})
		}},
		"COMMIT, tried again": {"COMMIT", func(ctx context.Context, db *sqldb.DB) error {
			return sqldb.Retry(ctx, sqldb.Policy{}, func(ctx context.Context) error {
				return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
					_, err := tx.Exec(ctx, decrement.Query)
					return err
				})
			})
		}},
	} {
		t.Run(name, func(t *testing.T) {
			cuts(t, func(t *testing.T, fl flavour, fresh *dbtest.DB) {
				needle := c.needle
				if needle == "COMMIT" && fl.name != "lib/pq" && fl.kind == sqldb.Postgres {
					needle = "commit" // as pgx writes it
				}
				p, db := through(t, fl, fresh, needle, false)
				p.armed.Store(true)
				err := c.run(t.Context(), db)
				var u *sqldb.UncertainError
				if !errors.As(err, &u) || len(p.hit) != 1 {
					t.Errorf("%d answers were lost, and the answer is %v", len(p.hit), err)
				}
				if got := left(t, fresh); got != 99 {
					t.Errorf("left_count is %d", got)
				}
				if err := c.run(t.Context(), db); err != nil || left(t, fresh) != 98 {
					t.Errorf("afterwards: %v, left_count is %d", err, left(t, fresh))
				}
			})
		})
	}
}

// With Settle the caller learns what was applied.
func TestLostAnswerIsSettled(t *testing.T) {
	cuts(t, func(t *testing.T, fl flavour, fresh *dbtest.DB) {
		p, db := through(t, fl, fresh, "left_count - 1", false)
		p.armed.Store(true)
		c := decrement
		c.Settle = func(ctx context.Context, db *sqldb.DB) (*sqldb.Changed, bool, error) {
			var n int64
			err := db.QueryRow(ctx, "SELECT left_count FROM counter WHERE id = 1").Scan(&n)
			return sqldb.NewChanged(db.Kind(), sqldb.Result{RowsAffected: 1}), n == 99, err
		}
		got, err := db.Change(t.Context(), c)
		if err != nil || got.RowsAffected != 1 || len(p.hit) != 1 {
			t.Errorf("%+v, %v", got, err)
		}
	})
}

// A server that never answers a COMMIT holds nobody for longer than sqldb.Bound and
// what it takes to give up the connection.
func TestCommitIsBounded(t *testing.T) {
	if testing.Short() {
		t.Skip("takes sqldb.Bound")
	}
	t.Parallel()
	cuts(t, func(t *testing.T, fl flavour, fresh *dbtest.DB) {
		needle := strings.ToLower("COMMIT")
		if fl.kind.InnoDB() || fl.name == "lib/pq" {
			needle = "COMMIT"
		}
		p, db := through(t, fl, fresh, needle, true)
		p.armed.Store(true)
		begun := time.Now()
		err := db.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := tx.Exec(ctx, decrement.Query)
			return err
		})
		var u *sqldb.UncertainError
		if !errors.As(err, &u) || len(p.hit) != 1 {
			t.Errorf("the answer is %v", err)
		}
		if took := time.Since(begun); took < sqldb.Bound || took > 2*sqldb.Bound {
			t.Errorf("it took %v", took)
		}
		if got := left(t, fresh); got != 99 {
			t.Errorf("left_count is %d", got)
		}
		// The connection is given up; lib/pq's COMMIT, which hears of no ctx, keeps its
		// own until it breaks.
		if fl.name == "lib/pq" {
			p.close()
		}
		if fl.name == "pgxpool" {
			p.close() // its own goodbye would wait for the silent server for 15 s
			return    // dbtest's pool is not this one, and pgxpool closes when it is idle
		}
		pool, done := db.Driver().SQL()
		defer done()
		for end := time.Now().Add(10 * time.Second); pool.Stats().InUse > 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				t.Fatal("a connection was left out of the pool")
			}
		}
	})
}
