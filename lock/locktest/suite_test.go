package locktest

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// subject is a Memory as a Subject.
func subject(m *Memory) Subject {
	return Subject{
		New:   func(_ testing.TB, opts ...lock.Option) lock.Locker { return m.Locker(opts...) },
		Token: true, Holder: true, Guard: true, Extend: true, NoRenew: true, AtMost: true, HoldAtLeast: true, Shared: true,
		Begin:  func(testing.TB) (*sqldb.Tx, func() error, func() error) { return m.Begin() },
		Steal:  func(_ testing.TB, name string, _ int64) { m.steal(name) },
		Faults: []Fault{{Name: "gone", Break: func(_ testing.TB, l lock.Locker) func() { return m.Break(l) }}},
		TTL:    300 * time.Millisecond,
	}
}

func TestMemory(t *testing.T) { Run(t, subject(new(Memory))) }

// A Subject that declares less: what it does not declare has to be refused, and the
// rest of the suite has to do without.
func TestMemoryThatRefuses(t *testing.T) {
	var m Memory
	s := subject(&m)
	s.New = func(_ testing.TB, opts ...lock.Option) lock.Locker { return plain{m.Locker(opts...)} }
	s.Token, s.Holder, s.Guard, s.Extend, s.NoRenew, s.AtMost, s.HoldAtLeast, s.Shared = false, false, false, false, false, false, false, false
	s.Faults = []Fault{{Name: "gone", Break: func(_ testing.TB, l lock.Locker) func() { return m.Break(l.(plain).Locker) }}}
	s.Skip = map[string]string{
		"Refused/Calls": "Memory has all of them", "Exclusion/Counter": "TestMemory has it",
	}
	Run(t, s)
}

// plain is a Locker that honours no option that another might not.
type plain struct{ lock.Locker }

func (p plain) Acquire(ctx context.Context, name string, opts ...lock.Option) (*lock.Lock, error) {
	if _, err := lock.Collect("plain", 0, nil, opts); err != nil {
		return nil, err
	}
	return p.Locker.Acquire(ctx, name, opts...)
}

// The negative control: a Locker that breaks a promise fails the case that is about
// it.
func TestFaultsAreFound(t *testing.T) {
	var wg sync.WaitGroup
	for name, control := range map[string]struct {
		faults Faults
		cases  []string // each of them has to fail
	}{
		"DoubleGrant":      {Faults{DoubleGrant: true}, []string{"Exclusion/Counter", "Exclusion/Expiring", "Waiting/Try", "Close/Waiters", "Shared/Together"}},
		"NoExpiry":         {Faults{NoExpiry: true}, []string{"Waiting/Expiry", "Release/AfterLoss", "AtMost/Ends"}},
		"TokenReset":       {Faults{TokenReset: true}, []string{"Token/Grows", "Exclusion/Counter"}},
		"ReleaseSuccessor": {Faults{ReleaseSuccessor: true}, []string{"Release/AfterLoss", "Lease/Stolen"}},
		"RenewSuccessor":   {Faults{RenewSuccessor: true}, []string{"Faults/Loss"}},
		"SilentLoss":       {Faults{SilentLoss: true}, []string{"Waiting/Expiry", "Lease/Clock", "Lease/Stolen", "Do/Lost", "Trace/Loss", "Faults/Loss", "Reentrant/Lost"}},
		"KeepGrant":        {Faults{KeepGrant: true}, []string{"Waiting/Done"}},
		"LastFirst":        {Faults{LastFirst: true}, []string{"Waiting/Order"}},
		"NoRenewal":        {Faults{NoRenewal: true}, []string{"Lease/Renewed", "Faults/OneRenewal"}},
		"ShortHold":        {Faults{ShortHold: true}, []string{"HoldAtLeast/Release", "HoldAtLeast/Close"}},
		"Endless":          {Faults{Endless: true}, []string{"AtMost/Ends", "AtMost/Shorter"}},
		"LooseGuard":       {Faults{LooseGuard: true}, []string{"Guard/Pins"}},
		"EarlyRelease":     {Faults{EarlyRelease: true}, []string{"ReleaseIn/Commit", "ReleaseIn/Rollback"}},
	} {
		for _, want := range control.cases {
			// All at once, which t.Parallel would not: they wait, most of the time.
			wg.Go(func() {
				failures := record(t, subject(&Memory{Faults: control.faults}), want)
				if len(failures) == 0 {
					t.Errorf("%s: %s passed", name, want)
					return
				}
				t.Logf("%s: %s: %s", name, want, failures[0])
			})
		}
	}
	wg.Wait()
}

