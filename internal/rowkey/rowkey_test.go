package rowkey

import (
	"database/sql"
	"math"
	"reflect"
	"testing"
	"time"
)

type named string

type uuid [16]byte

func (uuid) String() string { return "a uuid" }

func TestPlain(t *testing.T) {
	seven := 7
	for _, c := range []struct{ in, want any }{
		{7, int64(7)},
		{int8(-7), int64(-7)},
		{uint32(7), int64(7)},
		{&seven, int64(7)},
		{"x", "x"},
		{named("x"), "x"},
		{[]byte("x"), []byte("x")},
		{sql.NullInt64{Int64: 7, Valid: true}, int64(7)},
		{uuid{}, "a uuid"},
	} {
		if got, err := Plain(c.in); err != nil || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%T %v: %v, %v", c.in, c.in, got, err)
		}
	}
	for _, v := range []any{nil, (*int)(nil), []byte(nil), sql.NullString{}, 1.9, true, time.Now(), uint64(math.MaxUint64), struct{}{}, []int{1}, [2]byte{}} {
		if got, err := Plain(v); err == nil {
			t.Errorf("%T %v became %v", v, v, got)
		}
	}
}

func TestNull(t *testing.T) {
	var none *int
	seven := 7
	for _, v := range []any{nil, none, &none, []byte(nil), sql.NullString{}, &sql.NullInt64{}, (*time.Time)(nil)} {
		if !Null(v) {
			t.Errorf("%T %v is a NULL", v, v)
		}
	}
	for _, v := range []any{0, "", false, []byte{}, &seven, sql.NullString{Valid: true}, time.Time{}} {
		if Null(v) {
			t.Errorf("%T %v is no NULL", v, v)
		}
	}
}
