package sqldb_test

import (
	"bytes"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/sqlnative/locks/sqldb"
)

// Types of a program, of known kinds.
type (
	count  int32
	label  string
	blob   []byte
	flag   bool
	ratio  float32
	twice  struct{}
	failed struct{}
	ptrVal struct{ s string }
)

var errValue = errors.New("no value")

func (twice) Value() (driver.Value, error)     { return twice{}, nil }
func (failed) Value() (driver.Value, error)    { return nil, errValue }
func (p *ptrVal) Value() (driver.Value, error) { return p.s, nil }

// sent is what the driver gets for an argument.
func sent(t *testing.T, kind sqldb.Kind, arg any) (any, error) {
	t.Helper()
	f, db := newFake(t, kind)
	if _, err := db.Exec(t.Context(), "x", arg); err != nil {
		if len(f.args) != 0 {
			t.Errorf("%T: the statement was run all the same", arg)
		}
		return nil, err
	}
	return f.args[0][0], nil
}

func TestArguments(t *testing.T) {
	n, s := 7, "x"
	var nilInt *int
	id := uuid.MustParse("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
	for _, c := range []struct{ arg, want any }{
		{nil, nil},
		{nilInt, nil},
		{(*time.Time)(nil), nil},
		{[]byte(nil), nil},
		{blob(nil), nil},
		{(*ptrVal)(nil), nil},
		{sql.NullString{}, nil},
		{sql.Null[[]byte]{Valid: true}, nil},
		{7, int64(7)},
		{int8(-7), int64(-7)},
		{int16(7), int64(7)},
		{int32(7), int64(7)},
		{int64(math.MinInt64), int64(math.MinInt64)},
		{uint(7), int64(7)},
		{uint8(7), int64(7)},
		{uint16(7), int64(7)},
		{uint32(math.MaxUint32), int64(math.MaxUint32)},
		{uint64(math.MaxInt64), int64(math.MaxInt64)},
		{&n, int64(7)},
		{count(7), int64(7)},
		{time.Second, int64(time.Second)},
		{"x", "x"},
		{&s, "x"},
		{label("x"), "x"},
		{"", ""},
		{&ptrVal{"x"}, "x"},
		{sql.NullString{String: "x", Valid: true}, "x"},
		{id, id.String()},
		{&id, id.String()},
		{[]byte("x"), []byte("x")},
		{[]byte{}, []byte{}},
		{blob("x"), []byte("x")},
		{true, true},
		{flag(true), true},
		{1.5, 1.5},
		{float32(1.5), 1.5},
		{ratio(1.5), 1.5},
		{sql.NullInt64{Int64: 7, Valid: true}, int64(7)},
	} {
		for _, kind := range sqldb.Kinds() {
			got, err := sent(t, kind, c.arg)
			if err != nil || !reflect.DeepEqual(got, c.want) {
				t.Errorf("%v: %T %v became %T %v, %v", kind, c.arg, c.arg, got, got, err)
			}
		}
	}
}

func TestArgumentsRefused(t *testing.T) {
	for _, arg := range []any{
		uint64(math.MaxInt64 + 1), uint64(math.MaxUint64), struct{}{}, []int{1}, map[string]int{}, make(chan int), func() {}, [3]int{}, complex(1, 1), twice{}, failed{}, errValue,
	} {
		for _, kind := range sqldb.Kinds() {
			if got, err := sent(t, kind, arg); err == nil || !strings.HasPrefix(err.Error(), "sqldb: argument 1: ") {
				t.Errorf("%v: %T became %v, %v", kind, arg, got, err)
			}
		}
	}
	if _, err := sent(t, sqldb.Postgres, failed{}); !errors.Is(err, errValue) {
		t.Errorf("the Valuer's own error is lost: %v", err)
	}
}

// The caller's arguments are not written to.
func TestArgumentsAreCopied(t *testing.T) {
	_, db := newFake(t, sqldb.MySQL)
	args := []any{int64(1), 2, "x"}
	if _, err := db.Exec(t.Context(), "x", args...); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(args, []any{int64(1), 2, "x"}) {
		t.Errorf("the caller's arguments are now %v", args)
	}
}

func TestArgumentTimes(t *testing.T) {
	tokyo := time.FixedZone("JST", 9*3600)
	for in, want := range map[time.Time]string{
		time.Date(2024, 3, 10, 2, 30, 0, 123456789, time.UTC):    "2024-03-10 02:30:00.123456",
		time.Date(2024, 3, 10, 2, 30, 0, 0, tokyo):               "2024-03-09 17:30:00.000000",
		time.Date(1969, 12, 31, 23, 59, 59, 999999999, time.UTC): "1969-12-31 23:59:59.999999",
		time.Date(1900, 1, 1, 0, 0, 0, 1000, time.UTC):           "1900-01-01 00:00:00.000001",
		time.Date(9999, 12, 31, 23, 59, 59, 999999000, time.UTC): "9999-12-31 23:59:59.999999",
	} {
		cut := in.UTC().Truncate(time.Microsecond)
		for kind, w := range map[sqldb.Kind]any{sqldb.Postgres: cut, sqldb.MySQL: want, sqldb.MariaDB: want, sqldb.SQLite: cut.UnixMicro()} {
			for _, arg := range []any{in, &in, sql.NullTime{Time: in, Valid: true}} {
				if got, err := sent(t, kind, arg); err != nil || got != w {
					t.Errorf("%v: %T %v became %v, %v", kind, arg, in, got, err)
				}
			}
		}
	}
}

// scanned is what a destination of type T gets of a driver's value.
func scanned[T any](t *testing.T, kind sqldb.Kind, v any) (dest T, err error) {
	t.Helper()
	f, db := newFake(t, kind)
	f.rows = [][]any{{v}}
	err = db.QueryRow(t.Context(), "x").Scan(&dest)
	return dest, err
}

func check[T any](t *testing.T, v any, want T) {
	t.Helper()
	for _, kind := range sqldb.Kinds() {
		if got, err := scanned[T](t, kind, v); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%v: %T %v into a %T: %v, %v", kind, v, v, want, got, err)
		}
		// Through a pointer, and where a Scanner of database/sql wants it.
		if got, err := scanned[*T](t, kind, v); err != nil || got == nil || !reflect.DeepEqual(*got, want) {
			t.Errorf("%v: %T %v into a *%T: %v, %v", kind, v, v, want, got, err)
		}
		if got, err := scanned[*T](t, kind, nil); err != nil || got != nil {
			t.Errorf("%v: NULL into a *%T: %v, %v", kind, want, got, err)
		}
	}
}

