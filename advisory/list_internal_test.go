package advisory

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	driver "github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqldb/mysqldb"
)

// sessionOf is a connection by hand, with its id.
func sessionOf(t *testing.T, db *dbtest.DB) (*sql.Conn, int64) {
	t.Helper()
	c, err := db.SQL.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	// What a test locks ends with its session at the latest.
	t.Cleanup(func() {
		end := "DO RELEASE_ALL_LOCKS()"
		if db.Kind() == sqldb.Postgres {
			end = "SELECT pg_advisory_unlock_all()"
		}
		_, _ = c.ExecContext(context.Background(), end)
		_ = c.Close()
	})
	var id int64
	query := "SELECT CONNECTION_ID()"
	if db.Kind() == sqldb.Postgres {
		query = "SELECT pg_backend_pid()"
	}
	if err := c.QueryRowContext(t.Context(), query).Scan(&id); err != nil {
		t.Fatal(err)
	}
	return c, id
}

// takeByHand and giveByHand are what other programs do. The first waits for a minute.
func takeByHand(ctx context.Context, c *sql.Conn, key Key, shared bool) error {
	query := fmt.Sprintf("SELECT GET_LOCK('%s', 60)", key)
	if key.form != rawKey {
		query = "SELECT pg_advisory_lock(" + strings.Trim(key.String(), "()") + ")"
		if shared {
			query = strings.Replace(query, "lock(", "lock_shared(", 1)
		}
	}
	_, err := c.ExecContext(ctx, query)
	return err
}

func giveByHand(ctx context.Context, c *sql.Conn, key Key) error {
	query := fmt.Sprintf("DO RELEASE_LOCK('%s')", key)
	if key.form != rawKey {
		query = "SELECT pg_advisory_unlock(" + strings.Trim(key.String(), "()") + ")"
	}
	_, err := c.ExecContext(ctx, query)
	return err
}

// of picks those of some connections: the server is shared with other tests.
func of(all []Info, conns ...int64) (mine []Info) {
	for _, i := range all {
		for _, c := range conns {
			if i.Conn == c {
				mine = append(mine, i)
			}
		}
	}
	return mine
}

func mustList(t *testing.T, db *sqldb.DB, known map[Key]string) []Info {
	t.Helper()
	all, err := list(t.Context(), db, known)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// listed is the test of a server that shows what it shows to db.
func listed(t *testing.T, db *dbtest.DB, key Key) {
	known := map[Key]string{key: "job", namespaceOf(db.DB).key("free"): "free"}
	holder, h := sessionOf(t, db)
	waiter, w := sessionOf(t, db)
	if err := takeByHand(t.Context(), holder, key, false); err != nil {
		t.Fatal(err)
	}
	got := make(chan error, 1)
	go func() { got <- takeByHand(context.Background(), waiter, key, false) }()
	var mine []Info
	for deadline := time.Now().Add(30 * time.Second); len(mine) < 2 && time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		mine = of(mustList(t, db.DB, known), h, w)
	}
	if len(mine) != 2 {
		t.Fatalf("one holds and one waits: %+v", mine)
	}
	for n, i := range mine {
		if i.Name != "job" || i.Key != key || i.Waits != (n == 1) || i.Shared || i.Conn != []int64{h, w}[n] || i.Client == "" || i.User == "" {
			t.Errorf("%d: %+v", n, i)
		}
	}
	held, err := holderOf(t.Context(), db.DB, key)
	if err != nil || !strings.Contains(held.Holder.Label, fmt.Sprintf("connection %d of %s from ", h, mine[0].User)) {
		t.Errorf("who holds it: %v, %v", held, err)
	}
	if err := giveByHand(t.Context(), holder, key); err != nil {
		t.Fatal(err)
	}
	if err := <-got; err != nil {
		t.Fatal(err)
	}
	if mine := of(mustList(t, db.DB, known), h, w); len(mine) != 1 || mine[0].Conn != w || mine[0].Waits {
		t.Errorf("after the hand-over: %+v", mine)
	}
	if err := giveByHand(t.Context(), waiter, key); err != nil {
		t.Fatal(err)
	}
	if mine := of(mustList(t, db.DB, known), h, w); len(mine) != 0 {
		t.Errorf("nobody has it: %+v", mine)
	}
	if held, err := holderOf(t.Context(), db.DB, key); err != nil || held.Holder != (lock.Holder{}) || held.Name != key.String() {
		t.Errorf("nobody has it: %v, %v", held, err)
	}
}

func TestList(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		listed(t, db, namespaceOf(db.DB).key("job"))
	})
}

