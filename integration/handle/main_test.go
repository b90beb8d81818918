package handle_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlnative/locks/internal/dbtest"
)

func TestMain(m *testing.M) {
	dbtest.Parallel(8)
	// puzpuzpuz/xsync and GORM's cache of statements run a janitor for each cache.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("gorm.io/gorm/internal/lru.NewLRU[...].func1"))
}
