package advisory_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
)

// settingsOf are the id of a session and its settings that a Locker changes.
func settingsOf(t testing.TB, c *sqldb.Conn, kind sqldb.Kind) (id int64, settings string) {
	t.Helper()
	query := "SELECT CONNECTION_ID(), CONCAT_WS('|', @@wait_timeout, COALESCE(@sqllock_advisory, ''), @@max_execution_time)"
	switch kind {
	case sqldb.MariaDB:
		query = "SELECT CONNECTION_ID(), CONCAT_WS('|', @@wait_timeout, COALESCE(@sqllock_advisory, ''), @@max_statement_time)"
	case sqldb.Postgres:
		query = `SELECT pg_backend_pid(), concat_ws('|', current_setting('application_name'), current_setting('idle_session_timeout'),
			current_setting('statement_timeout'), current_setting('lock_timeout'), current_setting('transaction_timeout', true))`
	}
	if err := c.QueryRow(t.Context(), query).Scan(&id, &settings); err != nil {
		t.Fatal(err)
	}
	return id, settings
}

// both takes both connections of a pool of two, as soon as they are there.
func both(t testing.TB, two *sqldb.DB) (all [2]*sqldb.Conn) {
	t.Helper()
	for i := range all {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		c, err := two.Conn(ctx)
		cancel()
		if err != nil {
			t.Fatalf("connection %d of the pool is not there: %v", i, err)
		}
		t.Cleanup(func() { _ = c.Close() })
		all[i] = c
	}
	return all
}

// A connection that holds locks is out of the pool, marked, and back a moment after the
// last release, with the settings that it had.
func TestConnectionGoesBack(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		two := db.Limited(t, 2)
		sets := []string{"SET SESSION wait_timeout = 1234", "SET SESSION max_execution_time = 98765"}
		switch db.Kind() {
		case sqldb.MariaDB:
			sets[1] = "SET SESSION max_statement_time = 98.5"
		case sqldb.Postgres:
			sets = []string{"SET application_name = 'the application'", "SET idle_session_timeout = '1h'", "SET statement_timeout = '17s'", "SET lock_timeout = '2345ms'"}
		}
		before := map[int64]string{}
		for _, c := range both(t, two) {
			for _, set := range sets {
				if _, err := c.Exec(t.Context(), set); err != nil {
					t.Fatal(err)
				}
			}
			id, settings := settingsOf(t, c, db.Kind())
			before[id] = settings
			defer func() { _ = c.Close() }()
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
		l := locker(t, two, lock.TTL(7*time.Second))
		var held []*lock.Lock
		for _, name := range []string{"a", "b", "c"} {
			held = append(held, must(t, l, name))
		}
		ours := sessionOf(t, db, "a")
		if before[ours] == "" {
			t.Fatalf("session %d is none of %v", ours, before)
		}
		marked(t, db, ours)
		c, err := two.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if id, settings := settingsOf(t, c, db.Kind()); id == ours {
			t.Errorf("session %d is in the pool while it holds locks: %s", id, settings)
		}
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
		for _, h := range held {
			release(t, h)
		}
		for _, c := range both(t, two) {
			id, settings := settingsOf(t, c, db.Kind())
			if settings != before[id] {
				t.Errorf("the settings of session %d are %s, and were %q", id, settings, before[id])
			}
			if err := c.Close(); err != nil {
				t.Error(err)
			}
		}
	})
}

// marked looks for the session as a DBA would.
func marked(t testing.TB, db *dbtest.DB, id int64) {
	t.Helper()
	var query string
	switch db.Kind() {
	case sqldb.Postgres:
		query = fmt.Sprintf("SELECT application_name FROM pg_stat_activity WHERE pid = %d", id)
	case sqldb.MySQL:
		query = fmt.Sprintf(`SELECT CAST(v.VARIABLE_VALUE AS CHAR) FROM performance_schema.user_variables_by_thread v
			JOIN performance_schema.threads t USING (THREAD_ID) WHERE t.PROCESSLIST_ID = %d AND v.VARIABLE_NAME = 'sqllock_advisory'`, id)
	default:
		return // performance_schema is off on MariaDB, unless it is switched on: see TestWaiterIsMarked
	}
	var mark string
	if err := db.SQL.QueryRowContext(t.Context(), query).Scan(&mark); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(mark, "sqllock advisory: ") || !strings.HasSuffix(mark, fmt.Sprintf(", pid %d", os.Getpid())) || len(mark) > 63 {
		t.Errorf("the mark is %q", mark)
	}
}

