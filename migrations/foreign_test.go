package migrations_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/internal/schema"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// theirs makes a table of the user's, with a row in it.
func theirs(t *testing.T, db *dbtest.DB, name string) {
	t.Helper()
	db.MustExec(t, "CREATE TABLE "+name+" (id INT PRIMARY KEY, version INT, name VARCHAR(100), crontab VARCHAR(100))",
		"INSERT INTO "+name+" VALUES (1, 1, 'nightly', '0 3 * * *')")
}

func wantTheirs(t *testing.T, db *dbtest.DB, name string) {
	t.Helper()
	var n int
	if err := db.QueryRow(t.Context(), "SELECT count(*) FROM "+name+" WHERE crontab = '0 3 * * *'").Scan(&n); err != nil || n != 1 {
		t.Errorf("%s: %d rows, %v", name, n, err)
	}
}

// wantForeign: the text has a hole where the first difference stands.
func wantForeign(t *testing.T, err error, text string) {
	t.Helper()
	front, back, _ := strings.Cut(text, "…")
	if got := fmt.Sprint(err); !errors.Is(err, migrations.ErrForeign) || !strings.HasPrefix(strings.TrimPrefix(got, "migrations: "), front) || !strings.Contains(got, back) {
		t.Errorf("want an ErrForeign with %q, got: %v", text, err)
	}
}

// TestTheirTable: an empty prefix, and an application that has a table of the name
// of one of ours.
func TestTheirTable(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		ctx := t.Context()
		name := "jobs"
		if db.Kind() == sqldb.SQLite {
			name = "Jobs" // the same table to SQLite
		}
		theirs(t, db, name)
		before := objects(t, db)
		nothing := migrations.DryRun(func(s migrations.Step) { t.Errorf("%s would be taken", s) })

		// Nothing is begun, not even the table of versions.
		const text = "table jobs is there already and is not sqllock's (…): choose another --table-prefix"
		wantForeign(t, migrations.Up(ctx, db.DB), text)
		wantForeign(t, migrations.Up(ctx, db.DB, nothing), text)
		if after := objects(t, db); !slices.Equal(before, after) {
			t.Fatalf("made: %v", after)
		}

		// Nor from a version on that does not have it yet; what is ours can go again.
		up(t, db.DB, migrations.To(5))
		wantForeign(t, migrations.Up(ctx, db.DB), text)
		wantVersion(t, db.DB, 5)
		down(t, db.DB, migrations.To(0))
		if after := objects(t, db); !slices.Equal(before, after) {
			t.Fatalf("left: %v", after)
		}

		// A release that recorded it nevertheless: it is not dropped, and nothing before it.
		db.MustExec(t, "DROP TABLE "+name)
		up(t, db.DB)
		db.MustExec(t, "DROP TABLE jobs")
		theirs(t, db, name)
		before = objects(t, db)
		const kept = "table jobs is not as sqllock made it (…), and is not dropped"
		wantForeign(t, migrations.Down(ctx, db.DB, migrations.To(0)), kept)
		wantForeign(t, migrations.Down(ctx, db.DB, migrations.To(0), nothing), kept)
		wantVersion(t, db.DB, latest)
		if after := objects(t, db); !slices.Equal(before, after) {
			t.Fatalf("left: %v", after)
		}
		down(t, db.DB) // the one above it
		wantForeign(t, migrations.Down(ctx, db.DB), kept)
		wantTheirs(t, db, name)
		db.MustExec(t, "DROP TABLE "+name)
		down(t, db.DB, migrations.To(0))
	}, sqldb.TablePrefix(""))
}

// TestTheirTableMeanwhile: it is made after Up has looked at everything.
func TestTheirTableMeanwhile(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		err := migrations.Up(t.Context(), db.DB, migrations.Before(func(s migrations.Step, statement int) error {
			if s.Version == 5 && statement == 0 {
				theirs(t, db, "sqllock_jobs")
			}
			return nil
		}))
		wantForeign(t, err, "table sqllock_jobs is there already")
		wantVersion(t, db.DB, 5)
		wantTheirs(t, db, "sqllock_jobs")
	})
}

