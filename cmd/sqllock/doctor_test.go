package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/internal/dsn"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// with is the DSN of a database with a further parameter.
func with(db *dbtest.DB, name, value string) string {
	if db.Kind() == sqldb.SQLite { // a file that nobody has open
		file, _, _ := strings.Cut(db.DSN, "?")
		return fmt.Sprintf("%s.%x?%s=%s", file, value, name, value)
	}
	sign := "?"
	if strings.Contains(db.DSN, "?") {
		sign = "&"
	}
	return db.DSN + sign + name + "=" + strings.ReplaceAll(url.QueryEscape(value), "+", "%20")
}

// judged looks whether the lines have one of that name, which fits.
func judged(t *testing.T, checks []check, name, state, value, advice string) {
	t.Helper()
	for _, c := range checks {
		if c.Name != name {
			continue
		}
		if c.State != state || !strings.Contains(c.Value, value) || !strings.Contains(c.Advice, advice) || (c.Advice == "") != (state == ok) {
			t.Errorf("want %s %s: %q %q; got %+v", state, name, value, advice, c)
		}
		return
	}
	t.Errorf("there is no line %s: %+v", name, checks)
}

// TestDoctorOfSession: what a DSN makes of a session.
func TestDoctorOfSession(t *testing.T) {
	servers := []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}
	tests := []struct {
		kinds              []sqldb.Kind
		param, to          string
		name, state, value string
		advice             string
		code               int
		alone              bool // there is no other line
	}{
		{kinds: []sqldb.Kind{sqldb.Postgres}, param: "default_transaction_isolation", to: "repeatable read", name: "isolation", state: warn, value: "repeatable read", advice: "begin it afterwards, or retry"},
		{kinds: []sqldb.Kind{sqldb.Postgres}, param: "options", to: "-c default_transaction_isolation=serializable", name: "isolation", state: warn, value: "serializable", advice: "retry"},
		{kinds: []sqldb.Kind{sqldb.Postgres}, param: "timezone", to: "Asia/Tokyo", name: "time zone", state: ok, value: "Asia/Tokyo"},
		{kinds: []sqldb.Kind{sqldb.Postgres}, param: "options", to: "-c synchronous_commit=off", name: "durability", state: ok, value: "synchronous_commit=off (an acquire waits for the disk all the same)"},
		{kinds: []sqldb.Kind{sqldb.Postgres}, param: "default_transaction_read_only", to: "on", name: "server", state: fail, value: "default_transaction_read_only", advice: "nothing else", code: 1, alone: true},
		{kinds: servers, param: "transaction_isolation", to: "'SERIALIZABLE'", name: "isolation", state: warn, value: "SERIALIZABLE", advice: "locks do not need it"},
		{kinds: servers, param: "time_zone", to: "'+09:00'", name: "time zone", state: ok, value: "+09:00"},
		{kinds: servers, param: "sql_mode", to: "''", name: "sql mode", state: warn, value: "sql_mode=", advice: "STRICT_TRANS_TABLES"},
		{kinds: servers, param: "sql_mode", to: "'STRICT_ALL_TABLES'", name: "sql mode", state: ok, value: "STRICT_ALL_TABLES"},
		{kinds: servers, param: "autocommit", to: "0", name: "server", state: fail, value: "take autocommit=0 out of the DSN", advice: "nothing else", code: 1, alone: true},
		{kinds: servers, param: "transaction_read_only", to: "1", name: "server", state: fail, value: "transaction_read_only", advice: "nothing else", code: 1, alone: true},
		{kinds: servers, param: "timestamp", to: "1000000000", name: "clock", state: warn, value: "from this machine's", advice: "NTP"},
		{kinds: []sqldb.Kind{sqldb.SQLite}, param: "_pragma", to: "synchronous(NORMAL)", name: "durability", state: warn, value: "synchronous=NORMAL", advice: "synchronous(FULL)"},
		{kinds: []sqldb.Kind{sqldb.SQLite}, param: "_pragma", to: "synchronous(OFF)", name: "durability", state: warn, value: "synchronous=OFF", advice: "synchronous(FULL)"},
		{kinds: []sqldb.Kind{sqldb.SQLite}, param: "_pragma", to: "synchronous(EXTRA)", name: "durability", state: ok, value: "synchronous=EXTRA"},
		{kinds: []sqldb.Kind{sqldb.SQLite}, param: "_pragma", to: "journal_mode(DELETE)", name: "journal", state: warn, value: "journal_mode=delete", advice: "journal_mode(WAL)"},
		{kinds: []sqldb.Kind{sqldb.SQLite}, param: "_pragma", to: "busy_timeout(0)", name: "busy timeout", state: warn, value: "0 ms", advice: "busy_timeout(5000)"},
		{kinds: []sqldb.Kind{sqldb.SQLite}, param: "_pragma", to: "query_only(1)", name: "server", state: fail, value: "query_only", advice: "nothing else", code: 1, alone: true},
	}
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		for _, tt := range tests {
			if !slices.Contains(tt.kinds, db.Kind()) {
				continue
			}
			t.Run(tt.param+"="+tt.to, func(t *testing.T) {
				r := wantJSON[doctorResult](t, tt.code, "doctor", "--migrate", "--dsn", with(db, tt.param, tt.to))
				judged(t, r.Checks, tt.name, tt.state, tt.value, tt.advice)
				if tt.alone != (len(r.Checks) == 1) || r.OK != (tt.code == 0) || r.Database != db.Kind().String() && !tt.alone || r.TablePrefix != "sqllock_" {
					t.Errorf("%+v", r)
				}
				// And for people, in one line, where it is a pipe.
				out, _ := want(t, tt.code, "doctor", "--dsn", with(db, tt.param, tt.to))
				found := false
				for _, line := range strings.Split(out, "\n") {
					found = found || strings.HasPrefix(line, tt.state+" ") && strings.Contains(line, tt.value) && strings.Contains(line, tt.advice)
				}
				if !found {
					t.Errorf("%s", out)
				}
			})
		}
	})
}

