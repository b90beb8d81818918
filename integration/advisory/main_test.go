package advisory_test

import (
	"net/http"
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlnative/locks/internal/dbtest"
)

func TestMain(m *testing.M) {
	dbtest.Parallel(8)
	goleak.VerifyTestMain(quiet{m})
}

// quiet closes what package control has left open for its next request.
type quiet struct{ *testing.M }

func (q quiet) Run() int {
	defer http.DefaultClient.CloseIdleConnections()
	return q.M.Run()
}
