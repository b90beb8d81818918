package locktable_test

import (
	"context"
	"net/url"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/sqlnative/locks/integration/testdb/control"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// use has a lock several times, and returns the last token.
func use(t *testing.T, l lock.Locker, after int64) int64 {
	t.Helper()
	for range 5 {
		got := acquire(t, l, "job", lock.TTL(time.Second))
		if got.Token() <= after {
			t.Errorf("token %d after %d", got.Token(), after)
		}
		after = got.Token()
		release(t, got)
	}
	return after
}

// Tokens grow through a restart and a crash of the server.
func TestTokensGrowThroughRestart(t *testing.T) {
	for _, kind := range []sqldb.Kind{sqldb.Postgres, sqldb.MySQL, sqldb.MariaDB} {
		for name, verb := range map[string]func(*control.Server, context.Context) error{
			"restart": (*control.Server).Restart,
			"crash": func(s *control.Server, ctx context.Context) error {
				if err := s.Kill(ctx); err != nil {
					return err
				}
				return s.Start(ctx)
			},
		} {
			t.Run(kind.String()+"/"+name, func(t *testing.T) {
				fresh := migrated(t, kind)
				server, ok := control.Of(kind.String())
				if !ok {
					t.Skip("this needs a server that testdb started: run it under integration/testdb")
				}
				l := locker(t, fresh.DB)
				last := use(t, l, 0)
				// Held over the restart, of which its holder need not know.
				mine := acquire(t, l, "held")
				err := verb(server, t.Context())
				if err != nil {
					t.Fatal(err)
				}
				use(t, locker(t, fresh.Another(t).DB), last)
				// The old pool has connections to the server as it was; each is an error, once.
				if !within(10*time.Second, func() bool { err = guarded(t.Context(), fresh.DB, mine); return err == nil }) {
					t.Errorf("a lock of 30 s is lost through a restart: %v", err)
				}
				release(t, mine)
			})
		}
	}
}

// Tokens grow through the restore of a dump that knows nothing of the last ones.
func TestTokensGrowThroughRestore(t *testing.T) {
	each(t, sqldb.Kinds(), func(t *testing.T, fresh *dbtest.DB) {
		l := locker(t, fresh.DB)
		old := use(t, l, 0)
		restore := dump(t, fresh)
		last := use(t, l, old)
		restore()
		var stored int64
		if err := fresh.QueryRow(t.Context(), "SELECT token FROM "+fresh.Table("locks")+" WHERE name = 'job'").Scan(&stored); err != nil {
			t.Fatal(err)
		}
		if stored != old || stored+1 > last {
			t.Errorf("the dump has token %d, and the last one was %d: a counter would not have repeated one, so this tests nothing", stored, last)
		}
		use(t, l, last)
	})
}

// dump keeps the table as it is, and returns what brings it back: by PostgreSQL's own tools where they are there and of
// the server's version, else by a copy of the table.
func dump(t *testing.T, fresh *dbtest.DB) (restore func()) {
	t.Helper()
	table := fresh.Table("locks")
	if fresh.Kind() == sqldb.Postgres {
		u, err := url.Parse(fresh.DSN)
		if err != nil {
			t.Fatal(err)
		}
		password, _ := u.User.Password()
		run := func(name string, args ...string) ([]byte, error) {
			cmd := exec.CommandContext(t.Context(), name, append(args, "-h", u.Hostname(), "-p", u.Port(), "-U", u.User.Username(), "-d", u.Path[1:])...)
			cmd.Env = append(os.Environ(), "PGPASSWORD="+password)
			return cmd.Output()
		}
		text, err := run("pg_dump", "--clean", "--table", table)
		if err == nil {
			file := t.TempDir() + "/dump.sql"
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			return func() {
				if _, err := run("psql", "-q", "-v", "ON_ERROR_STOP=1", "-f", file); err != nil {
					t.Fatalf("psql: %v", err)
				}
			}
		}
		t.Logf("pg_dump: %v; the table is copied instead", err)
	}
	fresh.MustExec(t, "CREATE TABLE yesterday AS SELECT * FROM "+table)
	return func() { fresh.MustExec(t, "DELETE FROM "+table, "INSERT INTO "+table+" SELECT * FROM yesterday") }
}
