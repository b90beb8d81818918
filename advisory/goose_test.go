package advisory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/fstest"
	"time"

	driver "github.com/go-sql-driver/mysql"
	"github.com/pressly/goose/v3"
	gooselock "github.com/pressly/goose/v3/lock"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
	"github.com/sqlnative/locks/sqldb/pgdb"
)

var _ gooselock.SessionLocker = (*advisory.SessionLocker)(nil)

// An application's migrations: without a lock they fail, or are carried out twice,
// when two processes do them at once.
var appMigrations = fstest.MapFS{
	"00001_a.sql": {Data: []byte("-- +goose Up\nCREATE TABLE a (n INT);\nINSERT INTO a VALUES (1);\n")},
	"00002_b.sql": {Data: []byte("-- +goose Up\nCREATE TABLE b (n INT);\nINSERT INTO a VALUES (2);\n")},
	"00003_c.sql": {Data: []byte("-- +goose Up\nCREATE TABLE c (n INT);\nINSERT INTO a VALUES (3);\n")},
}

// gooseUp migrates as an application does.
func gooseUp(ctx context.Context, kind sqldb.Kind, dsn string) error {
	name, dialect := "mysql", goose.DialectMySQL
	if kind == sqldb.Postgres {
		name, dialect = "pgx", goose.DialectPostgres
	}
	pool, err := sql.Open(name, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = pool.Close() }()
	open := mysqldb.New
	if kind == sqldb.Postgres {
		open = pgdb.SQL
	}
	db, err := open(ctx, pool)
	if err != nil {
		return err
	}
	locker, err := advisory.GooseLocker(db, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(dialect, pool, appMigrations, goose.WithDisableGlobalRegistry(true), goose.WithSessionLocker(locker))
	if err != nil {
		return err
	}
	if _, err := p.Status(ctx); err != nil { // Up looks without the lock first: see GooseLocker
		return err
	}
	_, err = p.Up(ctx)
	return err
}

// The environment of TestGooseProcess, which is another process's.
const (
	gooseDSN  = "ADVISORY_TEST_GOOSE_DSN"
	gooseKind = "ADVISORY_TEST_GOOSE_KIND"
)

func TestGooseProcess(t *testing.T) {
	dsn := os.Getenv(gooseDSN)
	if dsn == "" {
		t.Skip("it is the other process of TestGooseProcesses")
	}
	kind, err := sqldb.ParseKind(os.Getenv(gooseKind))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := gooseUp(ctx, kind, dsn); err != nil {
		t.Fatal(err)
	}
}

// Twenty processes migrate at once: each migration is carried out once, and none of
// them fails.
func TestGooseProcesses(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		self, err := os.Executable()
		if err != nil {
			t.Fatal(err)
		}
		dsn := db.DSN
		if db.Kind().InnoDB() {
			sep := "?"
			if strings.Contains(dsn, "?") {
				sep = "&"
			}
			dsn += sep + "parseTime=true" // goose wants it
		}
		var wg sync.WaitGroup
		for range 20 {
			wg.Go(func() {
				cmd := exec.CommandContext(t.Context(), self, "-test.run=^TestGooseProcess$", "-test.v")
				cmd.Env = append(os.Environ(), gooseDSN+"="+dsn, gooseKind+"="+db.Kind().String())
				if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "--- PASS: TestGooseProcess") {
					t.Errorf("%v: %s", err, out)
				}
			})
		}
		wg.Wait()
		var n, sum int
		if err := db.SQL.QueryRowContext(t.Context(), "SELECT count(*), sum(n) FROM a").Scan(&n, &sum); err != nil || n != 3 || sum != 6 {
			t.Errorf("%d rows, sum %d, %v", n, sum, err)
		}
	})
}

// The negative control: without a lock two processes are in one migration at the same
// time, or one of them fails at once. With the lock the second is not in it before the
// first has left.
func TestGooseUnlocked(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		if db.Kind().InnoDB() {
			db.SQL = db.OpenSQL(t, func(c *driver.Config) { c.ParseTime = true })
		}
		// both migrates twice at once. A migration waits for the other one, or until that
		// has come to its end, or for that long.
		both := func(patience time.Duration, options ...goose.ProviderOption) (together bool, failed int) {
			db.MustExec(t, "DROP TABLE IF EXISTS goose_db_version")
			var in atomic.Int32
			var once sync.Once
			met := make(chan struct{})
			meet := func() { once.Do(func() { close(met) }) }
			errs := make(chan error, 2)
			for range 2 {
				go func() {
					m := goose.NewGoMigration(1, &goose.GoFunc{RunTx: func(context.Context, *sql.Tx) error {
						if in.Add(1) == 2 {
							meet()
						}
						select {
						case <-met:
						case <-time.After(patience):
						}
						return nil
					}}, nil)
					dialect := goose.DialectMySQL
					if db.Kind() == sqldb.Postgres {
						dialect = goose.DialectPostgres
					}
					p, err := goose.NewProvider(dialect, db.SQL, nil, append(options, goose.WithDisableGlobalRegistry(true), goose.WithGoMigrations(m))...)
					if err == nil && len(options) > 0 {
						_, err = p.Status(context.Background())
					}
					if err == nil {
						_, err = p.Up(context.Background())
					}
					meet()
					errs <- err
				}()
			}
			for range 2 {
				if <-errs != nil {
					failed++
				}
			}
			return in.Load() == 2, failed
		}
		if together, failed := both(time.Minute); !together && failed == 0 {
			t.Error("migrations without a lock do not disturb each other: the test above proves nothing")
		}
		if together, failed := both(300*time.Millisecond, goose.WithSessionLocker(gooseLocker(t, db.DB))); together || failed > 0 {
			t.Errorf("with the lock: together %v, %d failed", together, failed)
		}
	})
}

