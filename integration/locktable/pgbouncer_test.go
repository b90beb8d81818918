package locktable_test

import (
	"testing"

	"github.com/sqlnative/locks/integration/pooler"
	"github.com/sqlnative/locks/sqldb"
)

// Through PgBouncer in transaction mode every statement may meet another session of the server: nothing of a lock may
// live in one.
func TestPgBouncer(t *testing.T) {
	fresh := migrated(t, sqldb.Postgres)
	dsn := pooler.Start(t, fresh.DSN, "transaction")
	for _, way := range []struct {
		name string
		flavour
		suffix string
	}{
		// What PgBouncer asks of drivers in this mode: no prepared statements that outlive a transaction.
		{"pgxpool exec", flavour{"", sqldb.Postgres, ""}, "&default_query_exec_mode=exec"},
		{"pgxpool simple protocol", flavour{"", sqldb.Postgres, ""}, "&default_query_exec_mode=simple_protocol&client_encoding=UTF8"},
		{"pgx stdlib exec", flavour{"", sqldb.Postgres, "pgx"}, "&default_query_exec_mode=exec"},
		{"lib pq", flavour{"", sqldb.Postgres, "postgres"}, "&binary_parameters=yes"},
	} {
		t.Run(way.name, func(t *testing.T) {
			t.Parallel()
			// PgBouncer does not hand search_path on, and must not have to: the tables are named with their schema.
			schema := sqldb.Schema(fresh.Schema())
			serves(t, way.open(t, dsn+way.suffix, 8, schema), way.open(t, dsn+way.suffix, 8, schema))
		})
	}
}
