package sqlitedb_test

import (
	"database/sql"
	"path/filepath"
	"sync"
	"testing"

	_ "modernc.org/sqlite"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb/sqlitedb"
)

// Many open a file at once that is not there yet, each with a pool of its own, as
// processes do.
func TestFreshFileOpenedByMany(t *testing.T) {
	for range 20 {
		dsn := dbtest.FileDSN(filepath.Join(t.TempDir(), "fresh.db"))
		var wg sync.WaitGroup
		start := make(chan struct{})
		for range 8 {
			wg.Go(func() {
				pool, err := sql.Open("sqlite", dsn)
				if err != nil {
					t.Error(err)
					return
				}
				defer func() { _ = pool.Close() }()
				<-start
				if _, err := sqlitedb.New(t.Context(), pool); err != nil {
					t.Error(err)
				}
			})
		}
		close(start)
		wg.Wait()
	}
}
