package lock_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlnative/locks/internal/dbtest"

	"github.com/sqlnative/locks/lock/locktest"
)

// withChildren has locktest.Main run inside TestMain.
type withChildren struct{ m *testing.M }

func (w withChildren) Run() int {
	dbtest.Parallel(8)
	return locktest.Main(w.m, map[string]locktest.Child{"campaign": campaignChild})
}

func TestMain(m *testing.M) { goleak.VerifyTestMain(withChildren{m}) }
