package sqllock_test

import (
	"context"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/lock/locktest"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// subject is the lock table on db, whose tables it makes. Its Lockers share the
// pool; each has a line of its own that can be cut.
func subject(t testing.TB, db *dbtest.DB) locktest.Subject {
	t.Helper()
	if err := migrations.Up(t.Context(), db.DB); err != nil {
		t.Fatal(err)
	}
	handle, counter := dbtest.Count(db.DB)
	var mu sync.Mutex
	var sent int64
	lines := map[lock.Locker]*dbtest.Line{}
	operator, err := sqllock.New(t.Context(), db.DB)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = operator.Close() })
	cut := func(how dbtest.LineState) func(testing.TB, lock.Locker) func() {
		return func(_ testing.TB, l lock.Locker) func() {
			mu.Lock()
			defer mu.Unlock()
			line := lines[l]
			line.Set(how)
			return func() { line.Set(dbtest.Whole) }
		}
	}
	return locktest.Subject{
		New: func(t testing.TB, opts ...lock.Option) lock.Locker {
			t.Helper()
			line := &dbtest.Line{}
			l, err := sqllock.New(context.Background(), handle.Wrap(line.Wrap), opts...)
			if err != nil {
				t.Fatal(err)
			}
			mu.Lock()
			defer mu.Unlock()
			lines[l] = line
			return l
		},
		// Long enough for a machine on which several databases are tested at once.
		TTL:   time.Second,
		Token: true, Holder: true, Guard: true, Extend: true, NoRenew: true, AtMost: true, HoldAtLeast: true,
		Begin:       func(t testing.TB) (*sqldb.Tx, func() error, func() error) { return begin(t, db) },
		GuardBlocks: db.Kind() == sqldb.SQLite,
		Steal: func(t testing.TB, name string, token int64) {
			if err := operator.ForceRelease(context.Background(), name, token); err != nil {
				t.Fatal(err)
			}
		},
		Faults: []locktest.Fault{{Name: "gone", Break: cut(dbtest.Gone)}, {Name: "paused", Break: cut(dbtest.Paused), Silent: true}},
		Statements: func() int64 {
			mu.Lock()
			defer mu.Unlock()
			sent += int64(len(counter.Take()))
			return sent
		},
	}
}

// begin begins a transaction as users of the handle do.
func begin(t testing.TB, db *dbtest.DB) (*sqldb.Tx, func() error, func() error) {
	t.Helper()
	ctx := context.Background()
	if db.Pool != nil {
		tx, err := db.Pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return db.Tx(tx), func() error { return tx.Commit(ctx) }, func() error { return tx.Rollback(ctx) }
	}
	tx, err := db.SQL.BeginTx(ctx, nil)
	if err != nil {
		t.Fatal(err)
	}
	return db.Tx(tx), tx.Commit, tx.Rollback
}

func TestConformance(t *testing.T) {
	t.Parallel()
	dbtest.Flavours(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		locktest.Run(t, subject(t, db))
	})
}

// A server, or a user, whose transactions are of another isolation level unless
// they say something else.
func TestConformanceIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"REPEATABLE READ", "SERIALIZABLE"} {
		t.Run(strings.ReplaceAll(level, " ", ""), func(t *testing.T) {
			t.Parallel()
			kinds := []sqldb.Kind{sqldb.Postgres, sqldb.MySQL, sqldb.MariaDB}
			if level == "REPEATABLE READ" {
				kinds = kinds[:1] // it is the default of the others
			}
			dbtest.On(t, kinds, func(t *testing.T, db *dbtest.DB) {
				t.Parallel()
				settings := map[sqldb.Kind]string{sqldb.Postgres: "default_transaction_isolation", sqldb.MySQL: "transaction_isolation", sqldb.MariaDB: "tx_isolation"}
				value := level
				if db.Kind().InnoDB() {
					value = strings.ReplaceAll(level, " ", "-")
				}
				other := with(t, db, settings[db.Kind()], value)
				var is string
				if err := other.QueryRow(t.Context(), map[bool]string{false: "SHOW " + settings[db.Kind()], true: "SELECT @@" + settings[db.Kind()]}[db.Kind().InnoDB()]).Scan(&is); err != nil || !strings.EqualFold(is, value) {
					t.Fatalf("the isolation level is %q, not %q: %v", is, value, err)
				}
				s := subject(t, other)
				s.Only = []string{"Exclusion/Counter", "Waiting/CancelledAtRandom", "Waiting/Expiry", "Lease/Renewed", "Lease/Extend", "Token", "Guard", "ReleaseIn"}
				locktest.Run(t, s)
			})
		})
	}
}

// with opens the same database with a setting of the session.
func with(t testing.TB, db *dbtest.DB, name, value string) *dbtest.DB {
	t.Helper()
	other := *db
	switch db.Kind() {
	case sqldb.Postgres:
		u, err := url.Parse(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		q := u.Query()
		q.Set(name, strings.ToLower(value))
		u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // pgx takes a plus as it is
		other.DSN = u.String()
	default:
		cfg, err := mysql.ParseDSN(db.DSN)
		if err != nil {
			t.Fatal(err)
		}
		if cfg.Params == nil {
			cfg.Params = map[string]string{}
		}
		cfg.Params[name] = "'" + value + "'"
		other.DSN = cfg.FormatDSN()
	}
	return other.Another(t)
}

// A server that does not write any more is an error at once, also for who would
// wait. (One that does not from the beginning is refused by the handle's New.)
func TestReadOnly(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		if err := migrations.Up(t.Context(), db.DB); err != nil {
			t.Fatal(err)
		}
		one := db.Limited(t, 1) // so that a setting of the session is one of all
		l := locker(t, one)
		got, err := l.Acquire(t.Context(), "touched")
		if err != nil {
			t.Fatal(err)
		}
		if err := got.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		set := map[sqldb.Kind]string{
			sqldb.Postgres: "SET default_transaction_read_only = on", sqldb.MySQL: "SET SESSION transaction_read_only = 1",
			sqldb.MariaDB: "SET SESSION tx_read_only = 1", sqldb.SQLite: "PRAGMA query_only = 1",
		}[db.Kind()]
		if _, err := one.Exec(t.Context(), set); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{"touched", "not touched"} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			got, err := l.Acquire(ctx, name)
			if err == nil {
				t.Errorf("%s: granted: %v", name, got)
			} else if sqldb.ClassOf(err) != sqldb.ReadOnly || ctx.Err() != nil {
				t.Errorf("%s: %v", name, err)
			}
			cancel()
		}
	})
}
