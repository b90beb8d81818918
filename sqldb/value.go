package sqldb

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"reflect"
	"time"
)

// timeLayout is a time as MySQL and MariaDB read it in every sql_mode.
const timeLayout = "2006-01-02 15:04:05.000000"

// normalizeArgs makes driver values of arguments, so that one value means one
// thing through every driver.
func normalizeArgs(kind Kind, args []any) ([]any, error) {
	out := args
	copied := false
	for i, a := range args {
		switch v := a.(type) {
		case nil, int64, string, bool, float64:
			continue // the common case allocates nothing
		case []byte:
			if v != nil {
				continue
			}
		}
		v, err := normalizeArg(kind, a)
		if err != nil {
			return nil, fmt.Errorf("sqldb: argument %d: %w", i+1, err)
		}
		if !copied {
			out = append([]any(nil), args...)
			copied = true
		}
		out[i] = v
	}
	return out, nil
}

func normalizeArg(kind Kind, a any) (any, error) {
	switch v := a.(type) {
	case time.Time:
		v = v.UTC().Truncate(time.Microsecond) // pgx cuts what is finer, lib/pq's server rounds it
		switch kind {
		case MySQL, MariaDB:
			return v.Format(timeLayout), nil
		case SQLite:
			return v.UnixMicro(), nil
		}
		return v, nil
	case driver.Valuer:
		if r := reflect.ValueOf(a); r.Kind() == reflect.Pointer && r.IsNil() {
			return nil, nil
		}
		x, err := v.Value()
		if err != nil {
			return nil, err
		}
		if _, again := x.(driver.Valuer); again {
			return nil, fmt.Errorf("%T: its Value is a Valuer", a)
		}
		return normalizeArg(kind, x)
	case nil, int64, string, bool, float64:
		return v, nil
	case []byte:
		if v == nil {
			return nil, nil // not every driver takes it for a NULL
		}
		return v, nil
	}
	r := reflect.ValueOf(a)
	switch r.Kind() {
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return r.Int(), nil
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		if r.Uint() > math.MaxInt64 {
			return nil, fmt.Errorf("%d does not fit into a signed 64-bit integer", r.Uint())
		}
		return int64(r.Uint()), nil
	case reflect.Float32, reflect.Float64:
		return r.Float(), nil
	case reflect.Bool:
		return r.Bool(), nil
	case reflect.String:
		return r.String(), nil
	case reflect.Pointer:
		if r.IsNil() {
			return nil, nil
		}
		return normalizeArg(kind, r.Elem().Interface())
	case reflect.Slice:
		if r.Type().Elem().Kind() == reflect.Uint8 {
			return normalizeArg(kind, r.Bytes())
		}
	case reflect.Array:
		if r.Type().Elem().Kind() == reflect.Uint8 && reflect.PointerTo(r.Type()).Implements(stringer) {
			p := reflect.New(r.Type())
			p.Elem().Set(r)
			return p.Interface().(fmt.Stringer).String(), nil // a UUID
		}
	}
	return nil, fmt.Errorf("a %T cannot be sent: use an integer, a string, []byte, a bool, a float, a time.Time or a driver.Valuer", a)
}

var stringer = reflect.TypeFor[fmt.Stringer]()

var errNull = errors.New("NULL, and the destination cannot hold it")

// assign copies what a driver gave into what the caller wants.
func assign(kind Kind, dest, v any) error {
	switch d := dest.(type) {
	case *sql.NullTime: // its own Scan knows a time.Time only
		d.Valid = v != nil
		return assignIf(d.Valid, kind, &d.Time, v)
	case *sql.Null[time.Time]:
		d.Valid = v != nil
		return assignIf(d.Valid, kind, &d.V, v)
	case sql.Scanner:
		if s, ok := v.(time.Time); ok {
			v = inUTC(kind, s)
		}
		return d.Scan(v)
	case *any:
		switch s := v.(type) {
		case []byte:
			v = append([]byte(nil), s...)
		case time.Time:
			v = inUTC(kind, s)
		}
		*d = v
		return nil
	}
	if v == nil {
		return assignNull(dest)
	}
	switch d := dest.(type) {
	case *int64:
		n, err := toInt(v)
		*d = n
		return err
	case *int:
		n, err := toInt(v)
		if err == nil && n != int64(int(n)) {
			return fmt.Errorf("%d does not fit into an int", n)
		}
		*d = int(n)
		return err
	case *int32:
		n, err := toInt(v)
		if err == nil && n != int64(int32(n)) {
			return fmt.Errorf("%d does not fit into an int32", n)
		}
		*d = int32(n)
		return err
	case *uint64:
		n, err := toUint(v)
		*d = n
		return err
	case *float64:
		f, err := toFloat(v)
		*d = f
		return err
	case *bool:
		n, err := toBool(v)
		*d = n
		return err
	case *string:
		s, err := toString(kind, v)
		*d = s
		return err
	case *[]byte:
		switch s := v.(type) {
		case []byte:
			*d = append(make([]byte, 0, len(s)), s...)
			return nil
		case string:
			*d = []byte(s)
			return nil
		}
		return mismatch(v, dest)
	case *time.Time:
		t, err := toTime(kind, v)
		*d = t
		return err
	}
	// A pointer to a pointer, or to a type of a known kind.
	p := reflect.ValueOf(dest)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return fmt.Errorf("the destination %T is no pointer", dest)
	}
	if e := p.Elem(); e.Kind() == reflect.Pointer {
		n := reflect.New(e.Type().Elem())
		if err := assign(kind, n.Interface(), v); err != nil {
			return err
		}
		e.Set(n)
		return nil
	}
	return mismatch(v, dest)
}

// assignIf assigns to what is valid, and clears what is not.
func assignIf(valid bool, kind Kind, dest *time.Time, v any) error {
	if !valid {
		*dest = time.Time{}
		return nil
	}
	return assign(kind, dest, v)
}

func assignNull(dest any) error {
	if d, ok := dest.(*[]byte); ok {
		*d = nil
		return nil
	}
	p := reflect.ValueOf(dest)
	if p.Kind() == reflect.Pointer && !p.IsNil() && p.Elem().Kind() == reflect.Pointer {
		p.Elem().SetZero()
		return nil
	}
	return errNull
}

func mismatch(v, dest any) error {
	return fmt.Errorf("a %T cannot go into a %T", v, dest)
}
