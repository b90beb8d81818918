package locktest

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// Subject is a strategy under test, with what it says that it can do. What it does
// not declare, it has to refuse with [errors.ErrUnsupported]: an option, a call, that
// it neither declares nor refuses fails the suite.
type Subject struct {
	// New makes one more Locker on the same database, as another process would have
	// it. The suite closes it.
	New func(t testing.TB, opts ...lock.Option) lock.Locker

	// Token: locks have fencing tokens. Else Token() is 0.
	Token bool
	// Holder: a [*lock.HeldError] says who holds the lock, since when and for how long.
	Holder bool
	// Guard: Guard and ReleaseIn work, in transactions of Begin.
	Guard bool
	// Extend works.
	Extend bool
	// NoRenew, AtMost, HoldAtLeast, Shared: the options are honoured.
	NoRenew, AtMost, HoldAtLeast, Shared bool

	// Begin begins a transaction; needed for Guard. Ending one that has ended is an
	// error that the suite does not look at.
	Begin func(t testing.TB) (tx *sqldb.Tx, commit, rollback func() error)
	// GuardBlocks: while a transaction guards a lock, others wait for it in the
	// database, since that has one lock for all that is written (SQLite).
	GuardBlocks bool
	// Steal takes a lock away without telling its holder, as an operator would.
	// Optional.
	Steal func(t testing.TB, name string, token int64)
	// Faults cut a Locker off from its database.
	Faults []Fault
	// Statements counts the statements that the Lockers have sent so far. Optional.
	Statements func() int64

	// TTL is the shortest lease that the suite may ask for. Default 400 ms.
	TTL time.Duration
	// MinTTL is the shortest TTL that the strategy takes. Default [lock.MinTTL].
	MinTTL time.Duration
	// Skip names cases that are left out, and says why.
	Skip map[string]string
	// Only names groups ("Guard") or cases ("Lease/Renewed") to which the suite keeps:
	// for a further configuration of a strategy that has passed all of it. Default: all.
	Only []string
}

// Fault is a way for a Locker's database to go away.
type Fault struct {
	Name string
	// Break cuts off what New has made, until heal is called.
	Break func(t testing.TB, l lock.Locker) (heal func())
	// Silent: nothing answers any more, not even with an error.
	Silent bool
}

// A test is one case of the suite. It sees a [testing.TB] only, so that the tests of
// the suite can let it fail.
type test struct {
	name string
	run  func(c *check)
	// need says what the Subject has to declare for the case to make sense. A Subject
	// that does not is covered by the group Refused.
	need func(s *Subject) bool
}

// tests are all cases.
func tests() []test {
	return slices.Concat(inputTests(), refusedTests(), exclusionTests(), waitingTests(), leaseTests(), boundTests(),
		faultTests(), releaseTests(), closeTests(), reentrantTests(), doTests(), tokenTests(), sharedTests(), traceTests(), guardTests())
}

// Run runs the suite: one subtest for each case. Cases that mostly wait run in
// parallel, after those that put a load on the database, or count its statements; so
// the functions of s have to be safe for concurrent use, and some cases run only when
// the test function that calls Run has returned.
func Run(t *testing.T, s Subject) {
	t.Helper()
	if s.New == nil || s.Guard && s.Begin == nil {
		t.Fatal("locktest: the Subject needs New, and Begin if it declares Guard")
	}
	if s.TTL == 0 {
		s.TTL = 400 * time.Millisecond
	}
	if s.MinTTL == 0 {
		s.MinTTL = lock.MinTTL
	}
	known := map[string]bool{}
	groups := map[string]bool{}
	for _, test := range tests() {
		known[test.name] = true
		group, _, _ := strings.Cut(test.name, "/")
		groups[group] = true
		if test.need != nil && !test.need(&s) || len(s.Only) > 0 && !slices.Contains(s.Only, group) && !slices.Contains(s.Only, test.name) {
			continue
		}
		t.Run(test.name, func(t *testing.T) {
			if why := s.Skip[test.name]; why != "" {
				t.Skip(why)
			}
			defer func() {
				if t.Skipped() {
					t.Errorf("%s was skipped, which the Subject does not declare", test.name)
				}
			}()
			if !slices.Contains([]string{"Input", "Refused", "Exclusion", "Guard", "ReleaseIn"}, group) {
				t.Parallel()
			}
			test.run(newCheck(t, s, test.name))
		})
	}
	for name, why := range s.Skip {
		if !known[name] || why == "" {
			t.Errorf("locktest: Skip names %q, because %q: there has to be such a case, and a reason", name, why)
		}
	}
	for _, name := range s.Only {
		if !known[name] && !groups[name] {
			t.Errorf("locktest: Only names %q: there is no such group or case", name)
		}
	}
}
