package migrations_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

var now = time.Now()

type sabotage struct {
	do   []string // ${locks} is the table
	want string
}

// missing is a sabotage after which there is nothing left to be dropped.
const missing = "DROP TABLE ${tickets}"

func sabotages(kind sqldb.Kind) []sabotage {
	shared := []sabotage{
		{[]string{missing}, "sqllock_tickets: it is recorded as made, and missing"},
		{[]string{"ALTER TABLE ${locks} DROP COLUMN waited_since"}, "sqllock_locks.waited_since: the column is missing"},
		{[]string{"DROP TABLE ${tickets}", "CREATE VIEW ${tickets} AS SELECT 1 AS name"}, "sqllock_tickets: it is no table"},
	}
	switch kind {
	case sqldb.Postgres:
		return append(shared, []sabotage{
			{[]string{`ALTER TABLE ${locks} ALTER COLUMN name TYPE text COLLATE "default"`}, `sqllock_locks.name: its collation is "default"`},
			{[]string{"ALTER TABLE ${locks} ALTER COLUMN token TYPE integer"}, "sqllock_locks.token: its type is integer, not bigint"},
			{[]string{"ALTER TABLE ${locks} ALTER COLUMN expires_at TYPE timestamp"}, "sqllock_locks.expires_at: its type is timestamp without time zone"},
			{[]string{"ALTER TABLE ${locks} ALTER COLUMN token DROP NOT NULL"}, "sqllock_locks.token: it may be NULL"},
			{[]string{"ALTER TABLE ${locks} ALTER COLUMN owner SET NOT NULL"}, "sqllock_locks.owner: it is NOT NULL"},
			{[]string{"ALTER TABLE ${locks} ALTER COLUMN token DROP DEFAULT"}, "sqllock_locks.token: it has no default"},
			{[]string{"ALTER TABLE ${locks} DROP CONSTRAINT sqllock_locks_pkey"}, "sqllock_locks: it has no primary key"},
			{[]string{"ALTER TABLE ${locks} DROP CONSTRAINT sqllock_locks_pkey, ADD PRIMARY KEY (slot, name)"}, "sqllock_locks: its primary key is (slot, name), not (name, slot)"},
			{[]string{"ALTER TABLE ${locks} SET UNLOGGED"}, "sqllock_locks: it is UNLOGGED"},
			{[]string{"DROP INDEX ${reservations_open}"}, "sqllock_reservations: the index on (expires_at) is missing"},
			{[]string{"ALTER TABLE ${locks} ADD COLUMN mine integer NOT NULL"}, "sqllock_locks.mine: a further column"},
		}...)
	case sqldb.SQLite:
		remake := func(columns, key string) []string {
			return []string{"DROP TABLE ${tickets}", "CREATE TABLE ${tickets} (" + columns + ", created_at INTEGER NOT NULL, expires_at INTEGER NOT NULL, holder TEXT" + key}
		}
		return append(shared, []sabotage{
			{remake("name TEXT NOT NULL COLLATE NOCASE, ticket INTEGER NOT NULL, owner TEXT NOT NULL", ", PRIMARY KEY (name, ticket)) STRICT, WITHOUT ROWID"), `sqllock_tickets.name: its collation is "NOCASE"`},
			{remake("name TEXT NOT NULL, ticket TEXT NOT NULL, owner TEXT NOT NULL", ", PRIMARY KEY (name, ticket)) STRICT, WITHOUT ROWID"), "sqllock_tickets.ticket: its type is TEXT, not INTEGER"},
			{remake("name TEXT NOT NULL, ticket INTEGER NOT NULL, owner TEXT", ", PRIMARY KEY (name, ticket)) STRICT, WITHOUT ROWID"), "sqllock_tickets.owner: it may be NULL"},
			{remake("name TEXT NOT NULL, ticket INTEGER NOT NULL, owner TEXT NOT NULL", ") STRICT"), "sqllock_tickets: it has no primary key"},
			{remake("name TEXT NOT NULL, ticket INTEGER NOT NULL, owner TEXT NOT NULL", ", PRIMARY KEY (name, ticket)) WITHOUT ROWID"), "sqllock_tickets: it is not STRICT"},
			{[]string{"DROP INDEX ${reservations_open}"}, "sqllock_reservations: the index on (expires_at) is missing"},
		}...)
	}
	return append(shared, []sabotage{
		{[]string{"ALTER TABLE ${locks} ENGINE = MyISAM"}, "sqllock_locks: its engine is MyISAM"},
		{[]string{"ALTER TABLE ${locks} MODIFY name VARCHAR(255) COLLATE utf8mb4_general_ci NOT NULL"}, "sqllock_locks.name: its type is varchar(255), not varbinary(255)"},
		{[]string{"ALTER TABLE ${locks} MODIFY name VARBINARY(100) NOT NULL"}, "sqllock_locks.name: its type is varbinary(100)"},
		{[]string{"ALTER TABLE ${locks} MODIFY holder VARCHAR(1000) COLLATE utf8mb4_general_ci"}, `sqllock_locks.holder: its collation is "utf8mb4_general_ci"`},
		{[]string{"ALTER TABLE ${locks} MODIFY token BIGINT UNSIGNED NOT NULL DEFAULT 0"}, "sqllock_locks.token: its type is bigint"},
		{[]string{"ALTER TABLE ${locks} MODIFY expires_at DATETIME NOT NULL DEFAULT '1970-01-01'"}, "sqllock_locks.expires_at: its type is datetime, not datetime(6)"},
		{[]string{"ALTER TABLE ${locks} MODIFY token BIGINT NULL DEFAULT 0"}, "sqllock_locks.token: it may be NULL"},
		{[]string{"ALTER TABLE ${locks} MODIFY owner VARBINARY(64) NOT NULL"}, "sqllock_locks.owner: it is NOT NULL"},
		{[]string{"ALTER TABLE ${locks} ALTER COLUMN token DROP DEFAULT"}, "sqllock_locks.token: it has no default"},
		{[]string{"ALTER TABLE ${locks} DROP PRIMARY KEY"}, "sqllock_locks: it has no primary key"},
		{[]string{"ALTER TABLE ${locks} DROP PRIMARY KEY, ADD PRIMARY KEY (slot, name)"}, "sqllock_locks: its primary key is (slot, name)"},
		{[]string{"ALTER TABLE ${reservations} DROP KEY reservations_open"}, "sqllock_reservations: the index on (state, expires_at) is missing"},
		{[]string{"ALTER TABLE ${locks} ADD COLUMN mine INT NOT NULL"}, "sqllock_locks.mine: a further column"},
	}...)
}

