package sqldb_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlnative/locks/internal/dbtest"
)

func TestMain(m *testing.M) {
	dbtest.Parallel(4)
	goleak.VerifyTestMain(m)
}
