package sqldb

import (
	"errors"
	"path"
	"reflect"
	"strings"
)

type family uint8

const (
	noCode family = iota
	sqlstate
	mysqlNumber
	sqliteCode
)

// code is what a server said: one of a SQLSTATE, a number of MySQL, a result code
// of SQLite.
type code struct {
	family family
	state  string
	number int
	text   string
}

// codeOf finds the server's code in err. The package knows the drivers' error
// types by their shape and does not import them: Retry is handed errors by
// programs that have one driver, and should not make them depend on four.
func codeOf(err error) (c code) {
	walk(err, func(e error) bool {
		c = codeOfOne(e)
		return c.family != noCode
	})
	return c
}

// walk visits err and all that it wraps, until visit says stop.
func walk(err error, visit func(error) (stop bool)) bool {
	for err != nil {
		if visit(err) {
			return true
		}
		switch u := err.(type) {
		case interface{ Unwrap() error }:
			err = u.Unwrap()
		case interface{ Unwrap() []error }:
			for _, e := range u.Unwrap() {
				if walk(e, visit) {
					return true
				}
			}
			return false
		default:
			return false
		}
	}
	return false
}

func codeOfOne(err error) code {
	v := reflect.ValueOf(err)
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return code{}
		}
		v = v.Elem()
	}
	if s, ok := err.(interface{ SQLState() string }); ok {
		if state := s.SQLState(); state != "" {
			return code{family: sqlstate, state: state} // pgconn.PgError, pq.Error
		}
	}
	t := v.Type()
	if strings.Contains(t.PkgPath(), "sqlite") {
		// ncruces answers a bare ErrorCode to whoever comes with a ctx that has ended.
		switch {
		case v.CanUint() && v.Uint() != 0:
			return code{family: sqliteCode, number: int(v.Uint()), text: err.Error()}
		case v.CanInt() && v.Int() != 0:
			return code{family: sqliteCode, number: int(v.Int()), text: err.Error()}
		}
	}
	if v.Kind() != reflect.Struct {
		return code{}
	}
	if t.Name() == "MySQLError" && path.Base(t.PkgPath()) == "mysql" {
		if f := v.FieldByName("Number"); f.IsValid() && f.CanUint() {
			return code{family: mysqlNumber, number: int(f.Uint())}
		}
	}
	if strings.Contains(t.PkgPath(), "sqlite") {
		for _, name := range []string{"ExtendedCode", "Code"} {
			if n, ok := intOf(reflect.ValueOf(err), v, name); ok && n != 0 {
				return code{family: sqliteCode, number: n, text: err.Error()}
			}
		}
	}
	return code{}
}

// intOf reads an integer from a method without arguments or a field: modernc has
// Code(), mattn the fields Code and ExtendedCode, ncruces both methods.
func intOf(p, v reflect.Value, name string) (int, bool) {
	if m := p.MethodByName(name); m.IsValid() && m.Type().NumIn() == 0 && m.Type().NumOut() == 1 {
		v = m.Call(nil)[0]
	} else {
		v = v.FieldByName(name)
	}
	switch {
	case !v.IsValid():
		return 0, false
	case v.CanInt():
		return int(v.Int()), true
	case v.CanUint():
		return int(v.Uint()), true
	}
	return 0, false
}

// plain is the type of what errors.New makes.
var plain = reflect.TypeOf(errors.New(""))

// invalidConn finds go-sql-driver's ErrInvalidConn, the connection broke after
// something had been sent, and pgconn's ErrConnClosed. They have no types of
// their own.
func invalidConn(err error) bool {
	return walk(err, func(e error) bool {
		if reflect.TypeOf(e) != plain {
			return false
		}
		s := e.Error()
		return s == "invalid connection" || s == "conn closed"
	})
}
