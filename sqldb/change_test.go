package sqldb_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

const start = 1_000_000

// counter makes a table with one row to be decremented.
func counter(t *testing.T, db *dbtest.DB) {
	t.Helper()
	db.MustExec(t, "CREATE TABLE counter (id BIGINT PRIMARY KEY, left_count BIGINT NOT NULL)",
		fmt.Sprintf("INSERT INTO counter VALUES (1, %d)", start))
}

// decrement is the change that the tests make.
func decrement() sqldb.Change {
	return sqldb.Change{Op: "decrement", Query: "UPDATE counter SET left_count = left_count - 1 WHERE id = 1"}
}

// settled reads the counter behind every statement that is still under way: it
// takes the row lock itself.
func settled(t *testing.T, db *dbtest.DB) (n int64) {
	t.Helper()
	err := db.InTx(context.Background(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
		if _, err := tx.Exec(ctx, "UPDATE counter SET left_count = left_count WHERE id = 1"); err != nil {
			return err
		}
		return tx.QueryRow(ctx, "SELECT left_count FROM counter WHERE id = 1").Scan(&n)
	})
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// hold takes the row's lock (on SQLite: the write lock) until the function that it
// returns is called.
func hold(t *testing.T, db *dbtest.DB) (release func()) {
	t.Helper()
	held, letGo, gone := make(chan error, 1), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(gone)
		err := db.InTx(context.Background(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE counter SET left_count = left_count WHERE id = 1")
			held <- err
			<-letGo
			return errors.New("rolled back")
		})
		select {
		case held <- err: // InTx could not even begin
		default:
		}
	}()
	if err := <-held; err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() { close(letGo); <-gone })
}

// A context that ends at any moment, before a row lock that somebody holds again
// and again, never leaves a change behind an error.
func TestChangeCancelledAtRandom(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		cancelledAtRandom(t, db, func(ctx context.Context) error {
			c, err := db.Change(ctx, decrement())
			if err == nil && c.RowsAffected != 1 {
				t.Errorf("no error, and %d rows changed", c.RowsAffected)
			}
			return err
		})
	})
}

// Nor does one that ends anywhere in InTx: while it begins, before the lock, behind it,
// or while COMMIT runs.
func TestInTxCancelledAtRandom(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		cancelledAtRandom(t, db, func(ctx context.Context) error {
			return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
				res, err := tx.Exec(ctx, decrement().Query)
				if err == nil && res.RowsAffected != 1 {
					t.Errorf("no error, and %d rows changed", res.RowsAffected)
				}
				if err != nil {
					return err
				}
				return tx.QueryRow(ctx, "SELECT left_count FROM counter WHERE id = 1").Scan(new(int64))
			})
		})
	})
}

// cancelledAtRandom has several run a decrement whose ctx ends, and counts.
func cancelledAtRandom(t *testing.T, db *dbtest.DB, run func(ctx context.Context) error) {
	t.Helper()
	counter(t, db)
	stop := make(chan struct{})
	var holder sync.WaitGroup
	holder.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			release := hold(t, db)
			time.Sleep(rand.N(4 * time.Millisecond)) // the load, not a wait
			release()
		}
	})
	var applied, refused atomic.Int64
	var workers sync.WaitGroup
	for range 6 {
		workers.Go(func() {
			for i := range 40 {
				ctx, cancel := context.WithCancel(context.Background())
				end := rand.N(6 * time.Millisecond)
				if i%4 == 0 { // on a busy machine nobody else gets through
					end = 50*time.Millisecond + rand.N(500*time.Millisecond)
				}
				timer := time.AfterFunc(end, cancel)
				switch err := run(ctx); {
				case err == nil:
					applied.Add(1)
				case sqldb.Uncertain(err):
					t.Errorf("uncertain: %v", err)
				case errors.Is(err, context.Canceled) || sqldb.ClassOf(err) == sqldb.Canceled:
					refused.Add(1)
				case ctx.Err() != nil && errors.Is(err, driver.ErrBadConn):
					refused.Add(1) // as go-sql-driver has it, for a statement that it did not send
				default:
					t.Errorf("neither applied nor cancelled: %v", err)
				}
				timer.Stop()
				cancel()
			}
		})
	}
	workers.Wait()
	close(stop)
	holder.Wait()
	if got, want := settled(t, db), start-applied.Load(); got != want {
		t.Errorf("left_count is %d; with %d applied it has to be %d", got, applied.Load(), want)
	}
	if applied.Load() == 0 || refused.Load() == 0 {
		t.Errorf("%d applied, %d refused: the test has shown nothing", applied.Load(), refused.Load())
	}
}

