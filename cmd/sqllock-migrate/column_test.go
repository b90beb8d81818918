package main

import (
	"strings"
	"testing"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

func TestVersionColumnPrints(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{[]string{"t_bonus", "--database", "postgres"}, `ALTER TABLE "t_bonus" ADD COLUMN "version" BIGINT NOT NULL DEFAULT 0;`},
		{[]string{"shop.t_bonus", "--dsn", "mysql://u:pw@no-such-host.invalid/shop"}, "ALTER TABLE `shop`.`t_bonus` ADD COLUMN `version` BIGINT NOT NULL DEFAULT 0;"},
		{[]string{"t", "--database", "sqlite", "--column", "rev"}, `ALTER TABLE "t" ADD COLUMN "rev" BIGINT NOT NULL DEFAULT 0;`},
	} {
		args := append([]string{"version-column"}, tt.args...)
		if stdout, stderr := want(t, cli.Done, args...); stdout != tt.want+"\n" || stderr != "" {
			t.Errorf("%v: %s%s", args, stdout, stderr)
		}
		r := wantJSON[columnResult](t, cli.Done, args...)
		if r.SQL+";" != tt.want || r.Applied || r.Existed || r.Table != tt.args[0] {
			t.Errorf("%v: %+v", args, r)
		}
	}
}

func TestVersionColumnApplies(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		use(t, db)
		db.MustExec(t,
			"CREATE TABLE t_bonus (id INT PRIMARY KEY, left_count INT NOT NULL)",
			"INSERT INTO t_bonus VALUES (1, 100)",
			"CREATE TABLE other (id INT PRIMARY KEY, version INT)",
			"CREATE VIEW looking AS SELECT id FROM other")
		apply := func(code int, args ...string) (stdout, stderr string) {
			t.Helper()
			return want(t, code, append([]string{"version-column", "--apply"}, args...)...)
		}

		stdout, _ := apply(cli.Done, "t_bonus")
		if !strings.HasPrefix(stdout, "ALTER TABLE ") {
			t.Errorf("stdout %s", stdout)
		}
		db.MustExec(t, "UPDATE t_bonus SET version = version + 1 WHERE version = 0")
		var version, count int64
		if err := db.QueryRow(t.Context(), "SELECT version, left_count FROM t_bonus").Scan(&version, &count); err != nil || version != 1 || count != 100 {
			t.Errorf("version %d of a row with %d: %v", version, count, err)
		}
		// Again, with and without a schema, and with another name.
		for _, table := range []string{"t_bonus", db.Schema() + ".t_bonus"} {
			if stdout, stderr := apply(cli.Done, table); stdout != "" || !strings.Contains(stderr, "is there already") {
				t.Errorf("%s again: %s%s", table, stdout, stderr)
			}
		}
		r := wantJSON[columnResult](t, cli.Done, "version-column", "--apply", "t_bonus")
		if r.Applied || !r.Existed {
			t.Errorf("again: %+v", r)
		}
		r = wantJSON[columnResult](t, cli.Done, "version-column", "--apply", db.Schema()+".t_bonus", "--column", "rev")
		if !r.Applied || r.Existed || r.Column != "rev" {
			t.Errorf("another column: %+v", r)
		}

		for args, says := range map[string]string{
			"nowhere":         "there is no table nowhere",
			"T_Nowhere":       "there is no table T_Nowhere",
			"elsewhere.t":     "", // MySQL may deny it, SQLite has no schemas
			"looking":         "is no table",
			"other":           "has a column version already",
			"sqllock_locks_x": "there is no table",
		} {
			code := cli.Failed
			if db.Kind() == sqldb.SQLite && args == "elsewhere.t" {
				code = cli.Usage
			}
			if stdout, stderr := apply(code, args); stdout != "" || !strings.Contains(stderr, says) {
				t.Errorf("%s: %s%s", args, stdout, stderr)
			}
		}
		if _, stderr := apply(cli.Failed, "T_Nowhere"); db.Kind() == sqldb.Postgres && !strings.Contains(stderr, "to t_nowhere") {
			t.Error(stderr)
		}
	})
}

func TestVersionColumnLockTimeout(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel() // it waits
		db.MustExec(t, "CREATE TABLE t_bonus (id INT PRIMARY KEY)")
		tx, err := db.SQL.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if _, err := tx.ExecContext(t.Context(), "SELECT * FROM t_bonus"); err != nil {
			t.Fatal(err)
		}
		_, stderr := want(t, cli.LockTimeout, "version-column", "t_bonus", "--apply", "--lock-timeout", "2s", "--dsn", plain(db))
		if !strings.Contains(stderr, "nothing was changed") {
			t.Error(stderr)
		}
		// In a process of its own it waits, and has the table when it comes free.
		m := &migrating{Cmd: child(t, []string{envDSN + "=" + plain(db)}, "version-column", "t_bonus", "--apply", "--lock-timeout", "1m")}
		m.watch(t)
		m.sees(t, "is in use: trying again for up to 1m0s")
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if err := m.Wait(); err != nil {
			t.Error(err)
		}
		db.MustExec(t, "SELECT version FROM t_bonus")
	})
}
