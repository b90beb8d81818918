package advisory_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// script is a driver whose connections answer some statements otherwise.
type script struct {
	mu    sync.Mutex
	words string // in the statement
	times int    // how often it is answered otherwise; -1: always
	run   bool   // the statement is carried out before
	rows  []any  // the answer: one row
	err   error  // or an error
	hits  int
}

// on has the next n statements with these words answered so.
func (s *script) on(words string, n int, run bool, err error, row ...any) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.words, s.times, s.run, s.err, s.rows, s.hits = words, n, run, err, row, 0
}

func (s *script) hit() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hits
}

func (s *script) wrap(d sqldb.Driver) sqldb.Driver { return scriptDriver{d, s} }

type scriptDriver struct {
	sqldb.Driver
	s *script
}

func (d scriptDriver) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return d.s.query(ctx, d.Driver, query, args)
}

func (d scriptDriver) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := d.Driver.Conn(ctx)
	return scriptConn{c, d.s}, err
}

type scriptConn struct {
	sqldb.DriverConn
	s *script
}

func (c scriptConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return c.s.query(ctx, c.DriverConn, query, args)
}

func (s *script) query(ctx context.Context, q sqldb.Querier, query string, args []any) (sqldb.DriverRows, error) {
	s.mu.Lock()
	is := s.words != "" && strings.Contains(query, s.words) && s.times != 0
	if is {
		s.times--
		s.hits++
	}
	run, err, row := s.run, s.err, s.rows
	s.mu.Unlock()
	if !is {
		return q.Query(ctx, query, args)
	}
	if run {
		rows, err := q.Query(ctx, query, args)
		if err != nil {
			return nil, err
		}
		for rows.Next() {
			_ = rows
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
	}
	if err != nil {
		return nil, err
	}
	return &oneRow{row: row}, nil
}

type oneRow struct {
	row  []any
	read bool
}

func (r *oneRow) Next() bool {
	defer func() { r.read = true }()
	return !r.read
}
func (r *oneRow) Values() ([]any, error) { return r.row, nil }
func (r *oneRow) Err() error             { return nil }
func (r *oneRow) Close() error           { return nil }

// words are those in the statements of a kind of server.
func words(kind sqldb.Kind) (try, block, unlock, ping string) {
	if kind == sqldb.Postgres {
		return "pg_try_advisory_lock", "pg_advisory_lock(", "pg_advisory_unlock", "SELECT pg_backend_pid()"
	}
	return ", 0)", "GET_LOCK(", "RELEASE_LOCK(", "SELECT CONNECTION_ID()"
}

func serverError(kind sqldb.Kind, state string, number uint16) error {
	if kind == sqldb.Postgres {
		return &pgconn.PgError{Severity: "ERROR", Code: state, Message: "scripted"}
	}
	return &mysql.MySQLError{Number: number, Message: "scripted"}
}

// An error of the statement that takes says nothing about whether it has taken: the
// server is asked, and what was granted is given back. Others that the Locker holds stay
// held. A deadlock names the lock.
func TestErrorOfATry(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		try, _, _, _ := words(db.Kind())
		for what, err := range map[string]error{
			"cancelled":    serverError(db.Kind(), "57014", 3024),
			"lock timeout": serverError(db.Kind(), "55P03", 1205),
			"deadlock":     serverError(db.Kind(), "40P01", map[sqldb.Kind]uint16{sqldb.MySQL: 3058, sqldb.MariaDB: 1213}[db.Kind()]),
			"exhausted":    serverError(db.Kind(), "53200", 1041),
		} {
			for _, granted := range []bool{true, false} {
				var s script
				l := locker(t, db.Wrap(s.wrap), advisory.Connections(1))
				kept := must(t, l, "kept")
				s.on(try, 1, granted, err)
				got, aerr := l.Acquire(t.Context(), "failed")
				if aerr == nil || !errors.Is(aerr, err) || !strings.Contains(aerr.Error(), `"failed"`) || errors.Is(aerr, lock.ErrHeld) {
					t.Fatalf("%s: %v, %v", what, got, aerr)
				}
				if what == "deadlock" && !strings.Contains(aerr.Error(), "deadlock") {
					t.Errorf("the text is %q", aerr)
				}
				if id := sessionOf(t, db, "failed"); id != 0 {
					t.Errorf("%s, granted %v: session %d has it", what, granted, id)
				}
				if err := kept.Err(); err != nil || sessionOf(t, db, "kept") == 0 {
					t.Errorf("%s: the other lock: %v", what, err)
				}
				release(t, must(t, l, "failed"))
				release(t, kept)
			}
		}
	})
}

