package advisory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

// What the package leans on, as the servers really do it: a new version that does
// otherwise is to be noticed here.

// raw is a session by hand.
type raw struct {
	*sql.Conn
	t  testing.TB
	id int64
}

func session(t testing.TB, db *dbtest.DB) *raw {
	t.Helper()
	c, err := db.SQL.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	r := &raw{Conn: c, t: t}
	t.Cleanup(func() {
		_ = c.Raw(func(any) error { return errors.New("closed") })
		_ = c.Close()
	})
	query := "SELECT CONNECTION_ID()"
	if db.Kind() == sqldb.Postgres {
		query = "SELECT pg_backend_pid()"
	}
	if err := c.QueryRowContext(t.Context(), query).Scan(&r.id); err != nil {
		t.Fatal(err)
	}
	return r
}

// get is one value: a number, -1 for NULL.
func (r *raw) get(query string) (int64, error) {
	var n sql.NullInt64
	err := r.QueryRowContext(context.WithoutCancel(r.t.Context()), query).Scan(&n)
	if err == nil && !n.Valid {
		return -1, nil
	}
	return n.Int64, err
}

func (r *raw) want(query string, want int64) {
	r.t.Helper()
	if n, err := r.get(query); err != nil || n != want {
		r.t.Errorf("%s: %d, %v; it has to be %d", query, n, err, want)
	}
}

func (r *raw) exec(query string) error {
	_, err := r.ExecContext(context.WithoutCancel(r.t.Context()), query)
	return err
}

// lockName is unique on the server.
func lockName(t testing.TB, db *dbtest.DB) string { return serverKey(t, db, t.Name()) }

func number(err error) uint16 {
	var e *mysql.MySQLError
	if errors.As(err, &e) {
		return e.Number
	}
	return 0
}

func state(err error) string {
	var e *pgconn.PgError
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}

var innodb = []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}

// Timeouts of GET_LOCK: MySQL rounds to whole seconds, MariaDB answers negative and huge
// ones at once. Hence slices of whole seconds.
func TestFactTimeouts(t *testing.T) {
	t.Parallel()
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		name := lockName(t, db)
		a, b := session(t, db), session(t, db)
		a.want("SELECT GET_LOCK('"+name+"', 0)", 1)
		took := func(timeout string, want int64) time.Duration {
			begun := time.Now()
			b.want("SELECT GET_LOCK('"+name+"', "+timeout+")", want)
			return time.Since(begun)
		}
		if db.Kind() == sqldb.MySQL {
			if d := took("0.4", 0); d > 300*time.Millisecond {
				t.Logf("0.4 waited %v", d)
			}
		} else {
			took("-1", -1)
			took("NULL", -1)
			took("1e12", 0)
		}
		if d := took("1", 0); d < 900*time.Millisecond {
			t.Errorf("1 waited %v", d)
		}
	})
}

// GET_LOCK is counted, survives ROLLBACK, and RELEASE_LOCK tells what is not held by
// anybody (NULL) from what is another's (0).
func TestFactCounts(t *testing.T) {
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		name := lockName(t, db)
		a, b := session(t, db), session(t, db)
		get, give := "SELECT GET_LOCK('"+name+"', 0)", "SELECT RELEASE_LOCK('"+name+"')"
		b.want(give, -1)
		a.want(get, 1)
		a.want(get, 1)
		if err := errors.Join(a.exec("START TRANSACTION"), a.exec("ROLLBACK")); err != nil {
			t.Fatal(err)
		}
		a.want(give, 1)
		b.want(get, 0)
		b.want(give, 0)
		a.want(give, 1)
		a.want(give, -1)
		b.want(get, 1)
		b.want("SELECT RELEASE_ALL_LOCKS()", 1)
		b.want("SELECT RELEASE_ALL_LOCKS()", 0)
		b.want("SELECT COALESCE(IS_USED_LOCK('"+name+"') = CONNECTION_ID(), 0)", 0)
		// One number has both answers in it, and takes the lock once.
		b.want("SELECT 4 * CONNECTION_ID() + COALESCE(GET_LOCK('"+name+"', 0), 2)", 4*b.id+1)
		b.want(give, 1)
		b.want(give, -1)
	})
}

