package dbtest

import (
	"flag"
	"os"
	"strconv"
)

// Long reports whether there is time: SQLLOCK_TEST_LONG=1 has tests run for longer.
func Long() bool { return os.Getenv("SQLLOCK_TEST_LONG") == "1" }

// Parallel has at least so many tests of this binary run at once, unless -parallel
// says something else. A TestMain calls it whose tests wait, for leases and for servers,
// more than they work: there may be more of them than there are processors.
func Parallel(least int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	n := flag.Lookup("test.parallel").Value
	if now, err := strconv.Atoi(n.String()); !given && err == nil && now < least {
		_ = n.Set(strconv.Itoa(least))
	}
}

// Run is a run of tests in the form that goleak.VerifyTestMain takes: one that has
// locktest.Main run inside it.
type Run func() int

// Run runs the tests.
func (r Run) Run() int { return r() }