// answers is a driver that gives answers of its own to queries with some words in them.
type answers struct {
	sqldb.Driver
	set  func(query string) (rows [][]any, err error, mine bool)
	over map[string]string // values by name, in what is read as name and value
}

// override has what a query answers changed: name and value.
func override(over map[string]string) func(sqldb.Driver) sqldb.Driver {
	return func(d sqldb.Driver) sqldb.Driver { return answers{Driver: d, over: over} }
}

func (a answers) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return a.answer(ctx, a.Driver, query, args)
}

func (a answers) answer(ctx context.Context, q sqldb.Querier, query string, args []any) (sqldb.DriverRows, error) {
	if a.set != nil {
		if rows, err, mine := a.set(query); mine {
			return &canned{rows: rows}, err
		}
	}
	rows, err := q.Query(ctx, query, args)
	if err != nil || a.over == nil || !strings.Contains(query, "SHOW VARIABLES") && !strings.Contains(query, "pg_settings") && !strings.Contains(query, "'oldest'") {
		return rows, err
	}
	defer func() { _ = rows.Close() }()
	var all canned
	seen := map[string]bool{}
	for rows.Next() {
		v, err := rows.Values()
		if err != nil {
			return nil, err
		}
		name := fmt.Sprintf("%s", v[0])
		if to, is := a.over[name]; is {
			v = []any{name, to}
		}
		seen[name] = true
		all.rows = append(all.rows, v)
	}
	for name, to := range a.over { // those that this server does not have
		if !seen[name] && strings.Contains(query, "'"+name+"'") {
			all.rows = append(all.rows, []any{name, to})
		}
	}
	return &all, rows.Err()
}

func (a answers) Conn(ctx context.Context) (sqldb.DriverConn, error) {
	c, err := a.Driver.Conn(ctx)
	if err != nil {
		return nil, err
	}
	return answersConn{c, a}, nil
}

type answersConn struct {
	sqldb.DriverConn
	a answers
}

func (c answersConn) Query(ctx context.Context, query string, args []any) (sqldb.DriverRows, error) {
	return c.a.answer(ctx, c.DriverConn, query, args)
}

// canned are rows.
type canned struct {
	rows [][]any
	at   int
}

func (c *canned) Next() bool             { c.at++; return c.at <= len(c.rows) }
func (c *canned) Values() ([]any, error) { return c.rows[c.at-1], nil }
func (c *canned) Err() error             { return nil }
func (c *canned) Close() error           { return nil }

