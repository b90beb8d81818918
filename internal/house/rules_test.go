package house

// module is this module's path.
const module = "github.com/sqlnative/locks"

// A rule says what a folder's files may import, besides the standard library. Test files are free, but for
// testcontainers.
type rule struct {
	folder string // "cmd/*" stands for each folder in cmd, and for the folders in those
	// uses are folders of this module. What those may use is allowed as well: whoever may import lock may name the
	// sqldb types in its functions.
	uses []string
	// modules are other people's, by path. These are not handed on: a driver stays in its adapter.
	modules []string
}

// The other people's modules that matter.
const (
	pgx    = "github.com/jackc/pgx/v5"
	mysql  = "github.com/go-sql-driver/mysql"
	sqlite = "modernc.org/sqlite"
	goose  = "github.com/pressly/goose/v3"
	cobra  = "github.com/spf13/cobra"
	pretty = "github.com/jedib0t/go-pretty/v6"
	term   = "golang.org/x/term"
)

// rules are the house, from the ground up: a folder uses only folders that stand above it in this table, so there are
// no circles. The strategies (sqllock, advisory, optimistic, optimistic/stock) do not stand in each other's lines.
func rules() []rule {
	drivers := []string{pgx, mysql, sqlite}
	public := []string{
		"sqldb", "sqldb/pgdb", "sqldb/mysqldb", "sqldb/sqlitedb", "lock", "lock/locktest",
		"sqllock", "advisory", "optimistic", "optimistic/stock", "joblock", "migrations",
	}
	with := func(more ...string) []string { return append(more, public...) }
	return []rule{
		{folder: "."}, // the module's own doc comment

		{folder: "sqldb"},
		{folder: "sqldb/internal/std", uses: []string{"sqldb"}}, // what the adapters for database/sql have in common
		{folder: "sqldb/pgdb", uses: []string{"sqldb", "sqldb/internal/std"}, modules: []string{pgx}},
		{folder: "sqldb/mysqldb", uses: []string{"sqldb", "sqldb/internal/std"}, modules: []string{mysql}},
		{folder: "sqldb/sqlitedb", uses: []string{"sqldb", "sqldb/internal/std"}, modules: []string{sqlite}},

		{folder: "internal/schema", uses: []string{"sqldb"}},
		{folder: "internal/waitq"},
		{folder: "internal/rowkey"},
		{folder: "internal/guardian"}, // has to be initialised before everything else

		{folder: "lock", uses: []string{"sqldb"}},
		{folder: "lock/locktest", uses: []string{"lock"}},

		{folder: "sqllock", uses: []string{"lock", "internal/schema", "internal/waitq"}},
		{folder: "advisory", uses: []string{"lock", "internal/waitq"}},
		{folder: "optimistic", uses: []string{"sqldb", "internal/rowkey"}},
		{folder: "optimistic/stock", uses: []string{"sqldb", "internal/rowkey"}},

		{folder: "joblock", uses: []string{"lock", "internal/schema"}},
		{folder: "migrations", uses: []string{"internal/schema", "advisory"}, modules: []string{goose}},

		{folder: "internal/dsn", uses: []string{"sqldb", "sqldb/pgdb", "sqldb/mysqldb", "sqldb/sqlitedb"}, modules: drivers},
		{folder: "internal/cli", uses: []string{"internal/dsn"}, modules: []string{cobra, pretty, term}},
		{folder: "internal/cli/clitest", uses: []string{"internal/dsn"}},

		{folder: "internal/dbtest", uses: with("internal/schema", "internal/dsn"), modules: drivers},
		{folder: "internal/house"},
		{folder: "internal/bench", uses: with("internal/dsn"), modules: drivers},

		{folder: "cmd/*", uses: with("internal/schema", "internal/dsn", "internal/cli", "internal/guardian"), modules: append([]string{cobra}, drivers...)},
		{folder: "examples/*", uses: with("internal/dsn"), modules: drivers},
	}
}