func refused[T any](t *testing.T, values ...any) {
	t.Helper()
	for _, v := range values {
		for _, kind := range sqldb.Kinds() {
			if got, err := scanned[T](t, kind, v); err == nil || !strings.HasPrefix(err.Error(), "sqldb: column 1: ") {
				t.Errorf("%v: %T %v went into a %T as %v, %v", kind, v, v, got, got, err)
			}
		}
	}
}

func TestScanNumbers(t *testing.T) {
	for _, v := range []any{int64(7), "7", []byte("7"), uint64(7), 7.0} {
		check(t, v, int64(7))
		check(t, v, 7)
		check(t, v, int32(7))
		check(t, v, 7.0)
		if _, isFloat := v.(float64); !isFloat {
			check(t, v, "7")
		}
	}
	for _, v := range []any{int64(7), "7", []byte("7"), uint64(7)} {
		check(t, v, uint64(7))
	}
	check(t, int64(math.MinInt64), int64(math.MinInt64))
	check(t, []byte("-9223372036854775808"), int64(math.MinInt64))
	check(t, uint64(math.MaxUint64), uint64(math.MaxUint64))
	check(t, []byte("18446744073709551615"), uint64(math.MaxUint64))
	check(t, true, int64(1))
	check(t, false, int64(0))
	check(t, []byte("1.5"), 1.5)

	refused[int64](t, nil, uint64(math.MaxUint64), "18446744073709551615", 1.5, math.NaN(), math.Inf(1), 1e19, "", "x", "1.5", []byte(" 1"), time.Now())
	refused[int32](t, nil, int64(math.MaxInt32+1), int64(math.MinInt32-1), "2147483648")
	refused[int](t, nil, "x")
	refused[uint64](t, nil, int64(-1), "-1", "18446744073709551616", 1.5)
	refused[float64](t, nil, "x", time.Now(), []byte(""))
}

func TestScanOthers(t *testing.T) {
	for _, v := range []any{true, int64(1), []byte("1"), "t", "true", uint64(1)} {
		check(t, v, true)
	}
	for _, v := range []any{false, int64(0), []byte("0"), "f", "false"} {
		check(t, v, false)
	}
	refused[bool](t, nil, "yes", []byte(""), time.Now())

	for _, v := range []any{"a\x01ü😀'\"\\", []byte("a\x01ü😀'\"\\")} {
		check(t, v, "a\x01ü😀'\"\\")
		check(t, v, []byte("a\x01ü😀'\"\\"))
	}
	refused[string](t, nil)
	refused[[]byte](t, int64(7), time.Now())
	if got, err := scanned[[]byte](t, sqldb.MySQL, nil); err != nil || got != nil {
		t.Errorf("NULL into a []byte: %v, %v", got, err)
	}
	if got, err := scanned[[]byte](t, sqldb.MySQL, []byte{}); err != nil || got == nil {
		t.Errorf("an empty []byte became nil: %v", err)
	}
	refused[struct{}](t, int64(7), nil)
	refused[count](t, int64(7))
	if got, err := scanned[any](t, sqldb.Postgres, nil); err != nil || got != nil {
		t.Errorf("NULL into an any: %v, %v", got, err)
	}
	if got, err := scanned[sql.NullString](t, sqldb.MySQL, []byte("x")); err != nil || got.String != "x" {
		t.Errorf("a Scanner: %v, %v", got, err)
	}
	if got, err := scanned[sql.NullInt64](t, sqldb.MySQL, []byte("7")); err != nil || got.Int64 != 7 {
		t.Errorf("a Scanner: %v, %v", got, err)
	}
	if got, err := scanned[sql.NullInt64](t, sqldb.MySQL, nil); err != nil || got.Valid {
		t.Errorf("NULL into a Scanner: %v, %v", got, err)
	}
}

