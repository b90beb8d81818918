package dsn_test

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/internal/dsn"
	"github.com/sqlnative/locks/sqldb"
)

// urls are all the ways of writing a DSN of dbtest's.
func urls(t *testing.T, db *dbtest.DB) []string {
	t.Helper()
	if !db.Kind().InnoDB() {
		return []string{db.DSN}
	}
	cfg, err := mysql.ParseDSN(db.DSN)
	if err != nil {
		t.Fatal(err)
	}
	u := url.URL{Scheme: "mysql", User: url.UserPassword(cfg.User, cfg.Passwd), Host: cfg.Addr, Path: "/" + cfg.DBName}
	if cfg.Net == "unix" {
		u.Host, u.RawQuery = "", "socket="+url.QueryEscape(cfg.Addr)
	}
	list := []string{db.DSN, u.String()}
	u.Scheme = "mariadb"
	return append(list, u.String())
}

func TestOpen(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		for _, s := range urls(t, db) {
			d, err := dsn.Parse(s)
			if err != nil {
				t.Fatal(err)
			}
			got, done, err := d.Open(t.Context(), sqldb.TablePrefix("x_"))
			if err != nil {
				t.Fatal(err)
			}
			if got.Kind() != db.Kind() || got.Schema() != db.Schema() || got.TablePrefix() != "x_" {
				t.Errorf("%s: opened %s with prefix %q, want %s", d, got, got.TablePrefix(), db.DB)
			}
			if err := done(); err != nil {
				t.Error(err)
			}
			if _, err := got.Exec(t.Context(), "SELECT 1"); err == nil {
				t.Error("the pool is open after it was closed")
			}
		}
	})
}

func TestOpenRefused(t *testing.T) {
	const wrong = "wr0ng/p@ss word"
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		list := urls(t, db)
		u, err := url.Parse(list[len(list)-1])
		if err != nil {
			t.Fatal(err)
		}
		u.User = url.UserPassword(u.User.Username(), wrong)
		nobody := *u
		nobody.Host = "127.0.0.1:1"
		for _, s := range []string{u.String(), nobody.String()} {
			text := refusal(t, s)
			if strings.Contains(text, "wr0ng") || strings.Contains(text, "ss word") || !strings.Contains(text, "cannot open "+u.Scheme) {
				t.Errorf("the error is %q", text)
			}
		}
	})
}

func refusal(t *testing.T, s string) string {
	t.Helper()
	d, err := dsn.Parse(s)
	if err != nil {
		t.Fatal(err)
	}
	db, done, err := d.Open(t.Context())
	if err == nil {
		_ = done()
		t.Skipf("%s lets everybody in", db)
	}
	if done == nil || done() != nil {
		t.Error("the function that closes is of no use")
	}
	return err.Error()
}

func TestOpenSQLite(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.Mkdir("my data", 0o700); err != nil {
		t.Fatal(err)
	}
	abs, err := filepath.Abs("abs.db")
	if err != nil {
		t.Fatal(err)
	}
	for s, file := range map[string]string{
		"sqlite:app.db":               "app.db",
		"sqlite:./my data/a b.db":     "my data/a b.db",
		"sqlite:my%20data/c.db":       "my data/c.db",
		"sqlite:a%3Fb%23c%25d.db":     "a?b#c%d.db",
		"sqlite:é.db":                 "é.db",
		"sqlite://" + abs:             "abs.db",
		"file:f.db?_txlock=immediate": "f.db",
		"file:g&h=i.db":               "g&h=i.db",
	} {
		d, err := dsn.Parse(s)
		if err != nil {
			t.Fatal(err)
		}
		db, done, err := d.Open(t.Context())
		if err != nil {
			t.Errorf("%s: %v", s, err)
			continue
		}
		var mode string
		var timeout int
		if err := db.QueryRow(t.Context(), "PRAGMA journal_mode").Scan(&mode); err != nil || mode != "wal" {
			t.Errorf("%s: journal_mode %q %v", s, mode, err)
		}
		if err := db.QueryRow(t.Context(), "PRAGMA busy_timeout").Scan(&timeout); err != nil || timeout != 5000 {
			t.Errorf("%s: busy_timeout %d %v", s, timeout, err)
		}
		_ = done()
		if _, err := os.Stat(file); err != nil || filepath.Clean(d.File()) != filepath.Clean(file) && d.File() != abs {
			t.Errorf("%s: %v, File says %q", s, err, d.File())
		}
	}
	for s, want := range map[string]string{
		"sqlite:nowhere/app.db":              "the folder nowhere does not exist",
		"sqlite:my data":                     "is a folder",
		"sqlite:app.db?mode=ro":              "read-only",
		"sqlite:none.db?mode=rw":             "unable to open",
		"sqlite:app.db?_pragma=key('hunter2": "unrecognized token",
	} {
		if got := refusal(t, s); !strings.Contains(got, want) || strings.Contains(got, "hunter2") {
			t.Errorf("%s: %q", s, got)
		}
	}
}

func TestOpenMemory(t *testing.T) {
	d, err := dsn.Parse("sqlite::memory:")
	if err != nil {
		t.Fatal(err)
	}
	db, done, err := d.Open(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = done() }()
	if d.File() != "" {
		t.Errorf("File says %q", d.File())
	}
	if _, err := db.Exec(t.Context(), "CREATE TABLE t (x)"); err != nil {
		t.Fatal(err)
	}
	for range 20 { // another connection would have another database
		if _, err := db.Exec(t.Context(), "INSERT INTO t VALUES (1)"); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOpenChecksOptionsFirst(t *testing.T) {
	d, err := dsn.Parse("sqlite:" + filepath.Join(t.TempDir(), "a.db"))
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := d.Open(t.Context(), sqldb.Schema("a b")); err == nil {
		t.Error("a bad schema was taken")
	}
	if _, err := os.Stat(d.File()); err == nil {
		t.Error("the file was made all the same")
	}
}

func ExampleParse() {
	d, err := dsn.Parse("postgres://app:s3cret@db.example/shop?sslmode=require")
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(d.Kind(), d)
	_, err = dsn.Parse("postgres://app:s3cr/et@db.example/shop")
	fmt.Println(err)
	// Output:
	// postgres postgres://app:xxxxx@db.example:5432/shop
	// dsn: there is an @ behind the first / or ?: percent-encode it (@ is %40), and a / or ? in a password, too (%2F, %3F)
}
