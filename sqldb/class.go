package sqldb

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"strings"
)

// Class says what an error of a database means, whatever database and driver it
// came from.
type Class uint8

// The classes of errors. What is behind each is the SQLSTATE of PostgreSQL, the
// error number of MySQL and MariaDB, and the result code of SQLite.
const (
	// Unknown is an error that is no database's, or of no class below.
	Unknown Class = iota
	// Deadlock: the server chose this transaction as the victim and rolled it back
	// (40P01; 1213). On Galera and group replication COMMIT itself can answer 1213.
	Deadlock
	// Serialization: what the transaction has read is no longer so (40001; 1020 of
	// MariaDB's innodb_snapshot_isolation; 3101 of group replication;
	// SQLITE_BUSY_SNAPSHOT).
	Serialization
	// LockTimeout: a lock was not had in time (55P03; 1205, 3572; SQLITE_BUSY,
	// SQLITE_LOCKED). MySQL and MariaDB have rolled back the statement only.
	LockTimeout
	// UserDeadlock: a GET_LOCK would have deadlocked (3058); the locks that are held
	// stay. MariaDB answers 1213 there, which is Deadlock.
	UserDeadlock
	// Canceled: the statement was ended from outside, or by a time limit of the
	// server (57014; 1317, 1969, 3024; SQLITE_INTERRUPT).
	Canceled
	// Aborted: an earlier error has aborted the transaction (25P02).
	Aborted
	// ReadOnly: the server, the session or the transaction does not write (25006;
	// 1290, 1792, 1836; SQLITE_READONLY).
	ReadOnly
	// Duplicate: a unique key has the value already (23505; 1062, 1586).
	Duplicate
	// Constraint: a foreign key, a CHECK or a NOT NULL refuses the row.
	Constraint
	// OutOfRange: a number does not fit (22003; 1264, 1690).
	OutOfRange
	// TooLong: a text or a name is too long (22001, 42622; 1406, 1059, 4163, 3057).
	TooLong
	// BadValue: a value is not of the column's type (22P02, 22007, 22008; 1292,
	// 1366).
	BadValue
	// NoTable: the table does not exist (42P01; 1146).
	NoTable
	// NoColumn: the column does not exist (42703; 1054).
	NoColumn
	// NoSchema: the schema or the database does not exist (3F000, 3D000; 1049).
	NoSchema
	// Denied: the user lacks the right (42501; 1044, 1142, 1143, 1227).
	Denied
	// Login: the server does not let this user in (28P01, 28000; 1045, 1698).
	Login
	// Exhausted: the server has run out of something: connections, lock table,
	// memory, disk (53xxx; 1040, 1041, 1203, 1206, 1226; SQLITE_FULL, SQLITE_NOMEM).
	Exhausted
	// Unsafe: the server refuses the statement for its binary log (1665).
	Unsafe
	// ConnLost: the connection broke; what was under way has no verdict (08xxx,
	// 57P01 to 57P05; 1053, 1927, 2006, 2013; an EOF).
	ConnLost
)

// classNames are the texts of the classes, in their order.
var classNames = [...]string{
	"unknown", "deadlock", "serialization", "lock timeout", "user-level lock deadlock", "canceled", "aborted", "read-only",
	"duplicate", "constraint", "out of range", "too long", "bad value", "no such table", "no such column", "no such schema",
	"denied", "login", "exhausted", "unsafe", "connection lost",
}

// String names the class.
func (c Class) String() string {
	if int(c) < len(classNames) {
		return classNames[c]
	}
	return fmt.Sprintf("sqldb.Class(%d)", uint8(c))
}

// ClassOf classifies err, through any wrapping and joining. It knows the errors
// of pgx, lib/pq and go-sql-driver, of every SQLite driver whose errors carry
// SQLite's result code, and of whatever else has a method SQLState() string.
func ClassOf(err error) Class {
	if err == nil {
		return Unknown
	}
	if c := codeOf(err); c.family != noCode {
		return classOfCode(c)
	}
	if errors.Is(err, driver.ErrBadConn) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || invalidConn(err) {
		return ConnLost
	}
	// Not every net.Error: a syscall.Errno, as os.Open has it, is one too, and so is
	// an HTTP client's, which says nothing about a database.
	var op *net.OpError
	var web *url.Error
	if (errors.As(err, &op) || errors.Is(err, net.ErrClosed)) && !errors.As(err, &web) && !isContext(err) {
		return ConnLost
	}
	return Unknown
}

