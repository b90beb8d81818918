//go:build cgo

package mattn_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"fmt"
	"testing"

	"github.com/mattn/go-sqlite3"

	"github.com/sqlnative/locks/integration/handle/sqlitetest"
)

func TestMattn(t *testing.T) {
	sqlitetest.Run(t, func(path string, s sqlitetest.Settings) (*sql.DB, error) {
		d := &sqlite3.SQLiteDriver{ConnectHook: func(c *sqlite3.SQLiteConn) error {
			if s.Pages == 0 {
				return nil
			}
			_, err := c.Exec(fmt.Sprintf("PRAGMA max_page_count = %d", s.Pages), nil)
			return err
		}}
		dsn := fmt.Sprintf("file:%s?_busy_timeout=%d&_journal_mode=WAL&_txlock=immediate", path, s.Busy.Milliseconds())
		return sql.OpenDB(connector{d, dsn}), nil
	})
}

// connector is what sql.Open makes of a driver that is registered.
type connector struct {
	d   *sqlite3.SQLiteDriver
	dsn string
}

func (c connector) Connect(context.Context) (driver.Conn, error) { return c.d.Open(c.dsn) }
func (c connector) Driver() driver.Driver                        { return c.d }
