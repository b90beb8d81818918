package advisory_test

import (
	"flag"
	"runtime"
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlnative/locks/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withChildren{m}) }

// withChildren has locktest.Main run inside TestMain.
type withChildren struct{ m *testing.M }

func (w withChildren) Run() int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given && runtime.GOMAXPROCS(0) < 8 {
		_ = flag.Set("test.parallel", "8") // the cases of the suite wait more than they work
	}
	return locktest.Main(w.m, map[string]locktest.Child{"hold": hold})
}