// examined is what doctor says of a handle.
func examined(t *testing.T, db *dbtest.DB, handle *sqldb.DB, prepare func(d *doctor)) []check {
	t.Helper()
	parsed, err := dsn.Parse(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	d := (&session{app: &app{out: &cli.Output{}}, db: handle, dsn: parsed}).newDoctor()
	if prepare != nil {
		prepare(d)
	}
	if err := d.examine(t.Context()); err != nil {
		t.Fatal(err)
	}
	return d.checks
}

// TestDoctorOfServer: settings of the server, which a test cannot change: the answers
// are scripted.
func TestDoctorOfServer(t *testing.T) {
	type line struct{ name, state, value, advice string }
	both := []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}
	tests := []struct {
		kinds []sqldb.Kind
		set   map[string]string
		want  line
	}{
		{[]sqldb.Kind{sqldb.Postgres}, map[string]string{"fsync": "off"}, line{"durability", fail, "fsync=off", "turn fsync and full_page_writes on"}},
		{[]sqldb.Kind{sqldb.Postgres}, map[string]string{"full_page_writes": "off"}, line{"durability", fail, "full_page_writes=off", "turn fsync"}},
		{[]sqldb.Kind{sqldb.Postgres}, map[string]string{"transaction_read_only": "on"}, line{"read-only", fail, "yes", "name the primary"}},
		{[]sqldb.Kind{sqldb.Postgres}, map[string]string{"replica": "true"}, line{"replica", fail, "yes", "target_session_attrs=read-write"}},
		{[]sqldb.Kind{sqldb.Postgres}, map[string]string{"stats": "false", "oldest": "0"}, line{"oldest snapshot", warn, "unknown", "pg_read_all_stats"}},
		{[]sqldb.Kind{sqldb.Postgres}, map[string]string{"oldest": "601"}, line{"oldest snapshot", warn, "10m1s", "end it"}},
		{[]sqldb.Kind{sqldb.Postgres}, map[string]string{"oldest": "600"}, line{"oldest snapshot", ok, "10m0s", ""}},
		{both, map[string]string{"innodb_flush_log_at_trx_commit": "2", "log_bin": "OFF"}, line{"durability", warn, "innodb_flush_log_at_trx_commit=2", "set each of these to 1"}},
		{both, map[string]string{"log_bin": "ON", "sync_binlog": "0"}, line{"durability", warn, "sync_binlog=0", "set each of these to 1"}},
		{both, map[string]string{"log_bin": "ON", "sync_binlog": "1000"}, line{"durability", warn, "sync_binlog=1000", "set each of these to 1"}},
		{both, map[string]string{"log_bin": "OFF", "sync_binlog": "0"}, line{"durability", ok, "innodb_flush_log_at_trx_commit=1", ""}},
		{both, map[string]string{"log_bin": "ON", "binlog_format": "STATEMENT"}, line{"binary log", warn, "binlog_format=STATEMENT", "take ROW"}},
		{both, map[string]string{"log_bin": "ON", "binlog_format": "MIXED"}, line{"binary log", ok, "binlog_format=MIXED", ""}},
		{both, map[string]string{"read_only": "ON"}, line{"read-only", fail, "read_only=ON", "name the primary"}},
		{both, map[string]string{"read_only": "ON", "super_read_only": "ON"}, line{"read-only", fail, "read_only=ON, super_read_only=ON", "name the primary"}},
		{both, map[string]string{"innodb_read_only": "ON"}, line{"read-only", fail, "innodb_read_only=ON", "name the primary"}},
		{both, map[string]string{"tx_read_only": "ON", "transaction_read_only": "OFF"}, line{"read-only", fail, "tx_read_only=ON", "DSN"}},
		{both, map[string]string{"wsrep_on": "ON"}, line{"cluster", warn, "Galera", "best on one node"}},
		{both, map[string]string{"group_replication_group_name": "aaaa"}, line{"cluster", warn, "group replication", "advisory is refused"}},
		{both, map[string]string{"oldest": "601"}, line{"oldest snapshot", warn, "10m1s", "end it"}},
		{both, map[string]string{"oldest": "0"}, line{"oldest snapshot", ok, "0s", ""}},
	}
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		for _, tt := range tests {
			if slices.Contains(tt.kinds, db.Kind()) {
				t.Run(fmt.Sprint(tt.set), func(t *testing.T) {
					checks := examined(t, db, db.Wrap(override(tt.set)), nil)
					judged(t, checks, tt.want.name, tt.want.state, tt.want.value, tt.want.advice)
				})
			}
		}
	})
}