// The control: the same statement under the caller's own ctx, as a program would
// run it, is reported as failed and applied later, on MySQL and MariaDB.
func TestExecCancelledIsAppliedLater(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		counter(t, db)
		release := hold(t, db)
		defer release()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		time.AfterFunc(100*time.Millisecond, cancel)
		if _, err := db.Exec(ctx, decrement().Query); err == nil {
			t.Fatal("it was applied in spite of the lock")
		}
		release()
		if got := settled(t, db); got != start-1 {
			t.Errorf("left_count is %d: this server no longer applies what was cancelled; database-facts has changed", got)
		}
	})
}

// A change that waits behind a lock returns soon after its ctx has ended, while
// the lock is still held, and nothing comes after it.
func TestChangeReturnsWhileTheLockIsHeld(t *testing.T) {
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		counter(t, db)
		release := hold(t, db)
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		begun := time.Now()
		_, err := db.Change(ctx, decrement())
		if !errors.Is(err, context.DeadlineExceeded) || sqldb.Uncertain(err) {
			t.Errorf("the answer is %v", err)
		}
		if took := time.Since(begun); took > sqldb.Bound/2 {
			t.Errorf("it took %v", took)
		}
		release()
		if got := settled(t, db); got != start {
			t.Errorf("left_count is %d", got)
		}
	})
}

// deaf is a driver whose statements cannot be ended from outside.
type deaf struct{ sqldb.Driver }

func (d deaf) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := d.Driver.Conn(ctx)
	return deafConn{c}, err
}

type deafConn struct{ sqldb.DriverConn }

func (deafConn) Interrupt(context.Context) error { return errors.ErrUnsupported }

// Without an answer the caller is told, after Bound, that the outcome is unknown.
func TestChangeBound(t *testing.T) {
	t.Parallel()
	if testing.Short() {
		t.Skip("takes sqldb.Bound")
	}
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres, sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		counter(t, db)
		release := hold(t, db)
		defer release()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		_, err := db.Wrap(func(d sqldb.Driver) sqldb.Driver { return deaf{d} }).Change(ctx, decrement())
		var u *sqldb.UncertainError
		if !errors.As(err, &u) || !sqldb.Uncertain(err) || u.Op != "decrement" {
			t.Errorf("the answer is %v", err)
		}
	})
}

// A ctx that has ended already runs nothing, not even a connection is taken.
func TestChangeDoneContext(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		none := db.Wrap(func(sqldb.Driver) sqldb.Driver { return nil })
		if _, err := none.Change(ctx, decrement()); !errors.Is(err, context.Canceled) {
			t.Errorf("the answer is %v", err)
		}
	})
}

// Rows come back from one statement that changes and answers.
func TestChangeReturning(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres, sqldb.SQLite}, func(t *testing.T, db *dbtest.DB) {
		counter(t, db)
		c := decrement()
		c.Query += " RETURNING left_count"
		c.Returning = true
		got, err := db.Change(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		var n int64
		if err := got.Scan(0, &n); err != nil || n != start-1 || got.RowsAffected != 1 || got.Len() != 1 {
			t.Errorf("%+v, %d, %v", got, n, err)
		}
		if err := got.Scan(1, &n); err == nil {
			t.Error("a second row was read")
		}
	})
}

// A database in memory ends with its connection: contexts that end at any moment
// must not have it thrown away.
func TestChangeInMemory(t *testing.T) {
	pool, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = pool.Close() }()
	pool.SetMaxOpenConns(1)
	handle, err := sqlitedb.New(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	db := &dbtest.DB{DB: handle, SQL: pool}
	counter(t, db)
	applied := int64(0)
	for range 20_000 {
		ctx, cancel := context.WithTimeout(t.Context(), rand.N(40*time.Microsecond))
		if _, err := handle.Change(ctx, decrement()); err == nil {
			applied++
		} else if !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		cancel()
	}
	if got := settled(t, db); got != start-applied || applied == 0 || applied == 20_000 {
		t.Errorf("left_count is %d after %d", got, applied)
	}
}
