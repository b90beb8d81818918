package sqldb

import (
	"fmt"
	"math"
	"strconv"
	"time"
)

// The functions here bring what drivers give for one value into the one type that
// the caller wants: numbers and times may come as text.

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

// toUint also knows what an int64 cannot hold: a BIGINT UNSIGNED.
func toUint(v any) (uint64, error) {
	switch s := v.(type) {
	case uint64:
		return s, nil
	case []byte:
		return strconv.ParseUint(string(s), 10, 64)
	case string:
		return strconv.ParseUint(s, 10, 64)
	}
	n, err := toInt(v)
	if err == nil && n < 0 {
		return 0, fmt.Errorf("%d does not fit into a uint64", n)
	}
	return uint64(n), err
}

func toFloat(v any) (float64, error) {
	switch s := v.(type) {
	case int64:
		return float64(s), nil
	case uint64:
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
	case uint64:
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
