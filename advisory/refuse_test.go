package advisory_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

func TestNewRefuses(t *testing.T) {
	if _, err := advisory.New(t.Context(), nil); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("nil: %v", err)
	}
	sqlite := dbtest.New(t, sqldb.SQLite)
	if _, err := advisory.New(t.Context(), sqlite.DB); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "sqllock.New") {
		t.Errorf("SQLite: %v", err)
	}
}

// A wrong option fails New, and one that cannot be honoured, before any statement.
func TestOptionsOfNew(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		handle, counter := dbtest.Count(db.DB)
		counter.Take()
		for what, opt := range map[string]lock.Option{
			"nil": nil, "no connection": advisory.Connections(0), "too many": advisory.Connections(1001), "no pause": advisory.Poll(0), "a long pause": advisory.Poll(1 << 60), "TTL": lock.TTL(1),
		} {
			if _, err := advisory.New(t.Context(), handle, opt); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("%s: %v", what, err)
			}
		}
		for what, opt := range map[string]lock.Option{"NoRenew": lock.NoRenew(), "another's": lock.Own("another", "another.Option", 1)} {
			if _, err := advisory.New(t.Context(), handle, opt); !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "Option") && !strings.Contains(err.Error(), what) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if all := counter.Take(); len(all) > 0 {
			t.Errorf("statements were sent: %q", all)
		}
		l := locker(t, handle)
		for what, opt := range map[string]lock.Option{"Connections": advisory.Connections(3), "Unchecked": advisory.Unchecked(), "Poll": advisory.Poll(-1)} {
			if _, err := l.Acquire(t.Context(), "option", opt); !errors.Is(err, lock.ErrInvalid) {
				t.Errorf("%s at Acquire: %v", what, err)
			}
		}
		if db.Kind().InnoDB() {
			if _, err := l.Acquire(t.Context(), "option", lock.Shared()); !errors.Is(err, errors.ErrUnsupported) {
				t.Errorf("Shared: %v", err)
			}
		}
	})
}

// Servers whose locks are not what they seem are refused, with the reason, unless one
// says that one knows.
func TestServersAreRefused(t *testing.T) {
	type answer struct {
		kinds []sqldb.Kind
		words string
		row   []any
		says  string
		late  bool // found out with the first session
	}
	for what, a := range map[string]answer{
		"Galera":            {[]sqldb.Kind{sqldb.MariaDB, sqldb.MySQL}, "SHOW VARIABLES", []any{[]byte("wsrep_on"), []byte("ON")}, "Galera", false},
		"group replication": {[]sqldb.Kind{sqldb.MySQL}, "SHOW VARIABLES", []any{[]byte("group_replication_group_name"), []byte("aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa")}, "group replication", false},
		"pooler":            {[]sqldb.Kind{sqldb.Postgres}, "SELECT pg_backend_pid()", []any{int64(4711)}, "PgBouncer", false},
		"standby": {[]sqldb.Kind{sqldb.Postgres}, "pg_is_in_recovery", []any{
			int64(1), true, "on", "", "0", "0", "0", "0", "", "", "", "", "",
		}, "hot standby", true},
		"read-only": {[]sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, "read_only", []any{int64(1), []byte("ON"), []byte("0"), []byte("1"), []byte("1")}, "read-only", true},
	} {
		t.Run(what, func(t *testing.T) {
			dbtest.On(t, a.kinds, func(t *testing.T, db *dbtest.DB) {
				t.Parallel()
				row := a.row
				if what == "standby" && db.VersionNumber() < 170000 {
					row = row[:len(row)-2]
				}
				var s script
				handle := db.Wrap(s.wrap)
				s.on(a.words, -1, false, nil, row...)
				l, err := advisory.New(t.Context(), handle)
				if a.late {
					if err != nil {
						t.Fatal(err)
					}
					_, err = l.Acquire(t.Context(), "refused")
					if err := l.Close(); err != nil {
						t.Error(err)
					}
				}
				if !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), a.says) || !strings.Contains(err.Error(), "advisory.Unchecked") {
					t.Errorf("the answer is %v", err)
				}
				l, err = advisory.New(t.Context(), handle, advisory.Unchecked())
				if err != nil {
					t.Fatalf("Unchecked: %v", err)
				}
				s.on("", 0, false, nil)
				release(t, must(t, l, "unchecked"))
				if err := l.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// A primary that becomes read-only, as in a planned failover, keeps its sessions: what
// they hold is lost with the next ping, since others get their locks from the new one.
func TestServerBecomesReadOnly(t *testing.T) {
	t.Parallel()
	dbtest.On(t, innodb, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		var s script
		l, knows := locker(t, db.Wrap(s.wrap)), locker(t, db.Wrap(s.wrap), advisory.Unchecked())
		begun := time.Now()
		got, kept := must(t, l, "failover", lock.TTL(3*time.Second)), must(t, knows, "kept", lock.TTL(3*time.Second))
		var before int64
		if err := db.SQL.QueryRowContext(t.Context(), "SELECT IS_USED_LOCK('"+serverKey(t, db, "failover")+"')").Scan(&before); err != nil {
			t.Fatal(err)
		}
		s.on("SELECT CONNECTION_ID(), @@global.read_only", -1, false, nil, before, []byte("ON"))
		select {
		case <-got.Done():
		case <-time.After(20 * time.Second):
			t.Fatal("it is still trusted")
		}
		if err := got.Err(); !errors.Is(err, lock.ErrLost) || !errors.Is(err, errors.ErrUnsupported) || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("after %v: %v", time.Since(begun), err)
		}
		eventually(t, "its session has ended", func() bool { return sessionOf(t, db, "failover") == 0 })
		if err := kept.Err(); err != nil {
			t.Errorf("Unchecked: %v", err)
		}
		s.on("", 0, false, nil)
		release(t, kept)
	})
}
