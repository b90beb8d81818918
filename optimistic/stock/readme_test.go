package stock

import (
	"os"
	"strings"
	"testing"

	"github.com/sqlnative/locks/sqldb"
)

// The SQL that the README shows to a DBA is the SQL that runs.
func TestReadmeSQL(t *testing.T) {
	b, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	fold := func(s string) string { return strings.Join(strings.Fields(s), " ") }
	readme := fold(string(b))
	for _, kind := range []sqldb.Kind{sqldb.Postgres, sqldb.MySQL, sqldb.SQLite} {
		q := quoted{table: kind.Quote("t_bonus"), id: kind.QuoteColumn("id"), count: kind.QuoteColumn("left_count"), version: kind.QuoteColumn("version")}
		want := statementsFor(kind, q).take.query
		if kind == sqldb.MySQL { // its arguments stand in the text
			for _, arg := range []string{"1", "10001", "1"} {
				want = strings.Replace(want, "?", arg, 1)
			}
		}
		if !strings.Contains(readme, fold(want)) {
			t.Errorf("README.md does not show what runs on %s:\n%s", kind, want)
		}
	}
}
