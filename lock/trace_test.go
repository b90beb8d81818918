package lock_test

import (
	"bytes"
	"errors"
	"log/slog"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/lock"
)

// traced returns a Trace whose every function notes its name.
func traced(who string, log *[]string) *lock.Trace {
	tr := &lock.Trace{}
	v := reflect.ValueOf(tr).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		v.Field(i).Set(reflect.ValueOf(func(e lock.Event) { *log = append(*log, who+name+e.Name) }))
	}
	return tr
}

// tellAll tells a Trace of one event of each kind, and returns their names.
func tellAll(tr *lock.Trace, e lock.Event) (names []string) {
	typ := reflect.TypeFor[lock.Trace]()
	for i := range typ.NumField() {
		names = append(names, typ.Field(i).Name)
		tr.Tell(func(tr *lock.Trace) func(lock.Event) {
			return reflect.ValueOf(tr).Elem().Field(i).Interface().(func(lock.Event))
		}, e)
	}
	return names
}

func TestTraceAnd(t *testing.T) {
	var log []string
	a, b := traced("a", &log), traced("b", &log)
	half := &lock.Trace{Lost: func(lock.Event) { log = append(log, "half") }}
	var want []string
	for _, name := range tellAll(a.And(b), lock.Event{Name: "!"}) {
		want = append(want, "a"+name+"!", "b"+name+"!")
	}
	if !reflect.DeepEqual(log, want) {
		t.Errorf("%v, not %v", log, want)
	}
	if a.And(nil) != a || (*lock.Trace)(nil).And(a) != a || (*lock.Trace)(nil).And(nil) != nil {
		t.Error("And of nil")
	}
	for _, both := range []*lock.Trace{half.And(a), a.And(half)} {
		log = nil
		if names := tellAll(both, lock.Event{}); len(log) != len(names)+1 {
			t.Errorf("%v", log)
		}
	}
	log = nil
	tellAll(nil, lock.Event{})
	tellAll(&lock.Trace{}, lock.Event{})
	if log != nil {
		t.Errorf("%v", log)
	}
}

func TestStats(t *testing.T) {
	var s lock.Stats
	for range 2 {
		tellAll(s.Trace(), lock.Event{Took: time.Second})
	}
	v := reflect.ValueOf(&s).Elem()
	for i := range v.NumField() {
		name := v.Type().Field(i).Name
		got := v.Field(i).Addr().MethodByName("Load").Call(nil)[0].Int()
		want := int64(2)
		if strings.HasSuffix(name, "For") {
			want = int64(2 * time.Second)
		}
		if got != want {
			t.Errorf("%s is %d, not %d", name, got, want)
		}
	}
}

func TestSlogTrace(t *testing.T) {
	var b bytes.Buffer
	tr := lock.SlogTrace(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{Level: slog.LevelDebug})))
	tellAll(tr, lock.Event{Name: "job", Token: 7, Took: time.Second, Err: errors.New("why")})
	lines := strings.Split(strings.TrimSpace(b.String()), "\n")
	levels := map[string]string{"lost": "ERROR", "failed": "WARN"}
	for _, line := range lines {
		level := "DEBUG"
		for word, l := range levels {
			if strings.Contains(line, word) {
				level = l
			}
		}
		for _, part := range []string{"level=" + level, "lock=job", "token=7", "took=1s", "error=why"} {
			if !strings.Contains(line, part) {
				t.Errorf("%s: %s is not there", line, part)
			}
		}
	}
	if want := reflect.TypeFor[lock.Trace]().NumField(); len(lines) != want {
		t.Errorf("%d lines of %d", len(lines), want)
	}
	b.Reset()
	tellAll(tr, lock.Event{Name: "job"})
	for _, word := range []string{"token", "took", "error"} {
		if strings.Contains(b.String(), word+"=") {
			t.Errorf("%s is there without a value", word)
		}
	}
}
