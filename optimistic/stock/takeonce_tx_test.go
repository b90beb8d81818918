package stock_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
)

// A claim that was made after the transaction's snapshot is told as that where the
// server cannot show it, and otherwise comes with its receipt.
func TestTakeOnceOldSnapshot(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "10")
		for _, level := range []string{"repeatable read", "serializable"} {
			tx := begin(t, db, level)
			if _, err := tx.tx.Exec(t.Context(), "SELECT COUNT(*) FROM "+db.Table("claims")); err != nil { // makes the snapshot
				t.Fatal(err)
			}
			if level == "serializable" && db.Kind().InnoDB() {
				continue // every read has locked there, and nobody could have claimed
			}
			first, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, level)
			if err != nil {
				t.Fatal(err)
			}
			r, err := s.TakeOnce(t.Context(), tx.tx, 10001, 1, level)
			switch {
			case err == nil && r == again(first) && db.Kind() != sqldb.Postgres:
				if err := tx.commit(); err != nil {
					t.Error(err)
				}
			case err != nil && sqldb.ClassOf(err) == sqldb.Serialization && sqldb.Retryable(err) && strings.Contains(err.Error(), "begin it anew") && db.Kind() != sqldb.MySQL:
				if err := tx.commit(); err == nil {
					t.Errorf("%s: the transaction could be committed", level)
				}
			default:
				t.Errorf("%s: %+v, %v", level, r, err)
			}
		}
	})
}

// Who claims what somebody has claimed and not yet committed waits for him. If he
// rolls back, one of those who wait takes; if he commits, all have his receipt.
func TestTakeOnceWaits(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := claimed(t, db, "100")
		for _, commits := range []bool{true, false} {
			claim := fmt.Sprint("commits: ", commits)
			first := begin(t, db, "read committed")
			r, err := s.TakeOnce(t.Context(), first.tx, 10001, 1, claim)
			if err != nil || !r.Fresh {
				t.Fatalf("%+v, %v", r, err)
			}
			const waiters = 6
			receipts := make(chan stock.Receipt, waiters)
			for range waiters {
				go func() {
					r, err := s.TakeOnce(context.Background(), db.DB, 10001, 1, claim)
					if err != nil {
						t.Error(err)
					}
					receipts <- r
				}()
			}
			awaitWaiting(t, db, 2)
			select {
			case r := <-receipts:
				t.Errorf("did not wait: %+v", r)
			default:
			}
			end := first.commit
			if !commits {
				end = first.rollback
			}
			if err := end(); err != nil {
				t.Fatal(err)
			}
			fresh := 0
			got := map[stock.Receipt]bool{}
			for range waiters {
				r := <-receipts
				if r.Fresh {
					fresh++
				}
				got[again(r)] = true
			}
			want := 1
			if commits {
				want = 0
			}
			if fresh != want || len(got) != 1 || commits && !got[again(r)] {
				t.Errorf("%s: %d fresh, receipts %v", claim, fresh, got)
			}
		}
		if left, _ := row(t, db); left != 98 {
			t.Errorf("%d left", left)
		}
	})
}

// awaitWaiting waits until at least n sessions wait for a lock.
func awaitWaiting(t *testing.T, db *dbtest.DB, n int) {
	t.Helper()
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		waiting, err := sessionsWaiting(db)
		switch {
		case err != nil:
			t.Fatal(err)
		case waiting >= n:
			return
		case time.Now().After(deadline):
			t.Fatalf("%d wait for a lock, not %d", waiting, n)
		}
	}
}

// sessionsWaiting counts the sessions of this test that wait for a lock.
func sessionsWaiting(db *dbtest.DB) (n int, err error) {
	switch db.Kind() {
	case sqldb.Postgres:
		return n, db.SQL.QueryRow("SELECT COUNT(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%" + db.Schema() + "%'").Scan(&n)
	case sqldb.MySQL:
		return n, db.SQL.QueryRow("SELECT COUNT(DISTINCT w.requesting_engine_transaction_id) FROM performance_schema.data_lock_waits w JOIN performance_schema.data_locks l" +
			" ON l.engine_lock_id = w.requesting_engine_lock_id WHERE l.object_schema = '" + db.Schema() + "'").Scan(&n)
	}
	// MariaDB's innodb_trx is a copy, and is not renewed for as long as somebody reads it
	// ten times a second.
	var kind, name, status string
	if err := db.SQL.QueryRow("SHOW ENGINE INNODB STATUS").Scan(&kind, &name, &status); err != nil {
		return 0, err
	}
	rows, err := db.SQL.Query("SELECT id FROM information_schema.processlist WHERE db = '" + db.Schema() + "'")
	if err != nil {
		return 0, err
	}
	defer func() { _ = rows.Close() }()
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return 0, err
		}
		for _, trx := range strings.Split(status, "---TRANSACTION") {
			if strings.Contains(trx, "LOCK WAIT") && strings.Contains(trx, fmt.Sprintf("thread id %d,", id)) {
				n++
			}
		}
	}
	return n, rows.Err()
}