// A DBA who looks at the statement of a session that waits sees whose it is.
func TestWaiterIsMarked(t *testing.T) {
	t.Parallel()
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		holder, l := locker(t, db.DB), locker(t, db.DB)
		got := must(t, holder, "marked")
		done := acquiring(t, t.Context(), db, l, "marked")
		var info string
		query := fmt.Sprintf("SELECT COALESCE(INFO, '') FROM information_schema.PROCESSLIST WHERE ID = %d", waiterOf(t, db, "marked"))
		if err := db.SQL.QueryRowContext(t.Context(), query).Scan(&info); err != nil || !strings.HasPrefix(info, "/* sqllock ") {
			t.Errorf("the statement is %q, %v", info, err)
		}
		release(t, got)
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// A session that holds something when it should hold nothing is closed, and not given
// back: whoever gets it from the pool would have the lock without knowing.
func TestConnectionWithALockIsClosed(t *testing.T) {
	t.Parallel()
	test := func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		w := &intruder{}
		// No ping comes meanwhile, however slow the machine is: two would be on one connection.
		l := locker(t, db.Wrap(w.wrap), lock.TTL(time.Hour))
		got := must(t, l, "known")
		id := sessionOf(t, db, "known")
		statement := "DO GET_LOCK('advc_unknown', 0)"
		if db.Kind() == sqldb.Postgres {
			statement = "SELECT pg_advisory_lock(7310868735002)"
		}
		w.exec(t, statement)
		release(t, got)
		closed(t, db, id)
	}
	flavours(t, test)
	// What database/sql closes goes back to a pool of pgx's that it is made of.
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		t.Run("stdlib on a pool", func(t *testing.T) {
			on := *db
			var err error
			if on.DB, err = pgdb.SQL(t.Context(), db.SQL); err != nil {
				t.Fatal(err)
			}
			test(t, &on)
		})
	})
}

// closed waits until a session of the server has ended.
func closed(t testing.TB, db *dbtest.DB, id int64) {
	t.Helper()
	eventually(t, "the session is closed", func() bool {
		query := fmt.Sprintf("SELECT count(*) FROM information_schema.PROCESSLIST WHERE ID = %d", id)
		if db.Kind() == sqldb.Postgres {
			query = fmt.Sprintf("SELECT count(*) FROM pg_stat_activity WHERE pid = %d", id)
		}
		var n int
		if err := db.SQL.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n == 0
	})
}

// connID is the id of a connection's session.
func connID(t testing.TB, db *dbtest.DB, c *sql.Conn) (id int64) {
	t.Helper()
	query := "SELECT CONNECTION_ID()"
	if db.Kind() == sqldb.Postgres {
		query = "SELECT pg_backend_pid()"
	}
	if err := c.QueryRowContext(t.Context(), query).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return id
}

// intruder runs statements on the Locker's own connection.
type intruder struct{ conn sqldb.DriverConn }

func (w *intruder) wrap(d sqldb.Driver) sqldb.Driver { return intruderDriver{d, w} }

func (w *intruder) exec(t testing.TB, query string) {
	t.Helper()
	rows, err := w.conn.Query(t.Context(), query, nil)
	if err == nil {
		for rows.Next() {
			_ = rows
		}
		err = rows.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
}

type intruderDriver struct {
	sqldb.Driver
	w *intruder
}

func (d intruderDriver) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := d.Driver.Conn(ctx)
	d.w.conn = c
	return c, err
}

// Neither a lifetime nor an idle limit of the pool takes a lock away.
func TestPoolLimitsLoseNoLock(t *testing.T) {
	t.Parallel()
	flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		const short = 50 * time.Millisecond
		var handle *sqldb.DB
		var err error
		if db.Pool != nil {
			cfg, cerr := pgxpool.ParseConfig(db.DSN)
			if cerr != nil {
				t.Fatal(cerr)
			}
			cfg.MaxConnLifetime, cfg.MaxConnIdleTime, cfg.HealthCheckPeriod = short, short, short/2
			pool, perr := pgxpool.NewWithConfig(t.Context(), cfg)
			if perr != nil {
				t.Fatal(perr)
			}
			t.Cleanup(pool.Close)
			handle, err = pgdb.New(t.Context(), pool)
		} else {
			var pool *sql.DB
			if handle, pool, err = dbtest.Open(t.Context(), db.Kind().String(), db.DSN); err == nil {
				pool.SetConnMaxLifetime(short)
				pool.SetConnMaxIdleTime(short)
				pool.SetMaxIdleConns(0)
				t.Cleanup(func() { _ = pool.Close() })
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		l := locker(t, handle)
		got := must(t, l, "long")
		id := sessionOf(t, db, "long")
		for range 30 {
			if _, err := handle.Exec(t.Context(), "SELECT 1"); err != nil {
				t.Fatal(err)
			}
			time.Sleep(short / 2)
		}
		if now := sessionOf(t, db, "long"); now != id {
			t.Errorf("session %d had it, and now %d", id, now)
		}
		if err := got.Err(); err != nil {
			t.Error(err)
		}
		release(t, got)
	})
}

// A pool of one connection is refused, with the reason.
func TestPoolOfOne(t *testing.T) {
	flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		_, err := advisory.New(t.Context(), db.Limited(t, 1))
		if err == nil || !strings.Contains(err.Error(), "one connection") || !strings.Contains(err.Error(), "sqllock.New") {
			t.Errorf("New: %v", err)
		}
	})
}
