package migrations_test

import (
	"context"
	"database/sql"
	"testing"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// TestBesideGoose: the application has goose too, its own table of versions, and
// migrations in goose's global registry whose numbers are ours as well.
func TestBesideGoose(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		ran := 0
		t.Cleanup(goose.ResetGlobalMigrations)
		err := goose.SetGlobalMigrations(
			goose.NewGoMigration(1, &goose.GoFunc{RunTx: func(ctx context.Context, tx *sql.Tx) error {
				ran++
				_, err := tx.ExecContext(ctx, "CREATE TABLE app (id INT PRIMARY KEY)")
				return err
			}}, nil),
			goose.NewGoMigration(99, nil, nil),
		)
		if err != nil {
			t.Fatal(err)
		}
		dialect := map[sqldb.Kind]goose.Dialect{
			sqldb.Postgres: goose.DialectPostgres, sqldb.MySQL: goose.DialectMySQL,
			sqldb.MariaDB: goose.DialectMySQL, sqldb.SQLite: goose.DialectSQLite3,
		}[db.Kind()]
		application := func() int64 {
			p, err := goose.NewProvider(database.Dialect(dialect), db.SQL, nil)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Up(t.Context()); err != nil {
				t.Fatal(err)
			}
			v, err := p.GetDBVersion(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		up(t, db.DB)
		if ran != 0 {
			t.Error("Up ran a migration of the application")
		}
		if v := application(); v != 99 || ran != 1 {
			t.Errorf("the application's version: %d, %d", v, ran)
		}
		up(t, db.DB)
		wantVersion(t, db.DB, latest)
		wantClean(t, db.DB)
		down(t, db.DB, migrations.To(0))
		up(t, db.DB)
		if v := application(); v != 99 || ran != 1 {
			t.Errorf("the application's version: %d, %d", v, ran)
		}
		if err := db.SQL.PingContext(t.Context()); err != nil {
			t.Errorf("the pool: %v", err)
		}
	})
}
