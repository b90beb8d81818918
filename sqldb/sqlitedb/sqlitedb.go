// Package sqlitedb makes a [sqldb.DB] of a *sql.DB with any SQLite driver:
// modernc.org/sqlite, mattn/go-sqlite3, ncruces/go-sqlite3. It imports none of
// them. It is tested with modernc.org/sqlite, ncruces/go-sqlite3 and, with cgo,
// mattn/go-sqlite3. Use one of them in a process: two SQLite libraries do not see
// each other's locks on a file.
package sqlitedb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/internal/std"
)

// minVersion is SQLite 3.42: before, unixepoch('subsec') is NULL, and no lock
// would ever be granted.
const minVersion = 34200

// New makes a DB of a pool of connections to one SQLite file. It refuses, with
// the reason: SQLite older than 3.42 (wrapping [errors.ErrUnsupported]); a file
// that is read-only, or query_only; a database in memory with a pool of more than
// one connection, each of which would have a database of its own. The pool stays
// the caller's; it is never closed, and no setting of its connections is changed.
//
// Recommended for modernc.org/sqlite:
// file:app.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate.
//
// db.Tx takes a *sql.Tx and what wraps one. Begin it with BEGIN IMMEDIATE
// (_txlock=immediate): a deferred transaction that turns from reading to writing
// fails at once when another has written (SQLITE_BUSY_SNAPSHOT).
func New(ctx context.Context, db *sql.DB, opts ...sqldb.Option) (*sqldb.DB, error) {
	if db == nil {
		return nil, errors.New("sqlitedb: the *sql.DB is nil")
	}
	if err := sqldb.CheckOptions(opts...); err != nil {
		return nil, err
	}
	drv := std.New(db, std.Options{Name: "sqlitedb", Begin: begin, CommitAgain: true, PromptBegin: promptBegin(db)})
	s := sqldb.Server{Kind: sqldb.SQLite, Schema: "main"}
	probe, err := sqldb.New(drv, s)
	if err != nil {
		return nil, err
	}
	// Several processes may open a fresh file at once: turning it to the write-ahead
	// log then answers SQLITE_BUSY to some, at once, whatever busy_timeout says.
	var conn *sqldb.Conn
	err = sqldb.Retry(ctx, sqldb.Policy{Attempts: math.MaxInt, Elapsed: sqldb.Bound}, func(ctx context.Context) (err error) {
		conn, err = probe.Conn(ctx)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("sqlitedb: %w", err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.QueryRow(ctx, "SELECT sqlite_version()").Scan(&s.Version); err != nil {
		return nil, fmt.Errorf("sqlitedb: asking SQLite for its version: %w", err)
	}
	s.Number = parseVersion(s.Version)
	if s.Number < minVersion {
		return nil, fmt.Errorf("sqlitedb: SQLite %s is too old; 3.42 is the oldest that is supported: %w", s.Version, errors.ErrUnsupported)
	}
	if err := checkFile(ctx, conn, drv.MaxConns()); err != nil {
		return nil, err
	}
	if err := checkWritable(ctx, conn); err != nil {
		return nil, err
	}
	return sqldb.New(drv, s, opts...)
}

// begin takes the write lock at once, unless nothing will be written.
func begin(opts sqldb.TxOptions) ([]string, error) {
	if opts.ReadOnly {
		return []string{"BEGIN"}, nil
	}
	return []string{"BEGIN IMMEDIATE"}, nil
}

// promptBegin knows modernc.org/sqlite, whose busy_timeout ends with the ctx of the
// call (the version that go.mod requires does that). mattn/go-sqlite3 sleeps it out.
func promptBegin(db *sql.DB) bool {
	t := reflect.TypeOf(db.Driver())
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().PkgPath() == "modernc.org/sqlite"
}

// checkFile refuses what has no file, unless the pool has one connection.
func checkFile(ctx context.Context, conn *sqldb.Conn, maxConns int) error {
	var seq int64
	var name string
	var file *string
	if err := conn.QueryRow(ctx, "SELECT seq, name, file FROM pragma_database_list WHERE name = 'main'").Scan(&seq, &name, &file); err != nil {
		return fmt.Errorf("sqlitedb: asking SQLite for its file: %w", err)
	}
	if (file == nil || *file == "") && maxConns != 1 {
		return errors.New("sqlitedb: the database is in memory or temporary, and every connection of the pool may have one of its own: use a file, or SetMaxOpenConns(1)")
	}
	return nil
}

// checkWritable makes a table and rolls it back: nothing less tells a file that
// cannot be written from one that can. A file that is busy is written by somebody.
func checkWritable(ctx context.Context, conn *sqldb.Conn) error {
	var queryOnly bool
	if err := conn.QueryRow(ctx, "SELECT query_only FROM pragma_query_only").Scan(&queryOnly); err != nil {
		return fmt.Errorf("sqlitedb: asking SQLite for query_only: %w", err)
	}
	if queryOnly {
		return errors.New("sqlitedb: the connection is read-only (PRAGMA query_only): a lock has to write")
	}
	// Not for as long as busy_timeout: whoever has the lock has shown that the file can
	// be written.
	brief, cancel := context.WithTimeout(ctx, probeBound)
	defer cancel()
	if _, err := conn.Exec(brief, "BEGIN IMMEDIATE"); err != nil {
		// It may have been carried out; mostly it was not, and this says so.
		_, _ = conn.Exec(context.WithoutCancel(ctx), "ROLLBACK")
		if brief.Err() != nil && ctx.Err() == nil {
			return nil
		}
		return writable(err)
	}
	_, err := conn.Exec(ctx, `CREATE TABLE "sqllock write test" (x)`)
	// Detached: a transaction left open would go back into the pool.
	if _, rbErr := conn.Exec(context.WithoutCancel(ctx), "ROLLBACK"); rbErr != nil && err == nil {
		_ = conn.Discard()
		err = rbErr
	}
	return writable(err)
}

// probeBound is how long New waits for the write lock of a busy file.
const probeBound = 100 * time.Millisecond

func writable(err error) error {
	switch {
	case err == nil || sqldb.ClassOf(err) == sqldb.LockTimeout:
		return nil
	case sqldb.ClassOf(err) == sqldb.ReadOnly:
		return fmt.Errorf("sqlitedb: the database is read-only, and a lock has to write: %w", err)
	}
	return fmt.Errorf("sqlitedb: the database cannot be written: %w", err)
}

func parseVersion(v string) int {
	number := 0
	parts := strings.SplitN(v, ".", 4)
	for i := range 3 {
		n := 0
		if i < len(parts) {
			n, _ = strconv.Atoi(parts[i])
		}
		number = number*100 + n
	}
	return number
}
