package locktable_test

import (
	"context"
	"database/sql"

	"github.com/sqlnative/locks/sqldb"
)

// dial opens a pool that lives as long as the process.
func dial(ctx context.Context, kind sqldb.Kind, dsn string) (*sqldb.DB, error) {
	pool, err := sql.Open(drivers[kind.String()], dsn)
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(12)
	return adapt(ctx, kind, pool)
}
