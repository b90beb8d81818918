package handle_test

import (
	"context"
	"strings"
	"testing"

	"github.com/sqlnative/locks/integration/testdb/control"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
)

// A server that is read-only is refused with the reason, also to a user who may write
// there all the same. That is a setting of the whole server, so it has to be one that
// testdb started, and the test does not run beside others.
func TestReadOnlyServer(t *testing.T) {
	for _, kind := range []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB} {
		t.Run(kind.String(), func(t *testing.T) {
			if _, ok := control.Of(kind.String()); !ok {
				t.Skip("this needs a server that testdb started: run it under integration/testdb")
			}
			fresh := dbtest.New(t, kind)
			writable := func() {
				if _, err := fresh.SQL.ExecContext(context.WithoutCancel(t.Context()), "SET GLOBAL read_only = 0"); err != nil {
					t.Error(err)
				}
			}
			defer writable()
			fresh.MustExec(t, "SET GLOBAL read_only = 1")
			if _, err := mysqldb.New(t.Context(), fresh.SQL); err == nil || !strings.Contains(err.Error(), "read_only is") || !strings.Contains(err.Error(), "connect to the primary") {
				t.Errorf("it is accepted: %v", err)
			}
			writable()
			if _, err := mysqldb.New(t.Context(), fresh.SQL); err != nil {
				t.Errorf("afterwards: %v", err)
			}
		})
	}
}
