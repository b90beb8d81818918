package migrations

import (
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
)

// A node of a Galera cluster is no reason to refuse: see the package's documentation.
func TestUpOnGalera(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		node, err := mysqldb.New(t.Context(), db.Galera(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := Up(t.Context(), node); err != nil {
			t.Error(err)
		}
	})
}