func classOfCode(c code) Class {
	switch c.family {
	case sqlstate:
		return classOfState(c.state)
	case mysqlNumber:
		return classOfNumber(c.number)
	case sqliteCode:
		return classOfSQLite(c.number, c.text)
	}
	return Unknown
}

func classOfState(s string) Class {
	switch s {
	case "40P01":
		return Deadlock
	case "40001":
		return Serialization
	case "55P03":
		return LockTimeout
	case "57014":
		return Canceled
	case "25P02":
		return Aborted
	case "25006":
		return ReadOnly
	case "23505":
		return Duplicate
	case "22003":
		return OutOfRange
	case "22001", "42622":
		return TooLong
	case "22P02", "22007", "22008", "22021", "22P05":
		return BadValue
	case "42P01":
		return NoTable
	case "42703":
		return NoColumn
	case "3F000", "3D000":
		return NoSchema
	case "42501":
		return Denied
	case "28P01", "28000":
		return Login
	case "57P01", "57P02", "57P03", "57P04", "57P05", "40003", "58030":
		return ConnLost // 58030 is an I/O error: in a commit, nobody knows
	}
	switch {
	case strings.HasPrefix(s, "23"):
		return Constraint
	case strings.HasPrefix(s, "53"):
		return Exhausted
	case strings.HasPrefix(s, "08"):
		return ConnLost
	}
	return Unknown
}

func classOfNumber(n int) Class {
	switch n {
	case 1213:
		return Deadlock
	case 1020, 3101: // 3101: group replication's certification, told by COMMIT
		return Serialization
	case 1205, 3572:
		return LockTimeout
	case 3058:
		return UserDeadlock
	case 1317, 1969, 3024:
		return Canceled
	case 1290, 1792, 1836, 3100:
		return ReadOnly
	case 1062, 1586:
		return Duplicate
	case 1048, 1216, 1217, 1451, 1452, 3819, 4025:
		return Constraint
	case 1264, 1690:
		return OutOfRange
	case 1406, 1059, 4163, 3057:
		return TooLong
	case 1292, 1366, 1300:
		return BadValue
	case 1146:
		return NoTable
	case 1054:
		return NoColumn
	case 1049:
		return NoSchema
	case 1044, 1142, 1143, 1227, 1370:
		return Denied
	case 1045, 1698:
		return Login
	case 1040, 1041, 1037, 1038, 1114, 1203, 1206, 1226:
		return Exhausted
	case 1665:
		return Unsafe
	case 1053, 1080, 1152, 1158, 1159, 1160, 1161, 1180, 1927, 2006, 2013:
		return ConnLost
	}
	return Unknown
}

func classOfSQLite(n int, text string) Class {
	if n == 517 { // SQLITE_BUSY_SNAPSHOT
		return Serialization
	}
	switch n {
	case 2067, 1555, 2579: // SQLITE_CONSTRAINT_UNIQUE, _PRIMARYKEY, _ROWID
		return Duplicate
	}
	switch n & 0xff {
	case 5, 6:
		return LockTimeout
	case 9:
		return Canceled
	case 8:
		return ReadOnly
	case 19:
		if strings.Contains(text, "UNIQUE constraint") {
			return Duplicate // a driver that tells the primary code only
		}
		return Constraint
	case 7, 13:
		return Exhausted
	case 10:
		return ConnLost // SQLITE_IOERR: in a commit, nobody knows
	case 1:
		switch {
		case strings.Contains(text, "no such table"):
			return NoTable
		case strings.Contains(text, "no such column"), strings.Contains(text, "has no column named"):
			return NoColumn
		}
	}
	return Unknown
}
