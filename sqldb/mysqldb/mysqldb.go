// Package mysqldb makes a [sqldb.DB] of a pool of connections to MySQL or
// MariaDB, with github.com/go-sql-driver/mysql as the driver.
package mysqldb

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/internal/std"
)

// The oldest versions: MySQL 8.0 has SKIP LOCKED, MariaDB 10.6 too.
const (
	minMySQL   = 80000
	minMariaDB = 100600
)

// New makes a DB of a pool of connections to MySQL 8.0+ or MariaDB 10.6+; it asks
// the server which of them it is. It refuses, with the reason: a server that is
// older, or another product that speaks the protocol (wrapping
// [errors.ErrUnsupported]); a read-only server or session; autocommit=0, under
// which what was written is seen by nobody, and lost. The pool stays the caller's;
// it is never closed, and no session state of its connections is changed.
//
// parseTime, loc, clientFoundRows, interpolateParams, multiStatements, time_zone
// and sql_mode of the DSN do not matter. Statements go to the server with their
// arguments written into the text, in one round trip: integers as digits, text as
// hexadecimal literals, which no sql_mode and no character set can misread. Text that
// is read comes in the connection's character set, as always: a charset=latin1 loses
// what latin1 has no sign for.
//
// A statement whose ctx ends is killed by a second connection of the same pool: with
// none free within [sqldb.Bound], the outcome is unknown to the caller. Leave room in
// SetMaxOpenConns.
//
// db.Tx takes a *sql.Tx and what wraps one.
func New(ctx context.Context, db *sql.DB, opts ...sqldb.Option) (*sqldb.DB, error) {
	if db == nil {
		return nil, errors.New("mysqldb: the *sql.DB is nil")
	}
	if err := sqldb.CheckOptions(opts...); err != nil {
		return nil, err
	}
	if _, ok := db.Driver().(*mysql.MySQLDriver); !ok && strings.Contains(fmt.Sprintf("%T", db.Driver()), "sqlite") {
		return nil, fmt.Errorf("mysqldb: the driver is %T: use sqlitedb.New", db.Driver())
	}
	drv := std.New(db, std.Options{Name: "mysqldb", Inline: inline, Interrupt: interrupter, Begin: begin})
	s, err := inspect(ctx, drv)
	if err != nil {
		return nil, err
	}
	return sqldb.New(drv, s, opts...)
}

// begin gives the statements that go-sql-driver's BeginTx would send.
func begin(opts sqldb.TxOptions) (statements []string, err error) {
	switch opts.Isolation {
	case sql.LevelDefault:
	case sql.LevelReadUncommitted, sql.LevelReadCommitted, sql.LevelRepeatableRead, sql.LevelSerializable:
		statements = append(statements, "SET TRANSACTION ISOLATION LEVEL "+strings.ToUpper(opts.Isolation.String()))
	default:
		return nil, fmt.Errorf("mysqldb: isolation level %s: %w", opts.Isolation, errors.ErrUnsupported)
	}
	if opts.ReadOnly {
		return append(statements, "START TRANSACTION READ ONLY"), nil
	}
	return append(statements, "START TRANSACTION"), nil
}

// inspect asks what every promise here depends on.
func inspect(ctx context.Context, drv sqldb.Driver) (s sqldb.Server, err error) {
	probe, err := sqldb.New(drv, sqldb.Server{Kind: sqldb.MySQL, Schema: "information_schema"})
	if err != nil {
		return s, err
	}
	// Read-only: MariaDB 11 tells OFF or ON where older ones tell 0 or 1.
	// A reader of Aurora says only that its InnoDB is.
	var comment, readOnly, innodbReadOnly string
	var autocommit bool
	var schema *string
	err = probe.QueryRow(ctx, "SELECT VERSION(), @@version_comment, DATABASE(), @@autocommit, @@global.read_only, @@global.innodb_read_only").
		Scan(&s.Version, &comment, &schema, &autocommit, &readOnly, &innodbReadOnly)
	if err != nil {
		return s, fmt.Errorf("mysqldb: asking the server what it is: %w", err)
	}
	if schema != nil {
		s.Schema = *schema
	}
	s.Kind, s.Number = parseVersion(s.Version)
	if err := accept(s, comment, autocommit, readOnly, innodbReadOnly); err != nil {
		return s, err
	}
	sessionReadOnly, err := transactionReadOnly(ctx, probe)
	if err != nil {
		return s, fmt.Errorf("mysqldb: asking the server what it is: %w", err)
	}
	if sessionReadOnly {
		return s, errors.New("mysqldb: transactions are read-only by default here (transaction_read_only): a lock has to write")
	}
	return s, nil
}

// transactionReadOnly reads the session's default; MariaDB renamed it in 11.1.
func transactionReadOnly(ctx context.Context, db *sqldb.DB) (bool, error) {
	rows, err := db.Query(ctx, "SHOW VARIABLES WHERE Variable_name IN ('transaction_read_only', 'tx_read_only')")
	if err != nil {
		return false, err
	}
	defer func() { _ = rows.Close() }()
	on := false
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return false, err
		}
		on = on || value == "ON" || value == "1"
	}
	return on, rows.Err()
}

// accept says why a server is refused.
func accept(s sqldb.Server, comment string, autocommit bool, readOnly, innodbReadOnly string) error {
	for _, other := range []string{"TiDB", "Vitess", "OceanBase", "SingleStore", "MemSQL", "Dolt", "StarRocks"} {
		if strings.Contains(s.Version+" "+comment, other) {
			return fmt.Errorf("mysqldb: the server is neither MySQL nor MariaDB: %s %s: %w", s.Version, comment, errors.ErrUnsupported)
		}
	}
	oldest, name := minMySQL, "MySQL 8.0"
	if s.Kind == sqldb.MariaDB {
		oldest, name = minMariaDB, "MariaDB 10.6"
	}
	switch {
	case s.Number < oldest:
		return fmt.Errorf("mysqldb: the server is too old: %s; %s is the oldest that is supported: %w", s.Version, name, errors.ErrUnsupported)
	case !autocommit:
		return errors.New("mysqldb: autocommit is off in this session: a lock would be seen by nobody, and vanish; take autocommit=0 out of the DSN, or init_connect out of the server")
	case on(readOnly):
		return fmt.Errorf("mysqldb: the server is read-only (read_only is %s): connect to the primary", readOnly)
	case on(innodbReadOnly):
		return fmt.Errorf("mysqldb: the server is read-only (innodb_read_only is %s): connect to the primary, or to the cluster's writer", innodbReadOnly)
	}
	return nil
}

func on(variable string) bool { return variable != "0" && variable != "OFF" }

// parseVersion reads "8.0.36-0ubuntu0", "11.8.9-MariaDB-1" and
// "5.5.5-10.6.12-MariaDB", whose front is there for old replicas.
func parseVersion(v string) (sqldb.Kind, int) {
	kind := sqldb.MySQL
	if strings.Contains(strings.ToLower(v), "mariadb") {
		kind = sqldb.MariaDB
		v = strings.TrimPrefix(v, "5.5.5-")
	}
	number := 0
	parts := strings.SplitN(v, ".", 3)
	for i := range 3 {
		n := 0
		if i < len(parts) {
			p := parts[i]
			end := 0
			for end < len(p) && '0' <= p[end] && p[end] <= '9' {
				end++
			}
			n, _ = strconv.Atoi(p[:end])
		}
		number = number*100 + n
	}
	return kind, number
}
