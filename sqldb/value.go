package sqldb

import (
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strconv"
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
		switch a.(type) {
		case nil, int64, string, []byte, bool, float64:
			continue // the common case allocates nothing
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
		v = v.UTC()
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
	case nil, int64, string, []byte, bool, float64:
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
			return r.Bytes(), nil
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
		n, err := toInt(v)
		if err == nil && n < 0 {
			return fmt.Errorf("%d does not fit into a uint64", n)
		}
		*d = uint64(n)
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

func toInt(v any) (int64, error) {
	switch s := v.(type) {
	case int64:
		return s, nil
	case uint64:
		if s > math.MaxInt64 {
			return 0, fmt.Errorf("%d does not fit into a signed 64-bit integer", s)
		}
		return int64(s), nil
	case bool:
		if s {
			return 1, nil
		}
		return 0, nil
	case float64:
		if s == math.Trunc(s) && math.Abs(s) < 1<<53 {
			return int64(s), nil
		}
		return 0, fmt.Errorf("%v is no integer", s)
	case []byte:
		return strconv.ParseInt(string(s), 10, 64)
	case string:
		return strconv.ParseInt(s, 10, 64)
	}
	return 0, fmt.Errorf("a %T is no integer", v)
}

func toFloat(v any) (float64, error) {
	switch s := v.(type) {
	case int64:
		return float64(s), nil
	case float64:
		return s, nil
	case []byte:
		return strconv.ParseFloat(string(s), 64)
	case string:
		return strconv.ParseFloat(s, 64)
	}
	return 0, fmt.Errorf("a %T is no number", v)
}

func toBool(v any) (bool, error) {
	switch s := v.(type) {
	case bool:
		return s, nil
	case int64:
		return s != 0, nil
	case []byte:
		return strconv.ParseBool(string(s))
	case string:
		return strconv.ParseBool(s)
	}
	return false, fmt.Errorf("a %T is no boolean", v)
}

func toString(kind Kind, v any) (string, error) {
	switch s := v.(type) {
	case string:
		return s, nil
	case []byte:
		return string(s), nil
	case int64:
		return strconv.FormatInt(s, 10), nil
	case uint64:
		return strconv.FormatUint(s, 10), nil
	case float64:
		return strconv.FormatFloat(s, 'g', -1, 64), nil
	case bool:
		return strconv.FormatBool(s), nil
	case time.Time:
		return inUTC(kind, s).Format(time.RFC3339Nano), nil
	}
	return "", fmt.Errorf("a %T is no text", v)
}

func toTime(kind Kind, v any) (time.Time, error) {
	switch s := v.(type) {
	case time.Time:
		return inUTC(kind, s), nil
	case int64:
		return time.UnixMicro(s).UTC(), nil
	case []byte:
		return parseTime(string(s))
	case string:
		return parseTime(s)
	}
	return time.Time{}, fmt.Errorf("a %T is no time", v)
}

// inUTC: with parseTime, go-sql-driver takes a DATETIME as a wall clock of the
// DSN's loc; ours hold UTC, so the wall clock is what is right. Elsewhere the
// instant is.
func inUTC(kind Kind, t time.Time) time.Time {
	if kind.InnoDB() {
		return time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
	}
	return t.UTC()
}

func parseTime(s string) (time.Time, error) {
	for _, layout := range []string{"2006-01-02 15:04:05.999999999", time.RFC3339Nano, "2006-01-02 15:04:05.999999999Z07:00", time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			return t.UTC(), nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time", s)
}