// TestTheirIndex: IF NOT EXISTS looks at the name of an index, not at its table.
func TestTheirIndex(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres, sqldb.SQLite}, func(t *testing.T, db *dbtest.DB) {
		theirs(t, db, "mine")
		db.MustExec(t, "CREATE INDEX reservations_open ON mine (name)")
		before := objects(t, db)
		wantForeign(t, migrations.Up(t.Context(), db.DB), "index reservations_open is there already and is not sqllock's: choose another --table-prefix")
		if after := objects(t, db); !slices.Equal(before, after) {
			t.Fatalf("made: %v", after)
		}
		db.MustExec(t, "DROP INDEX reservations_open")
		up(t, db.DB)
		wantClean(t, db.DB)
	}, sqldb.TablePrefix(""))
}

// TestTheirVersions: the table of versions of something else.
func TestTheirVersions(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		theirs(t, db, "schema_version")
		_, status := migrations.Status(t.Context(), db.DB)
		_, check := migrations.Check(t.Context(), db.DB)
		for _, err := range []error{
			migrations.Up(t.Context(), db.DB), migrations.Down(t.Context(), db.DB, migrations.To(0)), status, check, schema.Ready(t.Context(), db.DB),
		} {
			wantForeign(t, err, "table schema_version is there already and is not sqllock's: choose another --table-prefix")
		}
		wantTheirs(t, db, "schema_version")
	}, sqldb.TablePrefix(""))
	// One that could be taken for ours, and is empty as ours is after the last Down.
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		db.MustExec(t, "CREATE TABLE schema_version (version INT PRIMARY KEY, compatible INT)")
		wantForeign(t, migrations.Down(t.Context(), db.DB, migrations.To(0)), "table schema_version is not as sqllock made it")
		db.MustExec(t, "DROP TABLE schema_version")
	}, sqldb.TablePrefix(""))
}

// TestOursUnrecorded: a table that is what is needed, but for the record of it, and
// on PostgreSQL and SQLite for what further statements make.
func TestOursUnrecorded(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		for _, m := range schema.Migrations(db.Kind()) {
			db.MustExec(t, schema.PlaceOf(db.DB).Render(m.Up[0]))
		}
		up(t, db.DB)
		wantClean(t, db.DB)
		down(t, db.DB, migrations.To(0))
	})
}

// TestFixes runs what Check says is to be done.
func TestFixes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		up(t, db.DB)
		drop := "DROP INDEX " + db.Table("reservations_open")
		if db.Kind().InnoDB() {
			drop = "ALTER TABLE " + db.Table("reservations") + " DROP KEY reservations_open"
		}
		var ruin []string
		for _, table := range schema.Tables(db.Kind()) {
			if table.Name != "reservations" {
				for _, c := range table.Columns {
					if (c.Null || c.Default) && !slices.Contains(table.Key, c.Name) && table.Name != "reservation_lines" {
						ruin = append(ruin, "ALTER TABLE "+db.Table(table.Name)+" DROP COLUMN "+c.Name)
					}
				}
			}
		}
		db.MustExec(t, append(ruin, drop, "DROP TABLE "+db.Table("reservation_lines"))...)
		db.MustExec(t, "INSERT INTO "+db.Table("locks")+" (name) VALUES ('a')") // a row, which each column has to fit
		problems, err := migrations.Check(t.Context(), db.DB)
		if err != nil || len(problems) != len(ruin)+2 {
			t.Fatalf("%d sabotages, %d problems: %v, %v", len(ruin)+2, len(problems), problems, err)
		}
		for _, p := range problems {
			db.MustExec(t, statements(p.Fix+"\n")...)
		}
		wantClean(t, db.DB)

		// What rows cannot have a value in.
		db.MustExec(t, "ALTER TABLE "+db.Table("tickets")+" DROP COLUMN owner")
		problems, err = migrations.Check(t.Context(), db.DB)
		if err != nil || len(problems) != 1 || !strings.Contains(problems[0].Fix, "drop the table, and make it again:\nCREATE TABLE") {
			t.Errorf("%v, %v", problems, err)
		}
	})
}