// TestDoctorOfReplica: whether a MySQL or MariaDB follows another, whatever it calls
// that, or does not say it.
func TestDoctorOfReplica(t *testing.T) {
	syntax := &mysql.MySQLError{Number: 1064, Message: "You have an error in your SQL syntax"}
	denied := &mysql.MySQLError{Number: 1227, Message: "Access denied"}
	row := [][]any{{"Waiting for source to send event"}}
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		for _, tt := range []struct {
			newRows, oldRows     [][]any
			newErr, oldErr       error
			state, value, advice string
		}{
			{state: ok, value: "no"},
			{newRows: row, oldErr: syntax, state: warn, value: "it follows another server", advice: "name the primary"},
			{newErr: syntax, oldRows: row, state: warn, value: "it follows another server", advice: "name the primary"},
			{newErr: syntax, state: ok, value: "no"},
			{newErr: denied, oldErr: denied, state: warn, value: "unknown: Error 1227", advice: "REPLICATION CLIENT"},
		} {
			d := func(d sqldb.Driver) sqldb.Driver {
				return answers{Driver: d, set: func(query string) ([][]any, error, bool) {
					switch query {
					case "SHOW REPLICA STATUS":
						return tt.newRows, tt.newErr, true
					case "SHOW SLAVE STATUS":
						return tt.oldRows, tt.oldErr, true
					}
					return nil, nil, false
				}}
			}
			judged(t, examined(t, db, db.Wrap(d), nil), "replica", tt.state, tt.value, tt.advice)
		}
	})
}

// TestDoctorOfPooler: two sessions behind one connection are a pooler's.
func TestDoctorOfPooler(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.Postgres}, func(t *testing.T, db *dbtest.DB) {
		for _, c := range []struct {
			session      func(asked int64) int64 // the connections are asked in turn
			state, value string
		}{
			{func(asked int64) int64 { return asked % 2 }, ok, "one connection here is one session"},
			{func(int64) int64 { return 7 }, warn, "two connections here share a session"}, // nobody else is there
			{func(asked int64) int64 { return asked % 3 }, warn, "reaches 3 sessions"},
			{func(asked int64) int64 { return asked }, warn, "reaches 4 sessions"},
		} {
			n, advice := int64(0), ""
			d := func(d sqldb.Driver) sqldb.Driver {
				return answers{Driver: d, set: func(query string) ([][]any, error, bool) {
					if query != "SELECT pg_backend_pid()" {
						return nil, nil, false
					}
					n++
					return [][]any{{c.session(n)}}, nil, true
				}}
			}
			if c.state == warn {
				advice = "--strategy advisory does not"
			}
			judged(t, examined(t, db, db.Wrap(d), nil), "pooler", c.state, c.value, advice)
		}
		judged(t, examined(t, db, db.DB, nil), "pooler", ok, "one connection here is one session", "")
	})
}

// TestDoctorMeasures: clocks, and what a lock takes.
func TestDoctorMeasures(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		for skew, state := range map[time.Duration]string{0: ok, 500 * time.Millisecond: ok, 3 * time.Minute: warn, -3 * time.Minute: warn} {
			advice := ""
			if state == warn {
				advice = "let both follow NTP"
			}
			checks := examined(t, db, db.DB, func(d *doctor) { d.clock = func() time.Time { return time.Now().Add(skew) } })
			judged(t, checks, "clock", state, "a round trip takes", advice)
			for _, c := range checks { // 2m59.9s, or the like
				var diff time.Duration
				if words := strings.Fields(c.Value); c.Name == "clock" {
					diff, _ = time.ParseDuration(words[3])
				}
				if c.Name == "clock" && (diff+skew).Abs() > time.Second {
					t.Errorf("%v: %s", skew, c.Value)
				}
			}
		}
		judged(t, examined(t, db, db.DB, func(d *doctor) { d.slowPair = time.Hour }), "lock pair", ok, "the best of 5", "")
		judged(t, examined(t, db, db.DB, func(d *doctor) { d.slowPair = 1 }), "lock pair", warn, "the best of 5", "TTLs of at least 100 times that")
		l := hold(t, db, "sqllock:doctor", lock.Label("other doctor"))
		judged(t, examined(t, db, db.DB, func(d *doctor) { d.patience = 2 * time.Second }), "lock pair", warn, "is held by other doctor", "try again")
		if err := l.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		db.MustExec(t, "DROP TABLE sqllock_locks")
		checks := examined(t, db, db.DB, nil)
		judged(t, checks, "tables", fail, "sqllock_locks", "sqllock-migrate check")
		for _, c := range checks {
			if c.Name == "lock pair" {
				t.Errorf("%+v", c)
			}
		}
	})
}