func gooseLocker(t testing.TB, db *sqldb.DB) *advisory.SessionLocker {
	t.Helper()
	l, err := advisory.GooseLocker(db, "migrations")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// Between two sessions: one at a time, and soon after the other.
func TestGooseLocker(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := gooseLocker(t, db.DB)
		holder, waiter := connOf(t, db.SQL), connOf(t, db.SQL)
		if err := l.SessionLock(t.Context(), holder); err != nil {
			t.Fatal(err)
		}
		for c, want := range map[*sql.Conn]bool{holder: true, waiter: false} {
			if holds, err := l.Holds(t.Context(), c); holds != want || err != nil {
				t.Errorf("Holds: %v, %v, want %v", holds, err, want)
			}
		}
		var released atomic.Bool
		got := make(chan error, 1)
		go func() {
			err := l.SessionLock(context.Background(), waiter)
			if err == nil && !released.Load() {
				err = errors.New("two sessions have the lock")
			}
			got <- err
		}()
		select {
		case err := <-got:
			t.Fatalf("it did not wait: %v", err)
		case <-time.After(200 * time.Millisecond):
		}
		released.Store(true)
		begun := time.Now()
		if err := l.SessionUnlock(t.Context(), holder); err != nil {
			t.Fatal(err)
		}
		if err := <-got; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(begun); took > 4*time.Second {
			t.Errorf("the hand-over took %v, as long as with goose's own", took)
		}
		if err := l.SessionUnlock(t.Context(), waiter); err != nil {
			t.Error(err)
		}
		if err := holder.PingContext(t.Context()); err != nil {
			t.Errorf("a session that has given back what it had: %v", err)
		}
	})
}

// ctx ends the wait; nothing is left behind, and the error says who holds it.
func TestGooseLockerContext(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := gooseLocker(t, db.DB)
		holder, waiter := connOf(t, db.SQL), connOf(t, db.SQL)
		if err := l.SessionLock(t.Context(), holder); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 400*time.Millisecond)
		defer cancel()
		var held *lock.HeldError
		id := connID(t, db, waiter)
		err := l.SessionLock(ctx, waiter)
		if !errors.As(err, &held) || held.Name != "migrations" || held.Waited <= 0 || !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
		closed(t, db, id)
		if err := l.SessionUnlock(t.Context(), holder); err != nil {
			t.Fatal(err)
		}
		// A grant that came too late would be somebody's.
		again := connOf(t, db.SQL)
		ctx, cancel = context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := l.SessionLock(ctx, again); err != nil {
			t.Fatal(err)
		}
		if err := l.SessionUnlock(ctx, again); err != nil {
			t.Error(err)
		}
	})
}

// An unlock under a ctx that has ended works; one that finds nothing to unlock says
// so, and its session ends.
func TestGooseUnlock(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := gooseLocker(t, db.DB)
		c := connOf(t, db.SQL)
		if err := l.SessionLock(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if err := l.SessionUnlock(ended, c); err != nil {
			t.Fatal(err)
		}
		if holds, err := l.Holds(t.Context(), c); holds || err != nil {
			t.Errorf("after the unlock: %v, %v", holds, err)
		}
		id := connID(t, db, c)
		if err := l.SessionUnlock(t.Context(), c); !errors.Is(err, lock.ErrLost) || !strings.Contains(fmt.Sprint(err), "migrations") {
			t.Errorf("a second unlock: %v", err)
		}
		closed(t, db, id)
	})
}

// A session that has ended has no lock, and its unlock is no error.
func TestGooseSessionKilled(t *testing.T) {
	t.Parallel()
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		l := gooseLocker(t, db.DB)
		c, next := connOf(t, db.SQL), connOf(t, db.SQL)
		if err := l.SessionLock(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		id, kill := "SELECT CONNECTION_ID()", "KILL %d"
		if db.Kind() == sqldb.Postgres {
			id, kill = "SELECT pg_backend_pid()", "SELECT pg_terminate_backend(%d)"
		}
		var n int64
		if err := c.QueryRowContext(t.Context(), id).Scan(&n); err != nil {
			t.Fatal(err)
		}
		db.MustExec(t, fmt.Sprintf(kill, n))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		if err := l.SessionLock(ctx, next); err != nil {
			t.Fatal(err)
		}
		if err := l.SessionUnlock(t.Context(), c); err != nil {
			t.Errorf("the unlock of who was killed: %v", err)
		}
		if holds, err := l.Holds(t.Context(), next); !holds || err != nil {
			t.Errorf("it has taken the successor's lock: %v, %v", holds, err)
		}
		if err := l.SessionUnlock(t.Context(), next); err != nil {
			t.Error(err)
		}
	})
}