// stopper is a driver whose transactions call after when a statement has run that
// contains match.
type stopper struct {
	sqldb.Driver
	match string
	after func()
}

func (d stopper) Tx(x any) (sqldb.DriverTx, error) {
	tx, err := d.Driver.Tx(x)
	if err != nil {
		return nil, err
	}
	return stopperTx{tx, d}, nil
}

type stopperTx struct {
	sqldb.DriverTx
	d stopper
}

func (x stopperTx) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	res, err := x.DriverTx.Exec(ctx, query, args)
	if strings.Contains(query, x.d.match) {
		x.d.after()
	}
	return res, err
}

func (x stopperTx) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	rows, err := x.DriverTx.Query(ctx, query, args)
	if err == nil && strings.Contains(query, x.d.match) {
		return stopperRows{rows, x.d}, nil
	}
	return rows, err
}

type stopperRows struct {
	sqldb.DriverRows
	d stopper
}

func (r stopperRows) Close() error {
	err := r.DriverRows.Close()
	r.d.after()
	return err
}

// A ctx that ends between the claim and the take leaves no claim behind, though the
// transaction is open and can be committed.
func TestTakeOnceCanceledBetween(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "10")
		for _, match := range []string{"INSERT INTO", "left_count"} {
			ctx, cancel := context.WithCancel(context.Background())
			wrapped := db.Wrap(func(d sqldb.Driver) sqldb.Driver { return stopper{d, match, cancel} })
			var tx *sqldb.Tx
			var commit func() error
			if db.Pool != nil {
				raw, err := db.Pool.Begin(context.Background())
				if err != nil {
					t.Fatal(err)
				}
				tx, commit = wrapped.Tx(raw), func() error { return raw.Commit(context.Background()) }
			} else {
				raw, err := db.SQL.Begin()
				if err != nil {
					t.Fatal(err)
				}
				tx, commit = wrapped.Tx(raw), raw.Commit
			}
			_, err := s.TakeOnce(ctx, tx, 10001, 1, "user:"+match)
			cancel()
			cerr := commit()
			n, _ := row(t, db)
			switch {
			case err == nil && cerr == nil:
				// PostgreSQL had taken by then.
				if r, err := s.TakeOnce(context.Background(), db.DB, 10001, 1, "user:"+match); err != nil || r.Fresh || n != 9 {
					t.Errorf("%s: %+v, %v, %d left", match, r, err, n)
				}
			case err == nil:
				t.Errorf("%s: committing: %v", match, cerr)
			case !errors.Is(err, context.Canceled):
				t.Errorf("%s: %v", match, err)
			default:
				if claims := claimRows(t, db); claims != 0 || n != 10 {
					t.Errorf("%s: %d claims, %d left", match, claims, n)
				}
				if db.Kind().InnoDB() && cerr != nil {
					t.Errorf("%s: the transaction was not left usable: %v", match, cerr)
				}
			}
		}
	})
}

// A lock timeout leaves no claim behind that a COMMIT would keep.
func TestTakeOnceLockTimeout(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		s := claimed(t, db, "10")
		hurried, err := mysqldb.New(t.Context(), db.OpenSQL(t, func(c *mysql.Config) {
			c.Params = map[string]string{"innodb_lock_wait_timeout": "1"}
		}))
		if err != nil {
			t.Fatal(err)
		}
		holder := begin(t, db, "")
		if _, err := s.Take(t.Context(), holder.tx, 10001, 1); err != nil {
			t.Fatal(err)
		}
		err = hurried.InTx(t.Context(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			if _, err := s.TakeOnce(ctx, tx, 10001, 1, "user"); sqldb.ClassOf(err) != sqldb.LockTimeout || !sqldb.Retryable(err) {
				t.Errorf("the error is %v", err)
			}
			return nil // swallowed, and committed
		})
		if err != nil {
			t.Error(err)
		}
		if n := claimRows(t, db); n != 0 {
			t.Errorf("%d claims of nothing", n)
		}
	})
}

