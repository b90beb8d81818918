package stock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock/locktest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
)

// child is a process that works until it is killed: kind, DSN, and what else prepare
// wants. It says "begun" when prepare has returned, and then does what that has returned.
func child(args []string, prepare func(ctx context.Context, db *sqldb.DB) (work func(bad func(error)), err error)) int {
	ctx := context.Background()
	db, _, err := openPool(ctx, args[0], args[1])
	var work func(func(error))
	if err == nil {
		work, err = prepare(ctx, db)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("begun")
	work(func(err error) {
		if impossible(err) {
			fmt.Println("impossible:", err)
			time.Sleep(time.Hour) // until it is read
		}
	})
	return 0
}

// impossible are errors that no connection that breaks excuses.
func impossible(err error) bool {
	for _, target := range []error{stock.ErrBadRow, stock.ErrOverflow, stock.ErrInvalid, stock.ErrNotFound, stock.ErrClaimMismatch, stock.ErrNotMigrated, stock.ErrNoReservation} {
		if errors.Is(err, target) {
			return true
		}
	}
	return false
}

// possible fails the test for errors that nothing excuses.
func possible(t *testing.T) func(error) {
	return func(err error) {
		if impossible(err) {
			t.Error(err)
		}
	}
}

// killing has processes work beside the test, kills each of them (kill -9) again and
// again and begins it anew, and has the server cut connections of all of them.
type killing struct {
	child string        // as withChildren calls it
	n     int           // how many of them
	lives time.Duration // one that has lived so long is killed
	// audit says whether everything is sound at this moment: nil, errUnsound, or that it
	// could not be told.
	audit func(context.Context, *sqldb.DB) error
	// enough says, if it is not nil, whether the rest of the test has seen enough.
	enough func() bool

	kills, cuts, audits int
}

// run has the processes work beside what prepare returns, whose handle's connections are
// cut as well, for a while and until enough of everything has happened: then it is over.
func (k *killing) run(t *testing.T, db *dbtest.DB, prepare func(handle *sqldb.DB) (work func(over func() bool))) {
	t.Helper()
	ctx := context.Background()
	kind, dsn := db.Kind().String(), db.DSN
	if db.Kind() == sqldb.Postgres {
		dsn += "&application_name=" + db.Schema()
	}
	handle, closePool, err := openPool(ctx, kind, dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer closePool()
	work := prepare(handle)
	over := enoughBy(time.Now().Add(loadTime(2*time.Second, 20*time.Second)), func() bool { return k.shown(db) })
	var stop atomic.Bool
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		work(stop.Load)
	}()
	children := make([]*locktest.Process, k.n)
	started := make([]time.Time, k.n)
	begin := func(i int) {
		children[i], started[i] = locktest.Start(t, k.child, kind, dsn, fmt.Sprintf("child %d", i)), time.Now()
		children[i].Expect("begun")
	}
	for i := range children {
		begin(i)
	}
	sound := true
	for round := 0; sound && !over(); round++ {
		if err := k.audit(ctx, db.DB); errors.Is(err, errUnsound) {
			t.Error(err)
			sound = false
		} else if err == nil {
			k.audits++
		}
		if round%2 == 0 {
			k.cuts += cut(db)
		}
		if i := round % k.n; time.Since(started[i]) > k.lives {
			children[i].Kill()
			k.kills++
			begin(i)
		}
	}
	stop.Store(true)
	for _, c := range children {
		c.Kill()
	}
	<-ended
	// Whatever a dead connection has left behind, its server may not have rolled back yet:
	// the audit is true all the same.
	if err := k.audit(ctx, db.DB); err != nil {
		t.Error(err)
	}
	if sound && !k.shown(db) {
		t.Errorf("%d processes killed, %d connections cut, %d audits: the test has shown nothing", k.kills, k.cuts, k.audits)
	}
	t.Logf("%d processes killed, %d connections cut, %d audits", k.kills, k.cuts, k.audits)
}

func (k *killing) shown(db *dbtest.DB) bool {
	return k.kills > 0 && k.audits > 0 && (k.cuts > 0 || db.Kind() == sqldb.SQLite) && (k.enough == nil || k.enough())
}

// cut has the server cut one connection of the processes that work, if it can.
func cut(db *dbtest.DB) (cut int) {
	if db.Kind() == sqldb.Postgres {
		_ = db.SQL.QueryRow("SELECT COUNT(pg_terminate_backend(pid)) FROM (SELECT pid FROM pg_stat_activity WHERE application_name = '" + db.Schema() + "' ORDER BY random() LIMIT 1) AS one").Scan(&cut)
		return cut
	}
	if !db.Kind().InnoDB() {
		return 0
	}
	conn, err := db.SQL.Conn(context.Background())
	if err != nil {
		return 0
	}
	defer func() { _ = conn.Close() }()
	var id int64
	err = conn.QueryRowContext(context.Background(), "SELECT id FROM information_schema.processlist WHERE db = '"+db.Schema()+"' AND id <> CONNECTION_ID() ORDER BY RAND() LIMIT 1").Scan(&id)
	if err != nil {
		return 0
	}
	if _, err := conn.ExecContext(context.Background(), fmt.Sprintf("KILL %d", id)); err != nil {
		return 0
	}
	return 1
}

// openPool opens the database as a program would.
func openPool(ctx context.Context, kind, dsn string) (db *sqldb.DB, closePool func(), err error) {
	if kind == sqldb.Postgres.String() {
		pool, err := pgxpool.New(ctx, dsn+"&pool_max_conns=12")
		if err != nil {
			return nil, nil, err
		}
		db, err = pgdb.New(ctx, pool)
		return db, pool.Close, err
	}
	db, pool, err := dbtest.Open(ctx, kind, dsn)
	if err != nil {
		return nil, nil, err
	}
	pool.SetMaxOpenConns(12)
	pool.SetMaxIdleConns(12)
	return db, func() { _ = pool.Close() }, nil
}
