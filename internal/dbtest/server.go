package dbtest

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/internal/dsn"
	"github.com/sqlnative/locks/sqldb"
)

// serverDSN is what the environment says of a server, in the form that [DB.DSN] has.
// Without a DSN the test is skipped, unless SQLLOCK_TEST_REQUIRE names the server.
func serverDSN(t testing.TB, kind sqldb.Kind) string {
	t.Helper()
	need, err := required(os.Getenv("SQLLOCK_TEST_REQUIRE"))
	if err != nil {
		t.Fatal(err)
	}
	given := os.Getenv(Env(kind))
	switch {
	case given == "" && slices.Contains(need, kind.String()):
		t.Fatalf("SQLLOCK_TEST_REQUIRE names %s, and %s is not set", kind, Env(kind))
	case given == "":
		t.Skipf("%s is not set", Env(kind))
	}
	server, err := normalize(kind, given)
	if err != nil {
		t.Fatalf("%s: %v", Env(kind), err)
	}
	return server
}

// required reads SQLLOCK_TEST_REQUIRE. A name that is none would require nothing.
func required(list string) (names []string, err error) {
	for _, name := range strings.Split(list, ",") {
		switch name = strings.ToLower(strings.TrimSpace(name)); name {
		case "":
		case "postgres", "mysql", "mariadb":
			names = append(names, name)
		default:
			return nil, fmt.Errorf("SQLLOCK_TEST_REQUIRE names %q: it takes postgres, mysql and mariadb, separated by commas", name)
		}
	}
	return names, nil
}

// normalize takes what integration/testdb takes: a URL for PostgreSQL; for MySQL and
// MariaDB a mysql:// or mariadb:// URL too, which it brings into go-sql-driver's own
// form. Its errors hold nothing of what was given.
func normalize(kind sqldb.Kind, given string) (string, error) {
	if kind == sqldb.Postgres {
		u, err := url.Parse(given)
		if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
			return "", errors.New("it is no URL of the form postgres://user:password@host:port/database")
		}
		return given, nil
	}
	if scheme, _, ok := strings.Cut(given, "://"); ok && (scheme == "mysql" || scheme == "mariadb") {
		u, err := url.Parse(given)
		if err != nil {
			return "", fmt.Errorf("it is no URL of the form %s://user:password@host:port/database", scheme)
		}
		port := u.Port()
		if port == "" {
			port = "3306"
		}
		cfg := mysql.NewConfig()
		cfg.User = u.User.Username()
		cfg.Passwd, _ = u.User.Password()
		cfg.Net, cfg.Addr = "tcp", net.JoinHostPort(u.Hostname(), port)
		cfg.DBName = strings.TrimPrefix(u.Path, "/")
		given = cfg.FormatDSN()
		if u.RawQuery != "" {
			separator := "?"
			if strings.Contains(given[strings.LastIndex(given, "/"):], "?") {
				separator = "&"
			}
			given += separator + u.RawQuery
		}
	}
	if _, err := mysql.ParseDSN(given); err != nil {
		return "", errors.New("it is neither of the form user:password@tcp(host:port)/database nor a mysql:// URL")
	}
	return given, nil
}

// scrub takes the password of a DSN out of an error, whoever made that.
func scrub(given string, err error) error {
	text := dsn.ScrubArgs(given).Text(err.Error())
	if text == err.Error() {
		return err
	}
	return errors.New(text)
}
