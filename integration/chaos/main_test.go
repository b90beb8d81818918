package chaos_test

import (
	"fmt"
	"net/http"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlnative/locks/internal/dbtest"
)

func TestMain(m *testing.M) {
	if os.Getenv(workerEnv) != "" { // this is one of the processes of the run
		if err := work(); err != nil {
			fmt.Fprintln(os.Stderr, "worker:", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	dbtest.Parallel(4)
	goleak.VerifyTestMain(quiet{m})
}

// quiet closes what package control has left open for its next request.
type quiet struct{ *testing.M }

func (q quiet) Run() int {
	defer http.DefaultClient.CloseIdleConnections()
	return q.M.Run()
}