// A deadlock is told to one of the two, which keeps its other locks.
func TestFactDeadlock(t *testing.T) {
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		name := lockName(t, db)
		a, b := session(t, db), session(t, db)
		one, two := "'"+name[:40]+"1'", "'"+name[:40]+"2'"
		a.want("SELECT GET_LOCK("+one+", 0)", 1)
		b.want("SELECT GET_LOCK("+two+", 0)", 1)
		waited := make(chan error, 1)
		go func() {
			_, err := a.get("SELECT GET_LOCK(" + two + ", 20)")
			waited <- err
		}()
		eventually(t, "a waits", func() bool {
			var n int
			query := fmt.Sprintf("SELECT count(*) FROM information_schema.PROCESSLIST WHERE ID = %d AND STATE LIKE 'User lock'", a.id)
			if err := db.SQL.QueryRowContext(t.Context(), query).Scan(&n); err != nil {
				t.Fatal(err)
			}
			return n == 1
		})
		_, err := b.get("SELECT GET_LOCK(" + one + ", 20)")
		victim, other, mine := b, a, two
		if err == nil {
			err, victim, other, mine = <-waited, a, b, one
		} else {
			b.want("SELECT RELEASE_LOCK("+two+")", 1)
			if err := <-waited; err != nil {
				t.Error(err)
			}
			a.want("SELECT RELEASE_ALL_LOCKS()", 2)
			b.want("SELECT GET_LOCK("+two+", 0)", 1)
		}
		if want := map[sqldb.Kind]uint16{sqldb.MySQL: 3058, sqldb.MariaDB: 1213}[db.Kind()]; number(err) != want {
			t.Errorf("the victim gets %v, not %d", err, want)
		}
		victim.want("SELECT IS_USED_LOCK("+mine+")", victim.id)
		_ = other
	})
}

// Whose statement is killed: MySQL 1317, MariaDB NULL. Where the server's own limit
// strikes: 3024 or NULL.
func TestFactKilled(t *testing.T) {
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		name := lockName(t, db)
		a, b := session(t, db), session(t, db)
		a.want("SELECT GET_LOCK('"+name+"', 0)", 1)
		type answer struct {
			n   int64
			err error
		}
		done := make(chan answer, 1)
		go func() {
			n, err := b.get("SELECT GET_LOCK('" + name + "', 20)")
			done <- answer{n, err}
		}()
		// A statement that is killed before it waits gets the same error from both.
		eventually(t, "it waits", func() bool { return waiterOf(t, db, t.Name()) != 0 })
		if err := a.exec(fmt.Sprintf("KILL QUERY %d", b.id)); err != nil {
			t.Fatal(err)
		}
		got := <-done
		if db.Kind() == sqldb.MySQL && number(got.err) != 1317 || db.Kind() == sqldb.MariaDB && (got.err != nil || got.n != -1) {
			t.Errorf("KILL QUERY: %d, %v", got.n, got.err)
		}
		limit := "SET SESSION max_execution_time = 100"
		if db.Kind() == sqldb.MariaDB {
			limit = "SET SESSION max_statement_time = 0.1"
		}
		c := session(t, db)
		if err := c.exec(limit); err != nil {
			t.Fatal(err)
		}
		n, err := c.get("SELECT GET_LOCK('" + name + "', 20)")
		if number(err) != 3024 && number(err) != 1969 && n != -1 {
			t.Errorf("the limit: %d, %v", n, err)
		}
	})
}

