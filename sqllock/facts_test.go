package sqllock_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// What the databases really do, where the SQL of the lock table leans on it: a
// server version that does something else says so here.

// blocked reports whether a statement waits, which it is then not left to.
func blocked(t testing.TB, db *dbtest.DB, query string, args ...any) bool {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
	defer cancel()
	_, err := db.SQL.ExecContext(ctx, query, args...)
	if err != nil && ctx.Err() == nil {
		t.Fatalf("%s: %v", query, err)
	}
	return err != nil
}

// A conditional UPDATE waits on InnoDB for a row that it would not change; the form
// that is used here does not, and does not change a row that is locked.
func TestFactSkipLocked(t *testing.T) {
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		db.MustExec(t, "CREATE TABLE f (name VARBINARY(20), slot INT, n INT, PRIMARY KEY (name, slot))", "INSERT INTO f VALUES ('a', 0, 1), ('b', 0, 1)")
		raw, _ := openTx(t, db, 0)
		if _, err := raw.Exec("SELECT * FROM f WHERE name = 'a' LOCK IN SHARE MODE"); err != nil {
			t.Fatal(err)
		}
		if !blocked(t, db, "UPDATE f SET n = 2 WHERE name = 'a' AND slot = 0 AND n = 7") {
			t.Error("a conditional UPDATE did not wait")
		}
		form := "UPDATE (SELECT name, slot FROM f WHERE name = '%s' AND slot = 0 LIMIT 1 FOR UPDATE SKIP LOCKED) d %s f l ON l.name = d.name AND l.slot = d.slot SET l.n = l.n + 1"
		for name, want := range map[string]int64{"a": 0, "b": 1} {
			res, err := db.Exec(t.Context(), fmt.Sprintf(form, name, "STRAIGHT_JOIN"))
			if err != nil || res.RowsAffected != want {
				t.Errorf("%s: %d rows, %v", name, res.RowsAffected, err)
			}
		}
	})
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		db.MustExec(t, "CREATE TABLE f (name text PRIMARY KEY, n int)", "INSERT INTO f VALUES ('a', 1)")
		raw, _ := openTx(t, db, 0)
		if _, err := raw.Exec("SELECT * FROM f FOR KEY SHARE"); err != nil {
			t.Fatal(err)
		}
		if blocked(t, db, "UPDATE f SET n = 2") {
			t.Error("a plain UPDATE waited for FOR KEY SHARE")
		}
		take := "WITH x AS (SELECT name FROM f FOR UPDATE SKIP LOCKED) UPDATE f SET n = 3 FROM x WHERE f.name = x.name"
		if res, err := db.Exec(t.Context(), take); err != nil || res.RowsAffected != 0 {
			t.Errorf("a take-over beside FOR KEY SHARE: %d rows, %v", res.RowsAffected, err)
		}
	})
}

// LAST_INSERT_ID(expr) comes with the OK packet, also of the join.
func TestFactLastInsertID(t *testing.T) {
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		db.MustExec(t, "CREATE TABLE f (name INT PRIMARY KEY, token BIGINT)", "INSERT INTO f VALUES (1, 41)")
		res, err := db.Exec(t.Context(), "UPDATE (SELECT name FROM f WHERE name = 1 LIMIT 1 FOR UPDATE SKIP LOCKED) d STRAIGHT_JOIN f l ON l.name = d.name SET l.token = LAST_INSERT_ID(GREATEST(l.token + 1, 7))")
		if err != nil || res.LastInsertID != 42 {
			t.Errorf("%+v, %v", res, err)
		}
	})
}

// SET assigns from left to right on MySQL and MariaDB, from the old values elsewhere.
func TestFactAssignment(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		db.MustExec(t, "CREATE TABLE f (a INT, b INT)", "INSERT INTO f VALUES (1, 0)", "UPDATE f SET a = a + 1, b = a")
		var b int
		if err := db.QueryRow(t.Context(), "SELECT b FROM f").Scan(&b); err != nil || (b == 2) != db.Kind().InnoDB() {
			t.Errorf("b is %d, %v", b, err)
		}
	})
}

// A guard that matches nothing, and a try that fails, leave nobody waiting: what
// reads the row without a lock never waits.
func TestFactPlainReadNeverWaits(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		k := must(t, l, "job", lock.NoRenew())
		raw, _ := openTx(t, db, 0)
		if _, err := raw.Exec("UPDATE " + db.Table("locks") + " SET token = token + 1"); err != nil {
			t.Fatal(err)
		}
		_ = soon(t, "a try", func() error { refused(t, l, "job"); return nil })
		_ = raw.Rollback()
		release(t, k)
	})
}