// TestCheckFinds: each kind of sabotage, and nothing else.
func TestCheckFinds(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		place := strings.NewReplacer(
			"${locks}", db.Table("locks"), "${tickets}", db.Table("tickets"),
			"${reservations}", db.Table("reservations"), "${reservations_open}", db.Table("reservations_open"))
		up(t, db.DB)
		for _, s := range sabotages(db.Kind()) {
			for _, q := range s.do {
				db.MustExec(t, place.Replace(q))
			}
			problems, err := migrations.Check(t.Context(), db.DB)
			if err != nil {
				t.Fatal(err)
			}
			found := false
			for _, p := range problems {
				found = found || strings.HasPrefix(p.String(), s.want)
				if p.Table == "" || p.What == "" || p.Fix == "" {
					t.Errorf("%+v", p)
				}
			}
			isView := strings.Contains(strings.Join(s.do, ""), "VIEW")
			if !found || len(problems) != 1 && !isView {
				t.Errorf("%s: want %q, got %v", s.do, s.want, problems)
			}
			// What was changed is not dropped.
			if s.do[0] != missing || len(s.do) > 1 {
				if err := migrations.Down(t.Context(), db.DB, migrations.To(0)); !errors.Is(err, migrations.ErrForeign) {
					t.Errorf("%s: Down: %v", s.do, err)
				}
			}
			if isView {
				db.MustExec(t, "DROP VIEW "+db.Table("tickets"))
			}
			for _, table := range []string{"locks", "tickets", "reservations"} {
				if strings.Contains(strings.Join(s.do, ""), "${"+table) {
					db.MustExec(t, "DROP TABLE IF EXISTS "+db.Table(table))
					db.MustExec(t, statements(schema.PlaceOf(db.DB).MakeTable(table)+"\n")...)
				}
			}
			wantClean(t, db.DB)
		}
	})
}

// TestCheckMore: what does no harm is no problem; what was not recorded is one.
func TestCheckMore(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		problems, err := migrations.Check(t.Context(), db.DB)
		if err != nil || len(problems) != 1 || problems[0].String() != `the tables of sqllock are not there: run "sqllock-migrate up" or migrations.Up` {
			t.Errorf("before Up: %v, %v", problems, err)
		}
		up(t, db.DB)
		db.MustExec(t, "ALTER TABLE "+db.Table("locks")+" ADD COLUMN mine INTEGER")
		if db.Kind().InnoDB() {
			db.MustExec(t, "ALTER TABLE "+db.Table("locks")+" MODIFY name VARBINARY(300) NOT NULL, ADD KEY mine (mine)")
		}
		wantClean(t, db.DB)
		db.MustExec(t, "DELETE FROM "+db.Table("schema_version")+" WHERE version > 5")
		problems, err = migrations.Check(t.Context(), db.DB)
		if err != nil || len(problems) != 1 || problems[0].Table != "" || !strings.HasPrefix(problems[0].String(), "the tables of sqllock have version 5, and this program needs version ") {
			t.Errorf("after the record was cut: %v, %v", problems, err)
		}
		up(t, db.DB)
		wantClean(t, db.DB)
	})
}