// A full lock table answers 53200 to everything that needs a lock, a look into pg_locks
// included: what the session holds is not lost for that.
func TestServerIsFull(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		var s script
		handle, counter := dbtest.Count(db.Wrap(s.wrap))
		l := locker(t, handle, advisory.Connections(1))
		kept := must(t, l, "kept")
		try, _, unlock, _ := words(db.Kind())
		s.on(try, 1, false, serverError(db.Kind(), "53200", 1041))
		counter.Take()
		if _, err := l.Acquire(t.Context(), "full"); sqldb.ClassOf(err) != sqldb.Exhausted || !strings.Contains(err.Error(), "no room") {
			t.Errorf("the answer is %v", err)
		}
		if sent := counter.Take(); len(sent) != 2 || !strings.Contains(sent[1], unlock) {
			t.Errorf("what was sent: %q", sent)
		}
		if err := kept.Err(); err != nil {
			t.Errorf("the other lock: %v", err)
		}
		release(t, kept)
	})
}

// If the server does not say what became of it, the session ends, with what it holds.
func TestErrorInDoubt(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		var s script
		l := locker(t, db.Wrap(s.wrap), advisory.Connections(1))
		kept := must(t, l, "kept")
		// Every statement fails from here on: the try, and the question about it.
		s.on("SELECT", 2, true, serverError(db.Kind(), "57014", 3024))
		if got, err := l.Acquire(t.Context(), "failed"); err == nil {
			t.Fatalf("it got %v", got)
		}
		select {
		case <-kept.Done():
		case <-time.After(20 * time.Second):
			t.Fatal("the session was kept, though nobody knows what it holds")
		}
		var lost *lock.LostError
		if !errors.As(kept.Err(), &lost) {
			t.Errorf("the other lock: %v", kept.Err())
		}
		eventually(t, "the server has freed both", func() bool { return sessionOf(t, db, "failed") == 0 && sessionOf(t, db, "kept") == 0 })
		release(t, must(t, l, "failed"))
	})
}

// A lock_timeout that strikes when the server has granted the lock: it is had. (Were it
// asked for again in the same session, it would be had twice, and released once.)
func TestLockTimeoutOfAGrant(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		var s script
		l, holder := locker(t, db.Wrap(s.wrap)), locker(t, db.DB)
		first := must(t, holder, "late")
		var stats lock.Stats
		s.on("IS NOT NULL", 1, true, serverError(db.Kind(), "55P03", 0)) // only a wait says that
		got := make(chan *lock.Lock, 1)
		go func() {
			next, err := l.Acquire(t.Context(), "late", lock.Wait(time.Minute), lock.WithTrace(stats.Trace()))
			if err != nil {
				t.Error(err)
			}
			got <- next
		}()
		eventually(t, "it waits", func() bool { return waitersOf(t, db, "late") == 1 })
		release(t, first)
		next := <-got
		if s.hit() != 1 {
			t.Fatalf("%d statements were answered by the script", s.hit())
		}
		refusedTry(t, holder, "late")
		release(t, next)
		release(t, must(t, holder, "late", lock.Try()))
	})
}

// NULL of GET_LOCK is an error, and 0 is a refusal.
func TestAnswersOfGetLock(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		var s script
		l := locker(t, db.Wrap(s.wrap), advisory.Connections(1))
		kept := must(t, l, "kept")
		id := sessionOf(t, db, "kept")
		s.on("GET_LOCK(", 1, false, nil, 4*id+2)
		if got, err := l.Acquire(t.Context(), "null"); err == nil || errors.Is(err, lock.ErrHeld) || !strings.Contains(err.Error(), "NULL") {
			t.Errorf("NULL: %v, %v", got, err)
		}
		s.on("GET_LOCK(", 1, true, nil, 4*id+2) // NULL, and yet it was granted
		if got, err := l.Acquire(t.Context(), "null"); err == nil {
			t.Errorf("NULL: %v", got)
		}
		if id := sessionOf(t, db, "null"); id != 0 {
			t.Errorf("session %d has it", id)
		}
		s.on("GET_LOCK(", 1, false, nil, id, nil, nil)
		if got, err := l.Acquire(t.Context(), "null", lock.Try()); err == nil || errors.Is(err, lock.ErrHeld) {
			t.Errorf("NULL to a Try: %v, %v", got, err)
		}
		s.on("GET_LOCK(", 1, false, nil, id, int64(0), int64(4711))
		if held := refusedTry(t, l, "zero"); !strings.Contains(held.Error(), "connection 4711") {
			t.Errorf("0: %v", held)
		}
		// What was released by nobody knows whom is lost: NULL, nobody has it, 0, another.
		for _, answer := range []int64{0, 2} {
			got := must(t, l, "gone")
			s.on("RELEASE_LOCK(", 1, true, nil, 4*id+answer)
			if err := got.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
				t.Errorf("RELEASE_LOCK answers %d: %v", answer, err)
			}
		}
		if err := kept.Err(); err != nil {
			t.Error(err)
		}
		release(t, kept)
	})
}

// The same of pg_advisory_unlock: false.
func TestAnswersOfUnlock(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		w := &intruder{}
		l := locker(t, db.Wrap(w.wrap), advisory.Connections(1))
		got, kept := must(t, l, "gone"), must(t, l, "kept")
		w.exec(t, "SELECT pg_advisory_unlock("+serverKey(t, db, "gone")+")")
		if err := got.Release(t.Context()); !errors.Is(err, lock.ErrLost) {
			t.Errorf("Release: %v", err)
		}
		release(t, kept)
	})
}