// The renewal finds its rows by the primary key, whatever the size of the table,
// and locks no others.
func TestRenewalUsesPrimaryKey(t *testing.T) {
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := table(t, db)
		for _, size := range []int{0, 3000} {
			if size > 0 {
				rows := make([]string, size)
				for i := range rows {
					rows[i] = fmt.Sprintf("('filler %d')", i)
				}
				db.MustExec(t, "INSERT INTO "+db.Table("locks")+" (name) VALUES "+strings.Join(rows, ", "))
			}
			var mine []*lock.Lock
			for i := range 40 {
				mine = append(mine, must(t, l, fmt.Sprint("mine ", i), lock.NoRenew()))
			}
			must(t, l, "not mine", lock.NoRenew())
			query, args := l.RenewStatement(mine...)
			rows, err := db.SQL.Query("EXPLAIN "+query, args...)
			if err != nil {
				t.Fatal(err)
			}
			columns, _ := rows.Columns()
			for rows.Next() {
				values := make([]sql.NullString, len(columns))
				ptrs := make([]any, len(columns))
				line := map[string]string{}
				for i := range values {
					ptrs[i] = &values[i]
				}
				if err := rows.Scan(ptrs...); err != nil {
					t.Fatal(err)
				}
				for i, c := range columns {
					line[strings.ToLower(c)] = values[i].String
				}
				if (line["table"] == "l" || line["table"] == "u") && (line["key"] != "PRIMARY" || line["type"] != "eq_ref" && line["type"] != "ref" && line["type"] != "const") {
					t.Errorf("%d rows: %v", size, line)
				}
			}
			if err := errors.Join(rows.Err(), rows.Close()); err != nil {
				t.Fatal(err)
			}
			raw, _ := openTx(t, db, 0)
			res, err := raw.Exec(query, args...)
			if err != nil {
				t.Fatal(err)
			}
			if n, _ := res.RowsAffected(); n != 40 {
				t.Errorf("%d rows were renewed", n)
			}
			if blocked(t, db, "UPDATE "+db.Table("locks")+" SET holder = NULL WHERE name = 'not mine' OR name = 'filler 7'") {
				t.Error("a row of others is locked")
			}
			_ = raw.Rollback()
			for _, k := range mine {
				release(t, k)
			}
			db.MustExec(t, "DELETE FROM "+db.Table("locks"))
		}
	})
}

// In a session with synchronous_commit=off, what has to survive a crash is durable
// all the same, and a release never is.
func TestDurability(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		table(t, db)
		db.MustExec(t, "CREATE TABLE said (n serial, setting text)",
			"CREATE FUNCTION say() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO said (setting) VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$",
			// At the end of the transaction: that is when it counts.
			"CREATE CONSTRAINT TRIGGER say AFTER UPDATE ON "+db.Table("locks")+" DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION say()")
		last := func() (n int, s string) {
			t.Helper()
			if err := db.QueryRow(t.Context(), "SELECT count(*), coalesce((SELECT setting FROM said ORDER BY n DESC LIMIT 1), '') FROM said").Scan(&n, &s); err != nil {
				t.Fatal(err)
			}
			return n, s
		}
		for setting, durable := range map[string]string{"on": "on", "off": "on", "local": "local", "remote_apply": "remote_apply"} {
			session := withSetting(t, db, "synchronous_commit", setting)
			l := locker(t, session.DB, lock.TTL(900*time.Millisecond))
			check := func(what, want string) {
				t.Helper()
				if _, s := last(); s != want {
					t.Errorf("%s in a session with %s: %s", what, setting, s)
				}
			}
			k := must(t, l, "job")
			check("acquire", durable)
			before, _ := last()
			eventually(t, "it was renewed", func() bool { n, _ := last(); return n > before })
			check("renewal", durable)
			release(t, k)
			check("release", "off")
			k = must(t, l, "job", lock.NoRenew())
			if err := k.Extend(t.Context(), time.Minute); err != nil {
				t.Fatal(err)
			}
			check("Extend", durable)
			release(t, k)
			var s string // nothing of it stays in the session
			if err := session.QueryRow(t.Context(), "SELECT current_setting('synchronous_commit')").Scan(&s); err != nil || s != setting {
				t.Errorf("the session has %s, %v", s, err)
			}
		}
	})
}
