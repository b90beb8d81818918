package stock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock/locktest"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

// withChildren has locktest.Main run inside TestMain.
type withChildren struct{ m *testing.M }

func (w withChildren) Run() int {
	return locktest.Main(w.m, map[string]locktest.Child{"mix": mixChild, "combine": combineChild, "slots": slotChild})
}

// mixChild is a process of a mix, which is killed some time: kind, DSN, name.
func mixChild(args []string) int {
	ctx := context.Background()
	db, _, err := openPool(ctx, args[0], args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	s, err := stock.New(db, goodsTable)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("begun")
	m := &mix{s: s, db: db, name: args[2]}
	m.run(ctx, 16, time.Now().Add(time.Hour), func(err error) {
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
	driver := "mysql"
	if kind == sqldb.SQLite.String() {
		driver = "sqlite"
	}
	pool, err := sql.Open(driver, dsn)
	if err != nil {
		return nil, nil, err
	}
	pool.SetMaxOpenConns(12)
	pool.SetMaxIdleConns(12)
	if driver == "sqlite" {
		db, err = sqlitedb.New(ctx, pool)
	} else {
		db, err = mysqldb.New(ctx, pool)
	}
	return db, func() { _ = pool.Close() }, err
}

// 64 goroutines in three processes do all of it, of which two are killed (kill -9)
// and begun anew again and again, and connections of all of them are cut by the
// server: at every moment left + sold + claimed + held + confirmed is what there was.
func TestInvariantsKilled(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		mixed(t, db)
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
		m := &mix{s: open(t, handle, goodsTable), db: handle, name: "parent"}
		until := time.Now().Add(loadTime(2*time.Second, 20*time.Second))
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			m.run(ctx, 32, until, func(err error) {
				if impossible(err) {
					t.Error(err)
				}
			})
		}()
		children := make([]*locktest.Process, 2)
		started := make([]time.Time, 2)
		start := func(i int) {
			children[i], started[i] = locktest.Start(t, "mix", kind, dsn, fmt.Sprintf("child %d", i)), time.Now()
			children[i].Expect("begun")
		}
		for i := range children {
			start(i)
		}
		kills, cuts, audits := 0, 0, 0
		enough := func() bool { return kills > 0 && audits > 0 && (cuts > 0 || db.Kind() == sqldb.SQLite) }
		for round := 0; time.Now().Before(until) || !enough() && time.Now().Before(until.Add(time.Minute)); round++ {
			if err := audit(ctx, db.DB); errors.Is(err, errUnsound) {
				t.Fatal(err)
			} else if err == nil {
				audits++
			}
			if round%2 == 0 {
				cuts += cut(db)
			}
			if i := round % 2; time.Since(started[i]) > 500*time.Millisecond {
				children[i].Kill()
				kills++
				start(i)
			}
		}
		for _, c := range children {
			c.Kill()
		}
		<-ended
		// Whatever a dead connection has left behind, its server has rolled back by the
		// time that its locks are free: the sweep below waits for none of them, but the
		// audit is true all the same.
		if err := audit(ctx, db.DB); err != nil {
			t.Error(err)
		}
		db.MustExec(t, "UPDATE "+db.Table("reservations")+" SET expires_at = created_at WHERE state = 'held'",
			"UPDATE "+db.Table("reservation_lines")+" SET held_until = (SELECT created_at FROM "+db.Table("reservations")+" r WHERE r.id = reservation) WHERE held_until IS NOT NULL")
		s := open(t, db.DB, goodsTable)
		if _, err := s.Sweep(ctx, db.DB); err != nil {
			t.Error(err)
		}
		if err := audit(ctx, db.DB); err != nil {
			t.Error(err)
		}
		var open int
		if err := db.QueryRow(ctx, "SELECT COUNT(*) FROM "+db.Table("reservation_lines")+" WHERE held_until IS NOT NULL").Scan(&open); err != nil || open != 0 {
			t.Errorf("%d lines are open after everything has expired and was swept, %v", open, err)
		}
		if !enough() {
			t.Errorf("%d processes killed, %d connections cut, %d audits: the test has shown nothing", kills, cuts, audits)
		}
		t.Logf("%d processes killed, %d connections cut, %d audits, %d steps of the one that lived", kills, cuts, audits, m.done.Load())
	})
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
