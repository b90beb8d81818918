package handle_test

import (
	"context"
	"database/sql"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/optimistic/stock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
)

// execModes are pgx's ways to run a statement: all but the first, which is its default,
// keep no named prepared statement on the server.
var execModes = []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"}

// inMode opens the database of fresh once more, in one of pgx's modes.
func inMode(t *testing.T, fresh *dbtest.DB, stdlib bool, mode string) *sqldb.DB {
	t.Helper()
	dsn := modeDSN(t, fresh, mode, "UTF8")
	if stdlib {
		_, db := openSQL(t, fresh, "pgx", dsn)
		return db
	}
	pool, err := pgxpool.New(t.Context(), dsn)
	if err != nil {
		t.Fatal("the DSN is none of pgx's")
	}
	t.Cleanup(pool.Close)
	db, err := pgdb.New(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func modeDSN(t *testing.T, fresh *dbtest.DB, mode, encoding string) string {
	t.Helper()
	u, err := url.Parse(fresh.DSN)
	if err != nil {
		t.Fatal("the DSN is no URL")
	}
	q := u.Query()
	q.Set("default_query_exec_mode", mode)
	q.Set("client_encoding", encoding)
	u.RawQuery = q.Encode()
	return u.String()
}

// modes runs f with pgx's pool and its stdlib in every mode.
func modes(t *testing.T, f func(t *testing.T, mode string, fresh *dbtest.DB, db *sqldb.DB)) {
	t.Helper()
	for _, mode := range execModes {
		for name, stdlib := range map[string]bool{"pgxpool": false, "stdlib": true} {
			t.Run(mode+"/"+name, func(t *testing.T) {
				t.Parallel()
				fresh := dbtest.New(t, sqldb.Postgres)
				f(t, mode, fresh, inMode(t, fresh, stdlib, mode))
			})
		}
	}
}

// No named prepared statement is needed, and in most modes none is left.
func TestExecModes(t *testing.T) {
	modes(t, func(t *testing.T, mode string, fresh *dbtest.DB, db *sqldb.DB) {
		ctx := t.Context()
		counters(t, fresh)
		bonus, err := stock.New(db, stock.Table{Name: "counter", ID: "id", Count: "left_count"})
		if err != nil {
			t.Fatal(err)
		}
		if n, err := bonus.Take(ctx, db, 1, 60); n != 40 || err != nil {
			t.Errorf("Take: %d, %v", n, err)
		}
		if n, err := bonus.Put(ctx, db, 1, 10); n != 50 || err != nil {
			t.Errorf("Put: %d, %v", n, err)
		}
		var short *stock.ShortError
		if _, err := bonus.Take(ctx, db, 1, 51); !errors.As(err, &short) || len(short.Lines) != 1 || short.Lines[0].Left != 50 {
			t.Errorf("a refusal: %v", err)
		}
		if _, err := bonus.Take(ctx, db, 2, 1); !errors.Is(err, stock.ErrNotFound) {
			t.Errorf("no row: %v", err)
		}
		err = db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			n, err := bonus.Take(ctx, tx, 1, 20)
			if n != 30 {
				t.Errorf("in a transaction: %d are left", n)
			}
			return err
		})
		if err != nil {
			t.Errorf("in a transaction: %v", err)
		}

		holder, err := fresh.SQL.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = holder.Rollback() }()
		if _, err := holder.Exec("UPDATE counter SET left_count = left_count WHERE id = 1"); err != nil {
			t.Fatal(err)
		}
		behind, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
		defer cancel()
		if _, err := bonus.Take(behind, db, 1, 1); !errors.Is(err, context.DeadlineExceeded) || sqldb.Uncertain(err) {
			t.Errorf("behind a lock: %v", err)
		}
		if err := holder.Rollback(); err != nil {
			t.Error(err)
		}
		if got := left(t, fresh); got != 30 {
			t.Errorf("left_count is %d", got)
		}

		if err := migrations.Up(ctx, db); err != nil {
			t.Errorf("Up: %v", err)
		}
		if problems, err := migrations.Check(ctx, db); err != nil || len(problems) != 0 {
			t.Errorf("Check: %v, %v", problems, err)
		}
		if err := migrations.Down(ctx, db); err != nil {
			t.Errorf("Down: %v", err)
		}
		conn, err := db.Conn(ctx)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = conn.Close() }()
		var named int
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_prepared_statements WHERE name <> ''").Scan(&named); err != nil || mode != "cache_statement" && named != 0 {
			t.Errorf("%d named statements were left, %v", named, err)
		}
	})
}

