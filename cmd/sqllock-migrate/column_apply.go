package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/sqldb"
)

// found is what a database says about a column.
type found struct {
	isTable bool   // and no view or the like
	column  bool   // it is there
	typ     string // as the server writes it
	notNull bool
}

// apply adds the column. It reports false if one that serves is there already.
// One try queues for the table for [ddlTimeout] at most, and everybody else behind
// it; after a pause it tries again, until lockTimeout has passed.
// waiting is called before the first pause. A statement that runs is ended by hard
// only, everything else by ctx.
func (c versionColumn) apply(ctx, hard context.Context, db *sqldb.DB, lockTimeout time.Duration, waiting func()) (added bool, err error) {
	begun := time.Now()
	for try := 1; ; try++ {
		if exists, err := c.look(ctx, db); exists || err != nil {
			return false, err
		}
		err := c.alter(hard, db, min(ddlTimeout, lockTimeout-time.Since(begun)))
		if err == nil {
			return true, nil
		}
		if sqldb.ClassOf(err) != sqldb.LockTimeout {
			// Somebody may have added it meanwhile.
			if exists, lookErr := c.look(ctx, db); lookErr == nil && exists {
				return false, nil
			}
			return false, fmt.Errorf("adding column %s to %s: %w", c.column, c.table, err)
		}
		left := lockTimeout - time.Since(begun)
		if left < 10*time.Millisecond { // not worth another try
			return false, cli.Exit(cli.LockTimeout, fmt.Errorf("table %s was in use for all of %s, and nothing was changed: end the transactions that use it, or give a longer --lock-timeout: %w", c.table, lockTimeout, err))
		}
		if try == 1 {
			waiting()
		}
		select {
		case <-time.After(min(ddlTimeout/2, left/2)):
		case <-ctx.Done():
			return false, context.Cause(ctx)
		}
	}
}

// look reports whether the column is there. A missing table and a column that
// does not serve are errors.
func (c versionColumn) look(ctx context.Context, db *sqldb.DB) (bool, error) {
	f, err := c.find(ctx, db)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		hint := "name its schema, as in SCHEMA.TABLE, if it is elsewhere"
		if db.Kind() == sqldb.Postgres && strings.ToLower(c.table) != c.table {
			hint += fmt.Sprintf("; PostgreSQL folds a name that was created without quotes, to %s", strings.ToLower(c.table))
		}
		return false, fmt.Errorf("there is no table %s: %s", c.table, hint)
	case err != nil:
		return false, fmt.Errorf("looking at table %s: %w", c.table, err)
	case !f.isTable:
		return false, fmt.Errorf("%s is no table: name the table behind it", c.table)
	case !f.column:
		return false, nil
	}
	typ := strings.ToLower(f.typ)
	serves := strings.HasPrefix(typ, "bigint") && !strings.Contains(typ, "unsigned")
	if db.Kind() == sqldb.SQLite {
		serves = strings.Contains(typ, "int")
	}
	if !serves || !f.notNull {
		null := "NOT NULL"
		if !f.notNull {
			null = "NULL"
		}
		return false, fmt.Errorf("table %s has a column %s already, %s %s, and a version is BIGINT NOT NULL: change it, or take another name with --column", c.table, c.column, f.typ, null)
	}
	return true, nil
}

func (c versionColumn) find(ctx context.Context, db *sqldb.DB) (f found, err error) {
	schema, table := c.split()
	switch db.Kind() {
	case sqldb.Postgres:
		quoted, _ := db.Kind().QuoteTable(c.table)
		err = db.QueryRow(ctx, `SELECT c.relkind IN ('r', 'p'), a.attname IS NOT NULL,
	coalesce(format_type(a.atttypid, a.atttypmod), ''), coalesce(a.attnotnull, false)
FROM pg_class c LEFT JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = $2::text AND NOT a.attisdropped
WHERE c.oid = to_regclass($1::text)`, quoted, c.column).Scan(&f.isTable, &f.column, &f.typ, &f.notNull)
	case sqldb.SQLite:
		err = db.QueryRow(ctx, `SELECT s.type = 'table', c.name IS NOT NULL, coalesce(c.type, ''), coalesce(c."notnull", 0)
FROM main.sqlite_schema s LEFT JOIN pragma_table_info(s.name, 'main') c ON lower(c.name) = lower(?2)
WHERE lower(s.name) = lower(?1) AND s.type IN ('table', 'view')`, table, c.column).Scan(&f.isTable, &f.column, &f.typ, &f.notNull)
	default:
		// No expression around DATABASE(), for the sake of collations.
		in, args := "database()", []any{c.column, table}
		if schema != "" {
			in, args = "?", []any{c.column, table, schema}
		}
		err = db.QueryRow(ctx, `SELECT t.table_type = 'BASE TABLE', c.column_name IS NOT NULL, coalesce(c.column_type, ''), coalesce(c.is_nullable, '') = 'NO'
FROM information_schema.tables t LEFT JOIN information_schema.columns c
	ON c.table_schema = t.table_schema AND c.table_name = t.table_name AND c.column_name = ?
WHERE t.table_name = ? AND t.table_schema = `+in, args...).Scan(&f.isTable, &f.column, &f.typ, &f.notNull)
	}
	return f, err
}

// alter runs the statement with a bound on how long it waits for the table.
func (c versionColumn) alter(ctx context.Context, db *sqldb.DB, lockTimeout time.Duration) error {
	if db.Kind() == sqldb.Postgres {
		return db.InTx(ctx, sqldb.TxOptions{}, func(ctx context.Context, tx *sqldb.Tx) error {
			ms := fmt.Sprint(max(1, lockTimeout.Milliseconds()))
			if _, err := tx.Exec(ctx, "SELECT set_config('lock_timeout', $1, true)", ms); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, c.sql(db.Kind()))
			return err
		})
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	if db.Kind() == sqldb.SQLite {
		defer func() { _ = conn.Close() }()
		var before int64
		if err := conn.QueryRow(ctx, "PRAGMA busy_timeout").Scan(&before); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, fmt.Sprintf("PRAGMA busy_timeout = %d", max(1, lockTimeout.Milliseconds()))); err != nil {
			return err
		}
		// The pool's next user has its own patience.
		defer func() {
			_, _ = conn.Exec(context.WithoutCancel(ctx), fmt.Sprintf("PRAGMA busy_timeout = %d", before))
		}()
	} else {
		// The session is not given back with what is set here.
		defer func() { _ = conn.Discard() }()
		seconds := int64(max(1, (lockTimeout+time.Second-1)/time.Second)) // they count in whole ones
		if _, err := conn.Exec(ctx, fmt.Sprintf("SET SESSION lock_wait_timeout = %d", seconds)); err != nil {
			return err
		}
	}
	_, err = conn.Exec(ctx, c.sql(db.Kind()))
	return err
}