// TestDoctorOfOldTransaction: a snapshot that has been open for long is seen, whatever
// the time zone of the session.
func TestDoctorOfOldTransaction(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		tx, err := db.SQL.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback() }()
		if db.Kind() == sqldb.Postgres {
			if _, err := tx.Exec("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ"); err != nil {
				t.Fatal(err)
			}
		}
		var n int
		if err := tx.QueryRow("SELECT count(*) FROM sqllock_locks").Scan(&n); err != nil {
			t.Fatal(err)
		}
		zones := []string{"time_zone=%27%2B09:00%27", "time_zone=%27-09:00%27"}
		if db.Kind() == sqldb.Postgres {
			zones = []string{"timezone=Asia/Tokyo"}
		}
		mark := "?"
		if strings.Contains(db.DSN, "?") {
			mark = "&"
		}
		for _, zone := range zones {
			another, pool, err := dbtest.Open(t.Context(), db.Kind().String(), db.DSN+mark+zone)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = pool.Close() })
			for begun := time.Now(); ; time.Sleep(50 * time.Millisecond) {
				var c check
				for _, c = range examined(t, db, another, func(d *doctor) { d.oldAge = 0 }) {
					if c.Name == "oldest snapshot" {
						break
					}
				}
				age, err := time.ParseDuration(c.Value)
				if err != nil || age > 30*time.Minute {
					t.Fatalf("%s: %+v", zone, c)
				}
				if c.State == warn {
					break
				}
				if time.Since(begun) > patience {
					t.Fatalf("%s: it is never seen: %+v", zone, c)
				}
			}
		}
	})
}

// TestDoctorWithoutRights: a user who may use the tables and nothing else is told what
// cannot be seen, and that is no failure; one who may not even do that is told, too.
func TestDoctorWithoutRights(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		user := fmt.Sprintf("sqllock_test_%08x", rand.Uint32())
		var restricted string
		if db.Kind() == sqldb.Postgres {
			db.MustExec(t, "CREATE ROLE "+user+" LOGIN PASSWORD 'word'", "GRANT USAGE ON SCHEMA "+db.Schema()+" TO "+user)
			t.Cleanup(func() { db.MustExec(t, "DROP OWNED BY "+user, "DROP ROLE "+user) })
			u, err := url.Parse(db.DSN)
			if err != nil {
				t.Fatal(err)
			}
			u.User = url.UserPassword(user, "word")
			restricted = u.String()
		} else {
			db.MustExec(t, "CREATE USER "+user+" IDENTIFIED BY 'word'", "GRANT CREATE ON "+db.Schema()+".* TO "+user)
			t.Cleanup(func() { db.MustExec(t, "DROP USER "+user) })
			cfg, err := mysql.ParseDSN(db.DSN)
			if err != nil {
				t.Fatal(err)
			}
			cfg.User, cfg.Passwd = user, "word"
			restricted = cfg.FormatDSN()
		}
		r := wantJSON[doctorResult](t, 1, "doctor", "--dsn", restricted)
		judged(t, r.Checks, "tables", fail, "denied", "grant")

		if db.Kind() == sqldb.Postgres {
			db.MustExec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA "+db.Schema()+" TO "+user)
		} else {
			db.MustExec(t, "GRANT SELECT, INSERT, UPDATE, DELETE ON "+db.Schema()+".* TO "+user)
		}
		r = wantJSON[doctorResult](t, 0, "doctor", "--dsn", restricted)
		judged(t, r.Checks, "tables", ok, "version", "")
		judged(t, r.Checks, "oldest snapshot", warn, "unknown", "grant ")
		if db.Kind() != sqldb.Postgres {
			judged(t, r.Checks, "replica", warn, "unknown", "grant ")
		}
		handle, pool, err := dbtest.Open(t.Context(), db.Kind().String(), restricted)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = pool.Close() }()
		checks := examined(t, db, handle, func(d *doctor) { d.slowPair = time.Hour }) // however slow the disk is
		judged(t, checks, "lock pair", ok, "acquire and release", "")
	})
}

// TestDoctorGoesOn: what cannot be asked is a line, and the rest is looked at; only the
// end of ctx ends it.
func TestDoctorGoesOn(t *testing.T) {
	broken := errors.New("broken\x1b in\nlines")
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		d := func(d sqldb.Driver) sqldb.Driver {
			return answers{Driver: d, set: func(query string) ([][]any, error, bool) {
				mine := strings.HasPrefix(query, "SHOW ") || strings.HasPrefix(query, "PRAGMA ") || strings.Contains(query, "pg_settings")
				return nil, broken, mine && !strings.Contains(query, "table_")
			}}
		}
		checks := examined(t, db, db.Wrap(d), nil)
		judged(t, checks, "settings", warn, "unknown: broken", "")
		judged(t, checks, "clock", ok, "", "")
		var line dbtest.Line
		line.Set(dbtest.Gone)
		checks = examined(t, db, db.Wrap(line.Wrap), nil)
		judged(t, checks, "tables", fail, "the database is gone", "grant")
		judged(t, checks, "clock", warn, "the database is gone", "")

		line.Set(dbtest.Paused)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		s := &session{app: &app{out: &cli.Output{}}, db: db.Wrap(line.Wrap)}
		if err := s.newDoctor().examine(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}
