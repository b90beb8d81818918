// Package rowkey makes of what a caller names a row with what the database will see
// of it.
package rowkey

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"reflect"
)

var errNil = errors.New("it is nil")

// Plain makes an int64, a string or a []byte of v. What is none of these could find
// a row that was not meant: PostgreSQL's driver makes 1 of 1.9, MySQL makes 1 of
// true.
func Plain(v any) (any, error) {
	if v == nil {
		return nil, errNil
	}
	r := reflect.ValueOf(v)
	if r.Kind() == reflect.Pointer && r.IsNil() {
		return nil, errNil
	}
	if valuer, ok := v.(driver.Valuer); ok { // a UUID, a sql.Null
		plain, err := valuer.Value()
		if err != nil {
			return nil, err
		}
		if _, again := plain.(driver.Valuer); again {
			return nil, fmt.Errorf("a %T is no key", v)
		}
		return Plain(plain)
	}
	switch r.Kind() {
	case reflect.Pointer:
		return Plain(r.Elem().Interface())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return r.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if r.Uint() > math.MaxInt64 {
			return nil, errors.New("it does not fit into a signed 64-bit integer")
		}
		return int64(r.Uint()), nil
	case reflect.String:
		return r.String(), nil
	case reflect.Slice:
		if r.Type().Elem().Kind() == reflect.Uint8 {
			if r.IsNil() {
				return nil, errNil
			}
			return r.Bytes(), nil
		}
	}
	if s, ok := v.(fmt.Stringer); ok && r.Kind() == reflect.Array && r.Type().Elem().Kind() == reflect.Uint8 {
		return s.String(), nil // a UUID that is no Valuer
	}
	return nil, fmt.Errorf("a %T is no key: use an integer, a string or []byte", v)
}

// Null reports whether the database will see a NULL of v: a nil, a pointer that is
// nil, a Valuer whose value is. An equals sign with a NULL beside it is never true.
func Null(v any) bool {
	if v == nil {
		return true
	}
	r := reflect.ValueOf(v)
	switch r.Kind() {
	case reflect.Pointer:
		if r.IsNil() {
			return true
		}
	case reflect.Slice:
		if r.IsNil() {
			return true
		}
	}
	if valuer, ok := v.(driver.Valuer); ok {
		plain, err := valuer.Value()
		if err != nil {
			return false // whoever sends it will say so
		}
		if _, again := plain.(driver.Valuer); again {
			return false
		}
		return Null(plain)
	}
	return r.Kind() == reflect.Pointer && Null(r.Elem().Interface())
}