// What a Subject does not declare, but does, is found; and what it declares, but
// does not.
func TestUndeclaredIsFound(t *testing.T) {
	for name, control := range map[string]struct {
		change func(s *Subject)
		failed string
		text   string
	}{
		"NoRenew accepted":     {func(s *Subject) { s.NoRenew = false }, "Refused/Options", "NoRenew is not declared, but accepted"},
		"AtMost accepted":      {func(s *Subject) { s.AtMost = false }, "Refused/Options", "AtMost is not declared, but accepted"},
		"HoldAtLeast accepted": {func(s *Subject) { s.HoldAtLeast = false }, "Refused/Options", "HoldAtLeast is not declared, but accepted"},
		"Shared accepted":      {func(s *Subject) { s.Shared = false }, "Refused/Options", "Shared is not declared, but accepted"},
		"Extend works":         {func(s *Subject) { s.Extend = false }, "Refused/Calls", "Extend is not declared"},
		"Guard works":          {func(s *Subject) { s.Guard = false }, "Refused/Calls", "Guard is not declared"},
		"a token":              {func(s *Subject) { s.Token = false }, "Refused/Calls", "Token is declared as false"},
		"options refused": {func(s *Subject) {
			make := s.New
			s.New = func(t testing.TB, opts ...lock.Option) lock.Locker { return plain{make(t, opts...)} }
		}, "Refused/Options", "NoRenew is declared, but refused"},
		"nothing runs out": {func(s *Subject) { s.NoRenew, s.Faults = false, nil }, "Waiting/Expiry", "neither NoRenew nor a fault"},
		"statements": {func(s *Subject) {
			n := int64(0)
			s.Statements = func() int64 { n++; return n }
		}, "Input/Names", "1 statements were sent"},
	} {
		t.Run(name, func(t *testing.T) {
			s := subject(new(Memory))
			control.change(&s)
			failures := record(t, s, control.failed)
			if !slices.ContainsFunc(failures, func(f string) bool { return strings.Contains(f, control.text) }) {
				t.Errorf("%s reports %q, and not %q", control.failed, failures, control.text)
			}
		})
	}
}

// Each name of a case is there once.
func TestNamesOfCases(t *testing.T) {
	seen := map[string]bool{}
	for _, c := range tests() {
		if group, rest, ok := strings.Cut(c.name, "/"); !ok || group == "" || rest == "" || seen[c.name] {
			t.Errorf("the case %q", c.name)
		}
		seen[c.name] = true
	}
}

// record runs one case and returns what it reports.
func record(t *testing.T, s Subject, name string) []string {
	t.Helper()
	i := slices.IndexFunc(tests(), func(c test) bool { return c.name == name })
	if i < 0 {
		t.Fatalf("there is no case %q", name)
	}
	r := &recorder{TB: t}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c := newCheck(r, s, name)
		c.patience = 4 * time.Second
		tests()[i].run(c)
	}()
	<-done
	r.end()
	return r.failures
}

// recorder is a testing.TB whose failures fail nothing.
type recorder struct {
	testing.TB
	mu       sync.Mutex
	failures []string
	cleanups []func()
}

func (r *recorder) note(text string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, text)
}

func (r *recorder) Error(args ...any)                 { r.note(fmt.Sprint(args...)) }
func (r *recorder) Errorf(format string, args ...any) { r.note(fmt.Sprintf(format, args...)) }
func (r *recorder) Fatal(args ...any)                 { r.Error(args...); runtime.Goexit() }
func (r *recorder) Fatalf(format string, args ...any) { r.Errorf(format, args...); runtime.Goexit() }
func (r *recorder) FailNow()                          { r.note("FailNow"); runtime.Goexit() }
func (r *recorder) Fail()                             { r.note("Fail") }
func (r *recorder) Helper()                           {}
func (r *recorder) Log(...any)                        {}
func (r *recorder) Logf(string, ...any)               {}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.failures) > 0
}

func (r *recorder) Cleanup(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.cleanups = append(r.cleanups, f)
}

// end runs the cleanups, the last one first.
func (r *recorder) end() {
	for {
		r.mu.Lock()
		n := len(r.cleanups)
		if n == 0 {
			r.mu.Unlock()
			return
		}
		f := r.cleanups[n-1]
		r.cleanups = r.cleanups[:n-1]
		r.mu.Unlock()
		f()
	}
}