// What the driver gave is copied: its buffers are used again for the next row.
func TestScanCopies(t *testing.T) {
	buffer := []byte("abc")
	asBytes, _ := scanned[[]byte](t, sqldb.MySQL, buffer)
	asAny, _ := scanned[any](t, sqldb.MySQL, buffer)
	copy(buffer, "xyz")
	if s, ok := asAny.([]byte); !bytes.Equal(asBytes, []byte("abc")) || !ok || string(s) != "abc" {
		t.Errorf("%s, %s", asBytes, asAny)
	}
}

func TestScanTimes(t *testing.T) {
	want := time.Date(2024, 11, 3, 1, 30, 0, 123456000, time.UTC)
	tokyo := time.FixedZone("JST", 9*3600)
	given := map[sqldb.Kind][]any{
		sqldb.Postgres: {want, want.In(tokyo), "2024-11-03 01:30:00.123456+00:00", "2024-11-03T10:30:00.123456+09:00"},
		// The wall clock is UTC, whatever location the driver has put to it.
		sqldb.MySQL:   {want, time.Date(2024, 11, 3, 1, 30, 0, 123456000, tokyo), []byte("2024-11-03 01:30:00.123456"), "2024-11-03 01:30:00.123456"},
		sqldb.MariaDB: {want, time.Date(2024, 11, 3, 1, 30, 0, 123456000, tokyo), []byte("2024-11-03 01:30:00.123456")},
		sqldb.SQLite:  {want, want.In(tokyo), want.UnixMicro(), "2024-11-03 01:30:00.123456"},
	}
	for kind, values := range given {
		for _, v := range values {
			name := fmt.Sprintf("%v: %T %v", kind, v, v)
			if got, err := scanned[time.Time](t, kind, v); err != nil || got != want {
				t.Errorf("%s: %v, %v", name, got, err)
			}
			if got, err := scanned[*time.Time](t, kind, v); err != nil || *got != want {
				t.Errorf("%s into a pointer: %v, %v", name, got, err)
			}
			if got, err := scanned[sql.NullTime](t, kind, v); err != nil || !got.Valid || got.Time != want {
				t.Errorf("%s into a NullTime: %v, %v", name, got, err)
			}
			if got, err := scanned[sql.Null[time.Time]](t, kind, v); err != nil || !got.Valid || got.V != want {
				t.Errorf("%s into a Null: %v, %v", name, got, err)
			}
			if tm, ok := v.(time.Time); ok {
				if got, err := scanned[any](t, kind, tm); err != nil || got != want {
					t.Errorf("%s into an any: %v, %v", name, got, err)
				}
			}
		}
	}
	if got, err := scanned[sql.NullTime](t, sqldb.MySQL, nil); err != nil || got.Valid || !got.Time.IsZero() {
		t.Errorf("NULL into a NullTime: %v, %v", got, err)
	}
	refused[time.Time](t, nil, "yesterday", []byte("0000-00-00 00:00:00"), true, 1.5)
	refused[sql.NullTime](t, "yesterday")
}

func TestScanShape(t *testing.T) {
	f, db := newFake(t, sqldb.Postgres)
	f.rows = [][]any{{int64(1), int64(2)}}
	var a, b, c int64
	if err := db.QueryRow(t.Context(), "x").Scan(&a); err == nil || !strings.Contains(err.Error(), "2 columns, and 1") {
		t.Error(err)
	}
	if err := db.QueryRow(t.Context(), "x").Scan(&a, &b, &c); err == nil {
		t.Error("a third column was read")
	}
	for _, dest := range []any{nil, a, new(chan int)} {
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%T: panic: %v", dest, p)
				}
			}()
			if err := db.QueryRow(t.Context(), "x").Scan(&a, dest); err == nil {
				t.Errorf("%T was accepted", dest)
			}
		}()
	}
	f.rows = nil
	if err := db.QueryRow(t.Context(), "x").Scan(&a); !errors.Is(err, sql.ErrNoRows) {
		t.Error(err)
	}
}
