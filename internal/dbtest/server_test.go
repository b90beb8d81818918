package dbtest

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/sqldb"
)

func TestNormalize(t *testing.T) {
	for _, c := range []struct {
		kind        sqldb.Kind
		given, want string
	}{
		{sqldb.Postgres, "postgres://u:p%40ss@h:1/d?sslmode=disable", "postgres://u:p%40ss@h:1/d?sslmode=disable"},
		{sqldb.MySQL, "u:p@ss@tcp(h:1)/d?parseTime=true", "u:p@ss@tcp(h:1)/d?parseTime=true"},
		{sqldb.MySQL, "mysql://u:p%40ss@h/d", "u:p@ss@tcp(h:3306)/d"},
		{sqldb.MariaDB, "mariadb://u:p%40ss@h:1/d?parseTime=true", "u:p@ss@tcp(h:1)/d?parseTime=true"},
		{sqldb.MariaDB, "mysql://u@[::1]:1/d", "u@tcp([::1]:1)/d"},
		{sqldb.Postgres, "host=h user=u password=s3cret", ""},
		{sqldb.Postgres, "mysql://u:s3cret@h/d", ""},
		{sqldb.Postgres, "postgres://u:s3cret%@h/d", ""},
		{sqldb.MySQL, "mysql://u:s3cret%@h/d", ""},
		{sqldb.MySQL, "postgres://u:s3cret@h/d", ""},
		{sqldb.MariaDB, "s3cret", ""},
	} {
		got, err := normalize(c.kind, c.given)
		if got != c.want || (err == nil) != (c.want != "") || err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%v %s: %q, %v", c.kind, c.given, got, err)
		}
	}
}

func TestRequired(t *testing.T) {
	if got, err := required(" postgres, mariadb,"); err != nil || fmt.Sprint(got) != "[postgres mariadb]" {
		t.Errorf("%q, %v", got, err)
	}
	for _, list := range []string{"postgresql", "mysql mariadb", "sqlite"} {
		if got, err := required(list); err == nil {
			t.Errorf("%s: %q", list, got)
		}
	}
}

func TestScrub(t *testing.T) {
	for _, given := range []string{"postgres://u:s3cret@h/d", "u:s3cret@tcp(h:1)/d", "postgres://u:s3cret@h:port/d"} {
		err := scrub(given, fmt.Errorf("parse %q: s3cret is wrong", given))
		if strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "is wrong") {
			t.Error(err)
		}
	}
}

// A server that the environment names by a URL is as good as one by the driver's form.
func TestURLForm(t *testing.T) {
	for _, kind := range []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB} {
		t.Run(kind.String(), func(t *testing.T) {
			server := serverDSN(t, kind)
			cfg, err := mysql.ParseDSN(server)
			if err != nil || cfg.Net != "tcp" {
				t.Skip("the server is not reached by TCP")
			}
			host, port, err := net.SplitHostPort(cfg.Addr)
			if err != nil {
				t.Fatal(err)
			}
			u := url.URL{Scheme: kind.String(), User: url.UserPassword(cfg.User, cfg.Passwd), Host: net.JoinHostPort(host, port), Path: "/" + cfg.DBName, RawQuery: "parseTime=true"}
			t.Setenv(Env(kind), u.String())
			db := New(t, kind)
			if err := db.QueryRow(t.Context(), "SELECT 1").Scan(new(int)); err != nil {
				t.Error(err)
			}
			if strings.Contains(os.Getenv(Env(kind)), "tcp(") {
				t.Error("the test has shown nothing")
			}
		})
	}
}