// pgx refuses an id that it cannot encode for its column before anything is sent: that
// leaves no doubt. Where it leaves the refusing to the server, there is none either.
func TestWrongTypeIsCertain(t *testing.T) {
	modes(t, func(t *testing.T, mode string, fresh *dbtest.DB, db *sqldb.DB) {
		fresh.MustExec(t, "CREATE TABLE counter (id BIGINT PRIMARY KEY, left_count BIGINT NOT NULL)", "INSERT INTO counter VALUES (1, 100)",
			"CREATE TABLE named (id TEXT PRIMARY KEY, left_count BIGINT NOT NULL)", "INSERT INTO named VALUES ('a', 100)")
		for table, ids := range map[string][]any{"counter": {true, "one", []byte("x")}, "named": {1, true}} {
			s, err := stock.New(db, stock.Table{Name: table, ID: "id", Count: "left_count"})
			if err != nil {
				t.Fatal(err)
			}
			for _, id := range ids {
				if _, err := s.Take(t.Context(), db, id, 1); err == nil || sqldb.Uncertain(err) {
					t.Errorf("Take(%s, %v): %v", table, id, err)
				}
				if _, err := s.Put(t.Context(), db, id, 1); err == nil || sqldb.Uncertain(err) {
					t.Errorf("Put(%s, %v): %v", table, id, err)
				}
				c := sqldb.Change{Op: "change", Query: "UPDATE " + table + " SET left_count = 0 WHERE id = $1", Args: []any{id}}
				if _, err := db.Change(t.Context(), c); sqldb.Uncertain(err) || err == nil && table == "counter" {
					t.Errorf("Change(%s, %v): %v", table, id, err)
				}
			}
			var n int
			if err := fresh.QueryRow(t.Context(), "SELECT left_count FROM "+table).Scan(&n); err != nil || n != 100 {
				t.Errorf("%s: left_count is %d, %v", table, n, err)
			}
		}
		if _, err := db.Exec(t.Context(), "SELECT 1"); err != nil {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// pgx's simple protocol refuses a connection of another encoding. New tells it; what is
// refused later was not sent.
func TestSimpleProtocolOfAnotherEncoding(t *testing.T) {
	fresh := dbtest.New(t, sqldb.Postgres)
	pool, err := pgxpool.New(t.Context(), modeDSN(t, fresh, "simple_protocol", "LATIN1"))
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	if _, err := pgdb.New(t.Context(), pool); err == nil || !strings.Contains(err.Error(), "client_encoding=UTF8") {
		t.Errorf("New: %v", err)
	}
	counters(t, fresh)
	for name, stdlib := range map[string]bool{"pgxpool": false, "stdlib": true} {
		db := inMode(t, fresh, stdlib, "simple_protocol")
		c := sqldb.Change{Op: "decrement", Query: "UPDATE counter SET left_count = left_count - $1 WHERE id = 1 RETURNING left_count", Args: []any{1}}
		for _, c.Returning = range []bool{false, true} {
			// New has used the pool's only connection, which the next statement gets.
			if _, err := db.Exec(t.Context(), "SET client_encoding TO LATIN1"); err != nil {
				t.Fatal(err)
			}
			if _, err := db.Change(t.Context(), c); err == nil || sqldb.Uncertain(err) {
				t.Errorf("%s: the answer is %v", name, err)
			}
		}
	}
	if got := left(t, fresh); got != 100 {
		t.Errorf("left_count is %d", got)
	}
}

// The control: what the server answers afterwards has been applied.
func TestAnswerThatCannotBeReadIsUncertain(t *testing.T) {
	on(t, func(fl flavour) bool { return fl.name == "pgxpool" }, func(t *testing.T, fl flavour, fresh *dbtest.DB, _ *sql.DB, db *sqldb.DB) {
		counters(t, fresh)
		c := decrement
		c.Query, c.Returning = c.Query+" RETURNING ARRAY[left_count]", true
		if _, err := db.Change(t.Context(), c); err == nil || !sqldb.Uncertain(err) {
			t.Errorf("the answer is %v", err)
		}
		if got := left(t, fresh); got != 99 {
			t.Errorf("left_count is %d", got)
		}
	})
}
