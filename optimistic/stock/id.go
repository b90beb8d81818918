package stock

import (
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"reflect"
)

// plainID makes of an id what the database will see of it: int64, string or
// []byte. What is none of these could find a row that was not meant: PostgreSQL's
// driver makes 1 of 1.9, MySQL makes 1 of true.
func plainID(id any) (any, error) {
	if id == nil {
		return nil, errors.New("it is nil")
	}
	v := reflect.ValueOf(id)
	if v.Kind() == reflect.Pointer && v.IsNil() {
		return nil, errors.New("it is nil")
	}
	if valuer, ok := id.(driver.Valuer); ok { // a UUID, a sql.Null
		plain, err := valuer.Value()
		if err != nil {
			return nil, err
		}
		if _, again := plain.(driver.Valuer); again {
			return nil, fmt.Errorf("a %T is no id", id)
		}
		return plainID(plain)
	}
	switch v.Kind() {
	case reflect.Pointer:
		return plainID(v.Elem().Interface())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return v.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if v.Uint() > math.MaxInt64 {
			return nil, errors.New("it does not fit into a signed 64-bit integer")
		}
		return int64(v.Uint()), nil
	case reflect.String:
		return v.String(), nil
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return v.Bytes(), nil
		}
	}
	if s, ok := id.(fmt.Stringer); ok && v.Kind() == reflect.Array && v.Type().Elem().Kind() == reflect.Uint8 {
		return s.String(), nil // a UUID that is no Valuer
	}
	return nil, fmt.Errorf("a %T is no id: use an integer, a string or []byte", id)
}