// wait_timeout ends a session that says nothing, and its locks with it, after that time
// and not before.
func TestFactWaitTimeout(t *testing.T) {
	t.Parallel()
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		name := lockName(t, db)
		a, b := session(t, db), session(t, db)
		if err := a.exec("SET SESSION wait_timeout = 2"); err != nil {
			t.Fatal(err)
		}
		begun := time.Now()
		a.want("SELECT GET_LOCK('"+name+"', 0)", 1)
		b.want("SELECT GET_LOCK('"+name+"', 20)", 1)
		if took := time.Since(begun); took < 1900*time.Millisecond || took > 7*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// idle_session_timeout likewise; a statement that waits is not idle.
func TestFactIdleSessionTimeout(t *testing.T) {
	t.Parallel()
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		key := lockName(t, db)
		a, b := session(t, db), session(t, db)
		for _, s := range []*raw{a, b} {
			if err := s.exec("SET idle_session_timeout = '500ms'"); err != nil {
				t.Fatal(err)
			}
		}
		begun := time.Now()
		a.want("SELECT pg_try_advisory_lock("+key+")::int", 1)
		if err := b.exec("SELECT pg_sleep(1), pg_advisory_lock(" + key + ")"); err != nil {
			t.Errorf("who waits longer than the timeout: %v", err)
		}
		if took := time.Since(begun); took < 500*time.Millisecond {
			t.Errorf("it took %v", took)
		}
	})
}

// In an aborted transaction nothing is unlocked, and the lock stays after ROLLBACK.
// Unlock of what is not held is false. A transaction's lock in autocommit is gone.
func TestFactPostgres(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		key := lockName(t, db)
		a, b := session(t, db), session(t, db)
		try, give := "SELECT pg_try_advisory_lock("+key+")::int", "SELECT pg_advisory_unlock("+key+")::int"
		a.want(give, 0)
		if err := a.exec("BEGIN"); err != nil {
			t.Fatal(err)
		}
		a.want(try, 1)
		if err := a.exec("SELECT 1/0"); err == nil {
			t.Fatal("1/0")
		}
		if _, err := a.get(give); state(err) != "25P02" {
			t.Errorf("unlock in an aborted transaction: %v", err)
		}
		if err := a.exec("ROLLBACK"); err != nil {
			t.Fatal(err)
		}
		b.want(try, 0)
		a.want(give, 1)
		b.want("SELECT pg_try_advisory_xact_lock("+key+")::int", 1)
		a.want(try, 1)

		// lock_timeout as set_config(.., true) in the statement itself bounds the wait, and is
		// gone after it.
		begun := time.Now()
		err := b.exec("SELECT set_config('lock_timeout', '200', true), pg_advisory_lock(" + key + ") IS NOT NULL")
		if took := time.Since(begun); state(err) != "55P03" || took < 190*time.Millisecond {
			t.Errorf("lock_timeout: %v after %v", err, took)
		}
		var left string
		if err := b.QueryRowContext(t.Context(), "SHOW lock_timeout").Scan(&left); err != nil || left != "0" {
			t.Errorf("lock_timeout is %s afterwards, %v", left, err)
		}
		a.want("SELECT (pg_advisory_unlock("+key+"))::int", 1)
		b.want("SELECT (pg_advisory_lock("+key+") IS NOT NULL)::int", 1)
	})
}

// A CREATE INDEX CONCURRENTLY of the session that holds the key deadlocks with whoever
// waits for it in the server.
func TestFactIndexDeadlocks(t *testing.T) {
	t.Parallel()
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		db.MustExec(t, "CREATE TABLE indexed (n int)")
		key := lockName(t, db)
		a, b := session(t, db), session(t, db)
		a.want("SELECT pg_try_advisory_lock("+key+")::int", 1)
		waits := make(chan error, 1)
		go func() { waits <- b.exec("SELECT pg_advisory_lock(" + key + ")") }()
		eventually(t, "it waits", func() bool { return waitersOf(t, db, t.Name()) == 1 })
		err := a.exec("CREATE INDEX CONCURRENTLY one ON indexed (n)")
		if err == nil {
			err = <-waits
		} else {
			a.want("SELECT pg_advisory_unlock("+key+")::int", 1)
			if err := <-waits; err != nil {
				t.Error(err)
			}
		}
		if state(err) != "40P01" || !strings.Contains(err.Error(), "deadlock") {
			t.Errorf("the answer is %v", err)
		}
	})
}