// The stock table is one, however it is named, and another of the same name is
// another.
func TestTakeOnceStockTable(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		s := claimed(t, db, "10")
		first, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, "user")
		if err != nil {
			t.Fatal(err)
		}
		names := []string{db.Schema() + ".t_bonus"}
		if db.Kind() == sqldb.SQLite {
			names = append(names, "T_Bonus")
		}
		for _, name := range names {
			full := table
			full.Name = name
			if r, err := open(t, db.DB, full).TakeOnce(t.Context(), db.DB, 10001, 1, "user"); err != nil || r != again(first) {
				t.Errorf("%s: %+v, %v", name, r, err)
			}
		}
		if db.Kind() != sqldb.Postgres {
			return
		}
		// Another schema in front in search_path, and the same table of claims.
		other := db.Schema() + "_b"
		db.MustExec(t, "CREATE SCHEMA "+other, "CREATE TABLE "+other+".t_bonus (LIKE t_bonus)", "INSERT INTO "+other+".t_bonus VALUES (10001, 5, 0)")
		t.Cleanup(func() { db.MustExec(t, "DROP SCHEMA "+other+" CASCADE") })
		cfg := db.Pool.Config()
		cfg.ConnConfig.RuntimeParams["search_path"] = other + "," + db.Schema()
		pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
		if err != nil {
			t.Fatal(err)
		}
		defer pool.Close()
		handle, err := pgdb.New(t.Context(), pool, sqldb.Schema(db.Schema()))
		if err != nil {
			t.Fatal(err)
		}
		if r, err := open(t, handle, table).TakeOnce(t.Context(), handle, 10001, 1, "user"); err != nil || !r.Fresh || r.Left != 4 {
			t.Errorf("%+v, %v", r, err)
		}
	})
}

func TestTakeOnceNotMigrated(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		s := bonus(t, db, "10")
		_, err := s.TakeOnce(t.Context(), db.DB, 10001, 1, "user")
		if !errors.Is(err, stock.ErrNotMigrated) || !strings.Contains(err.Error(), "sqllock-migrate up") || sqldb.ClassOf(err) != sqldb.NoTable {
			t.Errorf("%v", err)
		}
		if _, err := s.PruneClaims(t.Context(), 1e9); !errors.Is(err, stock.ErrNotMigrated) {
			t.Errorf("%v", err)
		}
		if left, _ := row(t, db); left != 10 {
			t.Errorf("%d left", left)
		}
		up(t, db)
		db.MustExec(t, "DROP TABLE t_bonus")
		if _, err = s.TakeOnce(t.Context(), db.DB, 10001, 1, "user"); err == nil || errors.Is(err, stock.ErrNotMigrated) || !strings.Contains(err.Error(), "t_bonus does not exist") {
			t.Errorf("without the stock table: %v", err)
		}
	})
}

func TestTakeOnceStatements(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		claimed(t, db, "10")
		handle, counter := dbtest.Count(db.DB)
		s := open(t, handle, table)
		fresh, repeated := 3, 2
		switch db.Kind() {
		case sqldb.Postgres:
			fresh = 2
		case sqldb.SQLite:
			fresh = 4 // in this process
		}
		if _, err := s.TakeOnce(t.Context(), handle, 10001, 1, "the first, which looks for the gates"); err != nil {
			t.Fatal(err)
		}
		both(t, &dbtest.DB{DB: handle, SQL: db.SQL, Pool: db.Pool}, func(t *testing.T, h sqldb.Handle) {
			for i, want := range []int{fresh, repeated} {
				counter.Take()
				r, err := s.TakeOnce(t.Context(), h, 10001, 1, t.Name())
				if q := counter.Take(); err != nil || r.Fresh != (i == 0) || len(q) != want {
					t.Errorf("%+v, %v: %d statements, want %d:\n%s", r, err, len(q), want, strings.Join(q, "\n"))
				}
			}
		})
	})
}

// Claims come before rows, everywhere: transactions that claim, and those that take
// one or several rows, all of them first thing, never deadlock.
func TestLockOrder(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		up(t, db)
		s := goods(t, db, 3)
		db.MustExec(t, "UPDATE goods SET n = 60 WHERE id = 2") // it is sold out halfway
		var claims, served atomic.Int64
		failed := crowd(t, db, "read committed", 40, func(ctx context.Context, g int, tx *sqldb.Tx) error {
			c := claims.Add(1)
			var err error
			switch c % 4 {
			case 0:
				_, err = s.TakeAll(ctx, tx, []stock.Line{{3, 1}, {2, 1}, {1, 1}})
			case 1:
				_, err = s.TakeAll(ctx, tx, []stock.Line{{1, 1}, {3, 1}})
			default: // a few at a time have the same claim
				var r stock.Receipt
				r, err = s.TakeOnce(ctx, tx, 1+c%3, 1, fmt.Sprint("claim ", c/8))
				if err == nil && !r.Fresh {
					return nil
				}
			}
			if err == nil {
				served.Add(1)
			}
			if errors.Is(err, stock.ErrSoldOut) {
				return nil // and commits
			}
			return err
		})
		if len(failed) > 0 || served.Load() == 0 {
			t.Errorf("%d served, %d failed: %v", served.Load(), len(failed), failed)
		}
	})
}