// Keys of other programs are shown as they are, in their mode.
func TestListKeys(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		n := rand.Int64N(1 << 62)
		for _, key := range []Key{Int64(n), Int64(-n), Pair(-1, int32(n)), Pair(int32(n), -1)} {
			c, id := sessionOf(t, db)
			if err := takeByHand(t.Context(), c, key, true); err != nil {
				t.Fatal(err)
			}
			mine := of(mustList(t, db.DB, nil), id)
			if len(mine) != 1 || mine[0].Key != key || !mine[0].Shared || mine[0].Name != "" {
				t.Errorf("%s: %+v", key, mine)
			}
			listed(t, db, Pair(int32(rand.Uint32()), int32(rand.Uint32())))
		}
	})
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL}, func(t *testing.T, db *dbtest.DB) {
		key, err := Raw("Their LOCK of " + db.Schema()).on(sqldb.MySQL)
		if err != nil {
			t.Fatal(err)
		}
		c, id := sessionOf(t, db)
		if err := takeByHand(t.Context(), c, key, false); err != nil {
			t.Fatal(err)
		}
		if mine := of(mustList(t, db.DB, nil), id); len(mine) != 1 || mine[0].Key != key {
			t.Errorf("%s: %+v", key, mine)
		}
	})
}

// MariaDB's plugin shows locks of names that are not known here.
func TestListPlugin(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		var there bool
		if err := db.QueryRow(t.Context(), pluginMariaDB).Scan(&there); err != nil {
			t.Fatal(err)
		}
		if !there {
			if _, err := db.SQL.ExecContext(t.Context(), "INSTALL SONAME 'metadata_lock_info'"); err != nil {
				t.Skipf("the plugin is not there: %v", err)
			}
			t.Cleanup(func() { db.MustExec(t, "UNINSTALL SONAME 'metadata_lock_info'") })
		}
		key := Raw("Their lock of " + db.Schema())
		c, id := sessionOf(t, db)
		if err := takeByHand(t.Context(), c, key, false); err != nil {
			t.Fatal(err)
		}
		if mine := of(mustList(t, db.DB, nil), id); len(mine) != 1 || mine[0].Key != key || mine[0].Client == "" {
			t.Errorf("%s: %+v", key, mine)
		}
		listed(t, db, namespaceOf(db.DB).key("job"))
	})
}

// A user without rights is told what is missing, or sees what everybody may.
func TestListWithoutRights(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		name := db.Schema() // it has a user's length
		if len(name) > 32 {
			t.Fatal(name)
		}
		db.MustExec(t, "CREATE USER '"+name+"'@'%' IDENTIFIED BY 'Pw-1234-abcd'", "GRANT ALL ON "+name+".* TO '"+name+"'@'%'")
		t.Cleanup(func() { db.MustExec(t, "DROP USER '"+name+"'@'%'") })
		theirs := db.OpenSQL(t, func(c *driver.Config) { c.User, c.Passwd = name, "Pw-1234-abcd" })
		user, err := mysqldb.New(t.Context(), theirs)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := list(t.Context(), user, nil); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "performance_schema") {
			t.Errorf("no names are known: %v", err)
		}
		key := namespaceOf(user).key("job")
		c, id := sessionOf(t, db)
		if err := takeByHand(t.Context(), c, key, false); err != nil {
			t.Fatal(err)
		}
		if mine := of(mustList(t, user, map[Key]string{key: "job"}), id); len(mine) != 1 || mine[0].Name != "job" || mine[0].Key != key || mine[0].Waits {
			t.Errorf("%+v", mine)
		}
	})
}

func TestListSQLite(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	if _, err := list(t.Context(), db.DB, nil); !errors.Is(err, errors.ErrUnsupported) {
		t.Error(err)
	}
}

// More names than one statement asks for.
func TestListManyNames(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		var keys []Key
		c, id := sessionOf(t, db)
		for n := range 250 {
			keys = append(keys, namespaceOf(db.DB).key(fmt.Sprint("job ", n)))
			if n%2 == 0 {
				if err := takeByHand(t.Context(), c, keys[n], false); err != nil {
					t.Fatal(err)
				}
			}
		}
		all, err := listUsed(t.Context(), db.DB, keys)
		if err != nil || len(all) != 125 {
			t.Fatalf("%d are held, %v", len(all), err)
		}
		for n, i := range all {
			if i.Key != keys[2*n] || i.Conn != id {
				t.Errorf("%d: %+v", n, i)
			}
		}
	})
}

func TestHolder(t *testing.T) {
	for want, i := range map[lock.Holder]Info{
		{Label: "connection 7"}:                                        {Conn: 7},
		{Label: "connection 7 of app from 10.0.0.1:5 (shop)"}:          {Conn: 7, User: "app", Client: "10.0.0.1:5", App: "shop"},
		{Host: "web, 1", PID: 42, Label: "connection 7 from 10.0.0.1"}: {Conn: 7, Client: "10.0.0.1", App: "sqllock advisory: web, 1, pid 42"},
	} {
		if i.holder() != want {
			t.Errorf("%+v: %+v", i, i.holder())
		}
	}
}
