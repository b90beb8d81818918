package stock_test

import (
	"context"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

// All operations at once, by themselves and each in a transaction of its caller's, of
// the server's own isolation level: no deadlock between them, since all of them lock
// claims, then reservations, then rows, each sorted. What is counted is what the server
// says, whether anybody retries it or not.
func TestNoDeadlock(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		mixed(t, db)
		var d deadlocks
		handle := db.Wrap(func(drv sqldb.Driver) sqldb.Driver { return counting{drv, &d} })
		m := &mix{s: open(t, handle, goodsTable), db: handle}
		until := time.Now().Add(loadTime(3*time.Second, 10*time.Second))
		pruned := make(chan struct{})
		go func() {
			defer close(pruned)
			for time.Now().Before(until) {
				if _, err := m.s.PruneClaims(context.Background(), time.Duration(1+rand.IntN(int(time.Second)))); err != nil {
					t.Error(err)
				}
			}
		}()
		m.run(context.Background(), 32, until, func(err error) { t.Error(err) })
		<-pruned
		if victims := slices.DeleteFunc(d.victims, own(db.Kind())); len(victims) != 0 {
			t.Errorf("%d deadlocks in %d steps: %q", len(victims), m.done.Load(), victims)
		}
		t.Logf("%d steps, %d refused", m.done.Load(), m.short.Load())
	})
}

// own reports whether a victim is one of those that InnoDB makes by itself, in no order
// of ours. They are told, and try again.
//
// Several make the same claim, and wait for the first one; it is refused, and takes the
// claim back; then all of them get a shared lock on what is left of it, and each waits
// for the others' to insert.
//
// MariaDB passes over a locked row (SKIP LOCKED) by asking for the lock and taking that
// back, and for that moment counts as waiting.
func own(kind sqldb.Kind) func(query string) bool {
	return func(query string) bool {
		return kind.InnoDB() && strings.HasPrefix(query, "INSERT INTO") && strings.Contains(query, "claims` (") ||
			kind == sqldb.MariaDB && strings.HasSuffix(query, "SKIP LOCKED")
	}
}

// The control: takes in no order deadlock, and the count sees it.
func TestUnorderedDeadlocks(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		mixed(t, db)
		var d deadlocks
		handle := db.Wrap(func(drv sqldb.Driver) sqldb.Driver { return counting{drv, &d} })
		s := open(t, handle, goodsTable)
		both := make(chan struct{}, 2)
		failed := make(chan error, 2)
		for _, ids := range [][]int{{1, 2}, {2, 1}} {
			go func() {
				failed <- handle.InTx(context.Background(), sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
					if _, err := s.Take(ctx, tx, ids[0], 1); err != nil {
						return err
					}
					both <- struct{}{}
					for len(both) < 2 {
						time.Sleep(time.Millisecond)
					}
					_, err := s.Take(ctx, tx, ids[1], 1)
					return err
				})
			}()
		}
		<-failed
		<-failed
		if len(d.victims) == 0 {
			t.Error("nothing was counted")
		}
	})
}

// counting counts the deadlocks that the server tells of.
type counting struct {
	sqldb.Driver
	d *deadlocks
}

// deadlocks are the statements that were the victims.
type deadlocks struct {
	mu      sync.Mutex
	victims []string
}

func (c counting) see(query string, err error) error {
	if sqldb.ClassOf(err) == sqldb.Deadlock {
		c.d.mu.Lock()
		defer c.d.mu.Unlock()
		c.d.victims = append(c.d.victims, query)
	}
	return err
}

func (c counting) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	res, err := c.Driver.Exec(ctx, query, args)
	return res, c.see(query, err)
}

func (c counting) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	rows, err := c.Driver.Query(ctx, query, args)
	return c.rows(query, rows, err)
}

func (c counting) rows(query string, rows sqldb.DriverRows, err error) (sqldb.DriverRows, error) {
	if err != nil {
		return rows, c.see(query, err)
	}
	return countingRows{rows, c, query}, nil
}

func (c counting) Begin(ctx context.Context, o sqldb.TxOptions) (sqldb.DriverTx, error) {
	tx, err := c.Driver.Begin(ctx, o)
	if err != nil {
		return tx, err
	}
	return countingTx{tx, c}, nil
}

func (c counting) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	conn, err := c.Driver.Conn(ctx)
	if err != nil {
		return conn, err
	}
	return countingConn{conn, c}, nil
}

type countingRows struct {
	sqldb.DriverRows
	c     counting
	query string
}

func (r countingRows) Err() error { return r.c.see(r.query, r.DriverRows.Err()) }

type countingTx struct {
	sqldb.DriverTx
	c counting
}

func (t countingTx) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	res, err := t.DriverTx.Exec(ctx, query, args)
	return res, t.c.see(query, err)
}

func (t countingTx) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	rows, err := t.DriverTx.Query(ctx, query, args)
	return t.c.rows(query, rows, err)
}

func (t countingTx) Commit(ctx context.Context) error {
	return t.c.see("COMMIT", t.DriverTx.Commit(ctx))
}

type countingConn struct {
	sqldb.DriverConn
	c counting
}

func (k countingConn) Exec(ctx context.Context, query string, args []any) (sqldb.Result, error) {
	res, err := k.DriverConn.Exec(ctx, query, args)
	return res, k.c.see(query, err)
}

func (k countingConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	rows, err := k.DriverConn.Query(ctx, query, args)
	return k.c.rows(query, rows, err)
}