// A release that fails while the session lives is tried again until the server has
// freed the lock.
func TestErrorOfARelease(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		_, _, unlock, _ := words(db.Kind())
		for _, done := range []bool{true, false} {
			var s script
			l := locker(t, db.Wrap(s.wrap), advisory.Connections(1))
			got, kept := must(t, l, "stuck"), must(t, l, "kept")
			s.on(unlock, 2, done, serverError(db.Kind(), "57014", 3024))
			err := got.Release(t.Context())
			if done && err != nil || !done && err == nil {
				t.Errorf("carried out %v: Release says %v", done, err)
			}
			eventually(t, "the server has freed it", func() bool { return sessionOf(t, db, "stuck") == 0 })
			if err := kept.Err(); err != nil {
				t.Error(err)
			}
			release(t, kept)
		}
	})
}

// A connection that breaks under a try is no error: what it may have been granted ends
// with the session, and another one is asked.
func TestConnectionBreaksUnderATry(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		var s script
		try, _, _, _ := words(db.Kind())
		l := locker(t, db.Wrap(s.wrap))
		s.on(try, 1, true, io.ErrUnexpectedEOF)
		got := must(t, l, "broken", lock.Wait(20*time.Second))
		if s.hit() != 1 {
			t.Errorf("%d statements were answered by the script", s.hit())
		}
		release(t, got)
		release(t, must(t, locker(t, db.DB), "broken", lock.Try()))
	})
}

// A ctx that ends while the server grants the lock wins, and the grant is given back:
// beside other locks, and without.
func TestCtxWinsOverAGrant(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		try, _, _, _ := words(db.Kind())
		for _, beside := range []bool{true, false} {
			ctx, cancel := context.WithCancel(t.Context())
			then := &after{words: try}
			l := locker(t, db.Wrap(then.wrap), advisory.Connections(1))
			if beside {
				must(t, l, "beside")
			} else {
				release(t, must(t, l, "warm"))
			}
			then.set(cancel)
			got, err := l.Acquire(ctx, "late")
			if got != nil || !errors.Is(err, context.Canceled) {
				t.Errorf("beside another lock %v: %v, %v", beside, got, err)
			}
			eventually(t, "it is given back", func() bool { return sessionOf(t, db, "late") == 0 })
		}
	})
}

// after is a driver whose connections do something when a statement has been answered.
type after struct {
	words string
	mu    sync.Mutex
	then  func()
}

func (a *after) set(then func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.then = then
}

func (a *after) wrap(d sqldb.Driver) sqldb.Driver { return afterDriver{d, a} }

type afterDriver struct {
	sqldb.Driver
	a *after
}

func (d afterDriver) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := d.Driver.Conn(ctx)
	return afterConn{c, d.a}, err
}

type afterConn struct {
	sqldb.DriverConn
	a *after
}

func (c afterConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	rows, err := c.DriverConn.Query(ctx, query, args)
	c.a.mu.Lock()
	then := c.a.then
	c.a.mu.Unlock()
	if err != nil || then == nil || !strings.Contains(query, c.a.words) {
		return rows, err
	}
	rows.Next()
	row, err := rows.Values()
	if err != nil {
		return nil, err
	}
	row = append([]any(nil), row...)
	for i, v := range row {
		if b, ok := v.([]byte); ok {
			row[i] = append([]byte(nil), b...)
		}
	}
	if err := rows.Close(); err != nil {
		return nil, err
	}
	then()
	return &oneRow{row: row}, nil
}

// A proxy that runs a statement in another session than those before is found out, with
// whatever statement that happens.
func TestSessionIsAnother(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		var s script
		l := locker(t, db.Wrap(s.wrap), advisory.Connections(1))
		kept := must(t, l, "kept")
		try, _, _, _ := words(db.Kind())
		answer := int64(4711) // granted
		if db.Kind().InnoDB() {
			answer = 4*4711 + 1
		}
		s.on(try, 1, false, nil, answer)
		_, err := l.Acquire(t.Context(), "pooled")
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "session 4711") {
			t.Errorf("the answer is %v", err)
		}
		if err := kept.Err(); !errors.Is(err, lock.ErrLost) {
			t.Errorf("the lock of a session that is none: %v", err)
		}
		pinged := must(t, l, "pinged", lock.TTL(time.Second))
		_, _, _, ping := words(db.Kind())
		row := []any{int64(4711)}
		if db.Kind().InnoDB() {
			row = append(row, []byte("0"))
		}
		s.on(ping, -1, false, nil, row...)
		select {
		case <-pinged.Done():
		case <-time.After(20 * time.Second):
			t.Fatal("a ping that another session answered was trusted")
		}
		s.on("", 0, false, nil)
	})
}
