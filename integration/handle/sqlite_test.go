package handle_test

import (
	"database/sql"
	"fmt"
	"testing"

	_ "github.com/ncruces/go-sqlite3/driver" // the driver "sqlite3"

	"github.com/sqlnative/locks/integration/handle/sqlitetest"
)

// Both drivers that need no cgo; mattn's is in a package of its own.
func TestSQLiteDrivers(t *testing.T) {
	for name, driver := range map[string]string{"modernc": "sqlite", "ncruces": "sqlite3"} {
		t.Run(name, func(t *testing.T) {
			sqlitetest.Run(t, func(path string, s sqlitetest.Settings) (*sql.DB, error) {
				dsn := fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)&_pragma=journal_mode(WAL)&_txlock=immediate", path, s.Busy.Milliseconds())
				if s.Pages > 0 {
					dsn += fmt.Sprintf("&_pragma=max_page_count(%d)", s.Pages)
				}
				return sql.Open(driver, dsn)
			})
		})
	}
}
