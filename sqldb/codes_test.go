package sqldb_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"net"
	"reflect"
	"unsafe"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgconn"
	"modernc.org/sqlite"

	"github.com/sqlnative/locks/sqldb"
)

// coded is an error of a server, with what it has to mean.
type coded struct {
	name  string
	err   error
	class sqldb.Class
	retry bool
	// uncertain: as the answer to a statement in autocommit, or to COMMIT, it leaves
	// open if anything was applied.
	uncertain bool
}

// states are PostgreSQL's, by class.
var states = map[sqldb.Class][]string{
	sqldb.Deadlock:      {"40P01"},
	sqldb.Serialization: {"40001"},
	sqldb.LockTimeout:   {"55P03"},
	sqldb.Canceled:      {"57014"},
	sqldb.Aborted:       {"25P02"},
	sqldb.ReadOnly:      {"25006"},
	sqldb.Duplicate:     {"23505"},
	sqldb.Constraint:    {"23502", "23503", "23514", "23P01"},
	sqldb.OutOfRange:    {"22003"},
	sqldb.TooLong:       {"22001", "42622"},
	sqldb.BadValue:      {"22P02", "22007", "22008", "22021"},
	sqldb.NoTable:       {"42P01"},
	sqldb.NoColumn:      {"42703"},
	sqldb.NoSchema:      {"3F000", "3D000"},
	sqldb.Denied:        {"42501"},
	sqldb.Login:         {"28P01", "28000"},
	sqldb.Exhausted:     {"53000", "53100", "53200", "53300"},
	sqldb.ConnLost:      {"08000", "08003", "08006", "08007", "57P01", "57P02", "57P05", "40003", "58030"},
	sqldb.Unknown:       {"42601", "XX000", "0A000", "P0001", "58P01"},
}

// numbers are those of MySQL and MariaDB, by class.
var numbers = map[sqldb.Class][]uint16{
	sqldb.Deadlock:      {1213},
	sqldb.Serialization: {1020, 3101},
	sqldb.LockTimeout:   {1205, 3572},
	sqldb.UserDeadlock:  {3058},
	sqldb.Canceled:      {1317, 1969, 3024},
	sqldb.ReadOnly:      {1290, 1792, 1836},
	sqldb.Duplicate:     {1062, 1586},
	sqldb.Constraint:    {1048, 1451, 1452, 3819, 4025},
	sqldb.OutOfRange:    {1264, 1690},
	sqldb.TooLong:       {1406, 1059, 4163, 3057},
	sqldb.BadValue:      {1292, 1366},
	sqldb.NoTable:       {1146},
	sqldb.NoColumn:      {1054},
	sqldb.NoSchema:      {1049},
	sqldb.Denied:        {1044, 1142, 1143, 1227},
	sqldb.Login:         {1045, 1698},
	sqldb.Exhausted:     {1040, 1041, 1203, 1206, 1226},
	sqldb.Unsafe:        {1665},
	sqldb.ConnLost:      {1053, 1180, 1927, 2006, 2013},
	sqldb.Unknown:       {1064, 1305, 9999},
}

// results are SQLite's result codes, primary and extended, by class.
var results = map[sqldb.Class][]int{
	sqldb.Serialization: {517},
	sqldb.LockTimeout:   {5, 261, 773, 6, 262},
	sqldb.Canceled:      {9},
	sqldb.ReadOnly:      {8, 264, 520, 776, 1032},
	sqldb.Duplicate:     {2067, 1555, 2579},
	sqldb.Constraint:    {19, 275, 787, 1299},
	sqldb.Exhausted:     {7, 13},
	sqldb.ConnLost:      {10, 266, 778, 1034},
	sqldb.Unknown:       {1, 11, 14, 21, 26},
}

func coding(name string, class sqldb.Class, err error) coded {
	return coded{
		name: name, err: err, class: class,
		retry:     class == sqldb.Deadlock || class == sqldb.Serialization || class == sqldb.LockTimeout,
		uncertain: class == sqldb.ConnLost,
	}
}

// serverErrors are the errors that a server of one kind answers.
func serverErrors(kind sqldb.Kind) (list []coded) {
	switch kind {
	case sqldb.Postgres:
		for class, codes := range states {
			for _, c := range codes {
				list = append(list, coding(c, class, &pgconn.PgError{Severity: "ERROR", Code: c, Message: "of the test"}))
			}
		}
	case sqldb.SQLite:
		for class, codes := range results {
			for _, c := range codes {
				list = append(list, coding(fmt.Sprint(c), class, sqliteError(c, "of the test")))
			}
		}
	default:
		for class, codes := range numbers {
			for _, c := range codes {
				list = append(list, coding(fmt.Sprint(c), class, &mysql.MySQLError{Number: c, Message: "of the test"}))
			}
		}
	}
	return list
}

// sqliteError makes an error of modernc's driver, which has no constructor.
func sqliteError(code int, msg string) error {
	e := &sqlite.Error{}
	v := reflect.ValueOf(e).Elem()
	set := func(name string, x any) {
		f := v.FieldByName(name)
		reflect.NewAt(f.Type(), unsafe.Pointer(f.UnsafeAddr())).Elem().Set(reflect.ValueOf(x))
	}
	set("code", code)
	set("msg", msg)
	return e
}

// tellsSent is an error of pgconn that says if anything was sent.
type tellsSent struct {
	error
	safe bool
}

func (s tellsSent) SafeToRetry() bool { return s.safe }
func (s tellsSent) Unwrap() error     { return s.error }

// driverErrors are what drivers answer where no server has: lost are those after
// which the statement may have been applied.
func driverErrors() (neverSent, lost []coded) {
	dial := &net.OpError{Op: "dial", Net: "tcp", Err: errors.New("refused")}
	neverSent = []coded{
		coding("dial", sqldb.ConnLost, dial),
		coding("dns", sqldb.ConnLost, &net.OpError{Op: "dial", Err: &net.DNSError{Err: "no such host"}}),
		coding("bad conn", sqldb.ConnLost, driver.ErrBadConn),
		coding("safe to retry", sqldb.Unknown, tellsSent{errors.New("conn busy"), true}),
		coding("57P03", sqldb.ConnLost, &pgconn.PgError{Severity: "FATAL", Code: "57P03"}),
		coding("conn closed", sqldb.ConnLost, tellsSent{errors.New("conn closed"), true}),
		coding("tx done", sqldb.Unknown, sql.ErrTxDone),
		coding("conn done", sqldb.Unknown, sql.ErrConnDone),
	}
	for i := range neverSent {
		neverSent[i].uncertain = false
	}
	lost = []coded{
		coding("invalid conn", sqldb.ConnLost, mysql.ErrInvalidConn),
		coding("eof", sqldb.ConnLost, io.EOF),
		coding("unexpected eof", sqldb.ConnLost, io.ErrUnexpectedEOF),
		coding("read", sqldb.ConnLost, &net.OpError{Op: "read", Net: "tcp", Err: errors.New("reset by peer")}),
		coding("write", sqldb.ConnLost, &net.OpError{Op: "write", Net: "tcp", Err: errors.New("broken pipe")}),
		coding("closed", sqldb.ConnLost, net.ErrClosed),
	}
	return neverSent, lost
}

// contextErrors are what a driver answers whose ctx ended: Uncertain cannot see
// what they mean, Change and InTx can.
func contextErrors() []error {
	return []error{context.Canceled, context.DeadlineExceeded, fmt.Errorf("timeout: %w", context.DeadlineExceeded)}
}
