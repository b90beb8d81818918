package migrations_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// TestNamesAreBytes: what some collation takes for equal are different names.
func TestNamesAreBytes(t *testing.T) {
	names := []string{"job", "JOB", "jób", "jo\u0301b", "job ", " job", "job\t", "straße", "strasse", "ß", "ss", "ⅳ", "iv", "\U0001F512", "\U0001F513", strings.Repeat("é", 127)}
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		up(t, db.DB)
		insert, read := "INSERT INTO %s (name) VALUES (?)", "SELECT count(*) FROM %s WHERE name = ?"
		if db.Kind() == sqldb.Postgres {
			insert, read = "INSERT INTO %s (name) VALUES ($1)", "SELECT count(*) FROM %s WHERE name = $1"
		}
		for _, n := range names {
			if _, err := db.Exec(t.Context(), fmt.Sprintf(insert, db.Table("locks")), n); err != nil {
				t.Fatalf("%q: %v", n, err)
			}
		}
		for _, n := range names {
			var found int
			if err := db.QueryRow(t.Context(), fmt.Sprintf(read, db.Table("locks")), n).Scan(&found); err != nil || found != 1 {
				t.Errorf("%q: found %d, %v", n, found, err)
			}
		}
		if _, err := db.Exec(t.Context(), fmt.Sprintf(insert, db.Table("locks")), "job"); sqldb.ClassOf(err) != sqldb.Duplicate {
			t.Errorf("the same name again: %v", err)
		}
		// A new row is free: its times are the epoch, in UTC.
		query := "SELECT expires_at, hold_until FROM %s WHERE name = 'job'"
		row := db.QueryRow(t.Context(), fmt.Sprintf(query, db.Table("locks")))
		expires, hold := now, now
		if err := row.Scan(&expires, &hold); err != nil || expires.Unix() != 0 || hold.UnixNano() != 0 {
			t.Errorf("expires %v, hold %v, %v", expires, hold, err)
		}
	})
}

// TestComments: a DBA finds out what everything is for.
func TestComments(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		up(t, db.DB)
		for _, table := range schema.Tables(db.Kind()) {
			name := db.TablePrefix() + table.Name
			check := func(column, query string, args ...any) {
				t.Helper()
				var comment *string
				if err := db.QueryRow(t.Context(), query, args...).Scan(&comment); err != nil || comment == nil || *comment == "" {
					t.Errorf("%s.%s has no comment: %v", name, column, err)
				}
			}
			switch {
			case db.Kind() == sqldb.Postgres:
				check("", "SELECT obj_description($1::regclass, 'pg_class')", db.Table(table.Name))
			case db.Kind() == sqldb.SQLite:
				check("", "SELECT sql FROM sqlite_schema WHERE name = ? AND sql LIKE '%-- sqllock: %'", name)
			default:
				check("", "SELECT table_comment FROM information_schema.tables WHERE table_schema = ? AND table_name = ?", db.Schema(), name)
			}
			for _, c := range table.Columns {
				switch {
				case db.Kind() == sqldb.Postgres:
					check(c.Name, "SELECT col_description($1::regclass, attnum) FROM pg_attribute WHERE attrelid = $1::regclass AND attname = $2", db.Table(table.Name), c.Name)
				case db.Kind() == sqldb.SQLite:
					check(c.Name, "SELECT sql FROM sqlite_schema WHERE name = ? AND sql GLOB ?", name, "* "+c.Name+" *, -- ?*")
				default:
					check(c.Name, "SELECT column_comment FROM information_schema.columns WHERE table_schema = ? AND table_name = ? AND column_name = ?", db.Schema(), name, c.Name)
				}
			}
		}
	})
}

// TestRenewalIsHOT: on PostgreSQL an update of a lock touches no index.
func TestRenewalIsHOT(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		up(t, db.DB)
		db.MustExec(t, "INSERT INTO "+db.Table("locks")+" (name, owner, holder) SELECT 'lock ' || i, md5(i::text), repeat('x', 100) FROM generate_series(1, 500) i")
		tx, err := db.SQL.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(t.Context(), "UPDATE "+db.Table("locks")+" SET expires_at = clock_timestamp(), token = token + 1"); err != nil {
			t.Fatal(err)
		}
		var updates, hot int
		err = tx.QueryRowContext(t.Context(), "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_xact_user_tables WHERE relid = $1::regclass", db.Table("locks")).Scan(&updates, &hot)
		if err != nil || updates != 500 || hot < 495 {
			t.Errorf("%d updates, %d of them HOT, %v", updates, hot, err)
		}
	})
}

// TestSQL applies the printed text by hand.
func TestSQL(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		for _, opts := range [][]migrations.Option{
			{migrations.Schema(db.Schema())},
			{}, // unqualified
		} {
			text, err := migrations.SQL(db.Kind(), opts...)
			if err != nil {
				t.Fatal(err)
			}
			for range 2 { // all of it can be repeated
				db.MustExec(t, statements(text)...)
			}
			wantClean(t, db.DB)
			wantVersion(t, db.DB, latest)
			up(t, db.DB)
			down(t, db.DB, migrations.To(0))
		}
		part, err := migrations.SQL(db.Kind(), migrations.To(2), migrations.TablePrefix("part_"))
		if err != nil {
			t.Fatal(err)
		}
		db.MustExec(t, statements(part)...)
		h := db.Another(t, sqldb.TablePrefix("part_"))
		wantVersion(t, h.DB, 2)
		up(t, h.DB)
		wantClean(t, h.DB)
	})
}

func TestSQLRefused(t *testing.T) {
	for _, opts := range [][]migrations.Option{
		{migrations.Schema("a b")},
		{migrations.TablePrefix(`x"; DROP`)},
		{migrations.To(0)},
		{migrations.LockTimeout(1)},
	} {
		if text, err := migrations.SQL(sqldb.Postgres, opts...); err == nil || text != "" {
			t.Errorf("taken: %v", err)
		}
	}
	if _, err := migrations.SQL(sqldb.SQLite, migrations.Schema("other")); err == nil {
		t.Error("SQLite took a schema")
	}
	if _, err := migrations.SQL(sqldb.Kind(9)); err == nil {
		t.Error("an unknown kind was taken")
	}
}
