package joblock_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
)

// serializable returns the database through connections for which everything is
// SERIALIZABLE.
func serializable(t *testing.T, db *dbtest.DB) *sqldb.DB {
	t.Helper()
	switch db.Kind() {
	case sqldb.SQLite: // always is
		return db.DB
	case sqldb.Postgres:
		u, err := url.Parse(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set("default_transaction_isolation", "serializable")
		u.RawQuery = q.Encode()
		other := *db
		other.DSN = u.String()
		return other.Another(t).DB
	}
	pool := db.OpenSQL(t, func(c *mysql.Config) {
		name := "transaction_isolation"
		if db.Kind() == sqldb.MariaDB {
			name = "tx_isolation"
		}
		c.Params = map[string]string{name: "'SERIALIZABLE'"}
	})
	strict, err := mysqldb.New(t.Context(), pool)
	if err != nil {
		t.Fatal(err)
	}
	return strict
}

// Many jobs at once, where the default of the database is SERIALIZABLE: what the server
// rolls back is repeated, and every run is recorded once.
func TestSerializable(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		migrated(t, db)
		s := &site{DB: db}
		p := s.processOn(t, serializable(t, db))
		const jobs, rounds = 6, 4
		var wg sync.WaitGroup
		for i := range jobs {
			wg.Go(func() {
				broken := errors.New("broken")
				for n := range rounds {
					res, err := p.Run(t.Context(), joblock.Job{Name: fmt.Sprint("job", i), Every: time.Hour, RetryFailed: true}, func(context.Context) error { return broken })
					if !res.Ran || res.Outcome != joblock.Failed || !errors.Is(err, broken) || strings.Contains(err.Error(), "could not be written") {
						t.Errorf("job %d, run %d: %s, %v", i, n, res, err)
					}
				}
			})
		}
		wg.Wait()
		for i := range jobs {
			for _, r := range history(t, p, fmt.Sprint("job", i), rounds) {
				if r.Outcome != joblock.Failed {
					t.Errorf("%+v", r)
				}
			}
		}
	})
}
