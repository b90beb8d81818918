package advisory_test

import (
	"flag"
	"runtime"
	"strconv"
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlnative/locks/lock/locktest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(withChildren{m}) }

// parallel is how many tests run at once: they wait more than they work.
const parallel = 20

// withChildren has locktest.Main run inside TestMain.
type withChildren struct{ m *testing.M }

func (w withChildren) Run() int {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given && runtime.GOMAXPROCS(0) < parallel {
		_ = flag.Set("test.parallel", strconv.Itoa(parallel))
	}
	return locktest.Main(w.m, map[string]locktest.Child{"hold": hold})
}
