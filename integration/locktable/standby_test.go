package locktable_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/sqlnative/locks/integration/chaos/proxy"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// The promotion of an asynchronous standby that has not seen the last acquisitions repeats no token. A counter would:
// the standby's own next number is one that the primary has given.
func TestTokensGrowThroughPromotion(t *testing.T) {
	initdb, basebackup, postgres := postgresTool("initdb"), postgresTool("pg_basebackup"), postgresTool("postgres")
	if initdb == "" || basebackup == "" || postgres == "" {
		t.Skip("this needs initdb, pg_basebackup and postgres on the machine")
	}
	ctx := t.Context()
	q := newQuarters(t, "postgres", "nobody")
	password := rand.Text()
	q.run(t, nil, initdb, "--pgdata=primary", "--username=postgres", "--pwfile="+q.write(t, "secret", password+"\n"),
		"--auth=scram-sha-256", "--encoding=UTF8", "--no-locale", "--no-sync")
	serve := func(folder string) (dsn string, kill func()) {
		port := freePort(t)
		kill = q.serve(t, postgres, "-D", filepath.Join(q.dir, folder), "-p", port, "-c", "listen_addresses=127.0.0.1",
			"-c", "unix_socket_directories=", "-c", "fsync=off", "-c", "max_connections=20")
		dsn = fmt.Sprintf("postgres://postgres:%s@127.0.0.1:%s/postgres?sslmode=disable", password, port)
		if !within(time.Minute, func() bool {
			c, err := pgx.Connect(ctx, dsn)
			if err != nil {
				return false
			}
			return c.Close(ctx) == nil
		}) {
			t.Fatalf("%s does not answer", folder)
		}
		return dsn, kill
	}
	dsn, killPrimary := serve("primary")
	fl := flavours()[0]
	db := fl.open(t, dsn, 4)
	if err := migrations.Up(ctx, db); err != nil {
		t.Fatal(err)
	}
	l := locker(t, db)
	last := use(t, l, 0)

	// The standby hears of the primary through a proxy, which can be closed.
	p, through, err := proxy.Before(sqldb.Postgres, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	q.run(t, []string{"PGPASSWORD=" + password}, basebackup, "--pgdata=standby", "--write-recovery-conf", "--checkpoint=fast", "--no-sync",
		"--dbname="+stripPassword(t, through))
	standbyDSN, _ := serve("standby")
	standby := fl.raw(t, standbyDSN)
	token := func() (n int64) {
		if err := standby.QueryRow(ctx, `SELECT token FROM sqllock_locks WHERE name = 'job'`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	last = use(t, l, last)
	if !within(30*time.Second, func() bool { return token() == last }) {
		t.Fatalf("the standby has token %d and not %d: it does not follow", token(), last)
	}

	p.Refuse()
	mine := acquire(t, l, "job", lock.TTL(time.Minute))
	release(t, mine)
	last = use(t, l, mine.Token())
	if stored := token(); stored+1 > mine.Token() {
		t.Errorf("the standby has token %d: a counter would not have repeated %d, so this tests nothing", stored, mine.Token())
	}
	killPrimary()

	if _, err := standby.Exec(ctx, "SELECT pg_promote()"); err != nil {
		t.Fatal(err)
	}
	promoted := locker(t, fl.open(t, standbyDSN, 4))
	use(t, promoted, last)
}

// raw is one connection by hand.
func (fl flavour) raw(t testing.TB, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) })
	return c
}

// stripPassword is a DSN for a command line, which everybody can read.
func stripPassword(t testing.TB, dsn string) string {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(u.User.Username())
	return u.String()
}
