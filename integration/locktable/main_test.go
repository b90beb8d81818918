package locktable_test

import (
	"fmt"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlnative/locks/internal/dbtest"
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" { // this is one of the processes of a test
		if err := play(role); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dbtest.Parallel(8)
	goleak.VerifyTestMain(quiet{m})
}

// quiet closes what package control has left open for its next request.
type quiet struct{ *testing.M }

func (q quiet) Run() int {
	defer http.DefaultClient.CloseIdleConnections()
	return q.M.Run()
}