// A key is shared with another tool: here, goose's own locker.
func TestGooseKeyLocker(t *testing.T) {
	t.Parallel()
	dbtest.On(t, postgresOnly, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		n := time.Now().UnixNano()
		l, err := advisory.GooseKeyLocker(db.DB, advisory.Int64(n))
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := gooselock.NewPostgresSessionLocker(gooselock.WithLockID(n), gooselock.WithLockTimeout(1, 1))
		if err != nil {
			t.Fatal(err)
		}
		one, two := connOf(t, db.SQL), connOf(t, db.SQL)
		if err := l.SessionLock(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if err := theirs.SessionLock(t.Context(), two); err == nil {
			t.Error("both have it")
		}
		if err := l.SessionUnlock(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if err := theirs.SessionLock(t.Context(), two); err != nil {
			t.Error(err)
		}
		if err := theirs.SessionUnlock(t.Context(), two); err != nil {
			t.Error(err)
		}
	})
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		name := "their lock's name, " + db.Schema()
		l, err := advisory.GooseKeyLocker(db.DB, advisory.Raw(name))
		if err != nil {
			t.Fatal(err)
		}
		one, two := connOf(t, db.SQL), connOf(t, db.SQL)
		if err := l.SessionLock(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if getLock(t, two, name) != 0 {
			t.Error("both have it")
		}
		if err := l.SessionUnlock(t.Context(), one); err != nil {
			t.Fatal(err)
		}
		if getLock(t, two, name) != 1 {
			t.Error("it was not given back")
		}
		if _, err := two.ExecContext(t.Context(), "DO RELEASE_LOCK(?)", name); err != nil {
			t.Error(err)
		}
	})
}

// GET_LOCK of a Galera node is that node's own: goose is refused before anything is
// locked, and its session goes on.
func TestGooseLockerOnGalera(t *testing.T) {
	t.Parallel()
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		c := connOf(t, db.Galera(t))
		err := gooseLocker(t, db.DB).SessionLock(t.Context(), c)
		if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(fmt.Sprint(err), "Galera") || !strings.Contains(fmt.Sprint(err), "advisory.Unchecked") {
			t.Errorf("SessionLock: %v", err)
		}
		knows, err := advisory.GooseLocker(db.DB, "migrations", advisory.Unchecked())
		if err != nil {
			t.Fatal(err)
		}
		if holds, err := knows.Holds(t.Context(), c); holds || err != nil {
			t.Errorf("Holds after the refusal: %v, %v", holds, err)
		}
		if err := knows.SessionLock(t.Context(), c); err != nil {
			t.Fatalf("Unchecked: %v", err)
		}
		if err := knows.SessionUnlock(t.Context(), c); err != nil {
			t.Error(err)
		}
	})
}

func TestGooseLockerBadInput(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		want := lock.ErrInvalid
		if _, err := advisory.GooseLocker(db.DB, ""); !errors.Is(err, want) {
			t.Errorf("no name: %v", err)
		}
		if _, err := advisory.GooseKeyLocker(db.DB, advisory.Key{}); !errors.Is(err, want) {
			t.Errorf("no key: %v", err)
		}
		for what, opt := range map[string]lock.Option{"TTL": lock.TTL(time.Minute), "Try": lock.Try(), "Poll": advisory.Poll(time.Second)} {
			if _, err := advisory.GooseLocker(db.DB, "migrations", opt); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if _, err := advisory.GooseLocker(db.DB, "migrations", nil); !errors.Is(err, want) && db.Kind() != sqldb.SQLite {
			t.Errorf("a nil option: %v", err)
		}
		if _, err := advisory.GooseLocker(nil, "migrations"); !errors.Is(err, want) {
			t.Errorf("no database: %v", err)
		}
		if _, err := advisory.GooseKeyLocker(nil, advisory.Int64(1)); !errors.Is(err, want) {
			t.Errorf("no database: %v", err)
		}
		wrong := advisory.Int64(1)
		if db.Kind() == sqldb.Postgres {
			wrong = advisory.Raw("job")
		}
		if _, err := advisory.GooseKeyLocker(db.DB, wrong); !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("a key of another server: %v", err)
		}
		if _, err := advisory.GooseLocker(db.DB, "migrations"); errors.Is(err, errors.ErrUnsupported) != (db.Kind() == sqldb.SQLite) {
			t.Errorf("%v", err)
		}
	})
}
