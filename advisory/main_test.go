package advisory_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock/locktest"
)

func TestMain(m *testing.M) {
	dbtest.Parallel(8)
	goleak.VerifyTestMain(dbtest.Run(func() int {
		return locktest.Main(m, map[string]locktest.Child{"hold": hold})
	}))
}
