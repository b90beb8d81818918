package dsn

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// noEnvironment takes away what pgx would read from it.
func noEnvironment(t testing.TB) {
	t.Helper()
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); strings.HasPrefix(name, "PG") {
			t.Setenv(name, "")
			os.Unsetenv(name)
		}
	}
	t.Setenv("PGPASSFILE", "/nonexistent")
	t.Setenv("PGSERVICEFILE", "/nonexistent")
}

func TestParse(t *testing.T) {
	noEnvironment(t)
	for _, tt := range []struct {
		in       string
		kind     sqldb.Kind
		redacted string
	}{
		{"postgres://u:pw@h:5433/d", sqldb.Postgres, "postgres://u:xxxxx@h:5433/d"},
		{"postgresql://u:pw@h/d?sslmode=disable", sqldb.Postgres, "postgres://u:xxxxx@h:5432/d"},
		{"POSTGRES://u@h/d", sqldb.Postgres, "postgres://u@h:5432/d"},
		{"postgres://u:pw@a,b:6000/d?sslmode=disable", sqldb.Postgres, "postgres://u:xxxxx@a:5432,b:6000/d"},
		{"postgres://u:pw@[::1]:5433/d", sqldb.Postgres, "postgres://u:xxxxx@[::1]:5433/d"},
		{"postgres://u@%2Frun%2Fpostgresql/d", sqldb.Postgres, "postgres://u@%2Frun%2Fpostgresql/d"},
		{"postgres://u@[fe80::1%25eth0]/d", sqldb.Postgres, "postgres://u@[fe80::1%eth0]:5432/d"},
		{"postgres:///d?host=/var/run/postgresql&user=u", sqldb.Postgres, "postgres://u@%2Fvar%2Frun%2Fpostgresql/d"},
		{"postgres://h/d?user=u&password=pw", sqldb.Postgres, "postgres://u:xxxxx@h:5432/d"},
		{"postgres://u:p%40w%2Fx@h/d", sqldb.Postgres, "postgres://u:xxxxx@h:5432/d"},
		{"postgres://u:pw@h/my%20db", sqldb.Postgres, "postgres://u:xxxxx@h:5432/my%20db"},
		{"host=h user=u password='p w' dbname=d sslmode=disable", sqldb.Postgres, "postgres://u:xxxxx@h:5432/d"},
		{"dbname=d host=h user=u", sqldb.Postgres, "postgres://u@h:5432/d"},
		{"mysql://u:pw@h:3307/d", sqldb.MySQL, "mysql://u:xxxxx@h:3307/d"},
		{"mariadb://u:pw@h/d?parseTime=true&loc=US%2FPacific", sqldb.MariaDB, "mariadb://u:xxxxx@h:3306/d"},
		{"mysql://u:pw@[::1]/d", sqldb.MySQL, "mysql://u:xxxxx@[::1]:3306/d"},
		{"mysql://u:pw@/d", sqldb.MySQL, "mysql://u:xxxxx@127.0.0.1:3306/d"},
		{"mysql://u:pw@/d?socket=/run/mysqld/mysqld.sock", sqldb.MySQL, "mysql://u:xxxxx@unix(/run/mysqld/mysqld.sock)/d"},
		{"mysql://u:pw@%2Frun%2Fm.sock/d", sqldb.MySQL, "mysql://u:xxxxx@unix(/run/m.sock)/d"},
		{"u:pw@tcp(h:3307)/d?timeout=3s", sqldb.MySQL, "mysql://u:xxxxx@h:3307/d"},
		{"u:p@w/x:y@tcp(h)/d", sqldb.MySQL, "mysql://u:xxxxx@h:3306/d"},
		{"u:pw@unix(/tmp/m.sock)/d", sqldb.MySQL, "mysql://u:xxxxx@unix(/tmp/m.sock)/d"},
		{"u:pw@/d", sqldb.MySQL, "mysql://u:xxxxx@127.0.0.1:3306/d"},
		{"tcp(h)/d", sqldb.MySQL, "mysql://h:3306/d"},
		{"sqlite:app.db", sqldb.SQLite, "sqlite:app.db"},
		{"sqlite:/var/lib/app.db", sqldb.SQLite, "sqlite:/var/lib/app.db"},
		{"sqlite:///var/lib/app.db", sqldb.SQLite, "sqlite:/var/lib/app.db"},
		{"sqlite://data/app.db", sqldb.SQLite, "sqlite:data/app.db"},
		{"sqlite3:../my app.db", sqldb.SQLite, "sqlite:../my app.db"},
		{"sqlite::memory:", sqldb.SQLite, "sqlite::memory:"},
		{"sqlite://:memory:", sqldb.SQLite, "sqlite::memory:"},
		{"file:app.db?mode=rw", sqldb.SQLite, "sqlite:app.db"},
		{"file:///a/b.db", sqldb.SQLite, "sqlite:/a/b.db"},
		{"file://localhost/a/b.db", sqldb.SQLite, "sqlite:/a/b.db"},
		{"file::memory:?cache=shared", sqldb.SQLite, "sqlite::memory:"},
		{"file:x?mode=memory", sqldb.SQLite, "sqlite::memory:"},
	} {
		t.Run(tt.in, func(t *testing.T) {
			d, err := Parse(tt.in)
			if err != nil {
				t.Fatal(err)
			}
			if d.Kind() != tt.kind || d.Redacted() != tt.redacted {
				t.Errorf("got %s %q, want %s %q", d.Kind(), d.Redacted(), tt.kind, tt.redacted)
			}
			for _, f := range []string{"%v", "%+v", "%#v", "%s"} {
				if got := fmt.Sprintf(f, d); got != tt.redacted {
					t.Errorf("%s prints %q", f, got)
				}
			}
		})
	}
}

func TestParseRefuses(t *testing.T) {
	noEnvironment(t)
	for _, tt := range []struct{ in, want string }{
		{"", "it is empty"},
		{"  ", "it is empty"},
		{"oracle://u:hunter2@h/d", "the scheme oracle:// is not known"},
		{"hunter2", "none of the known forms"},
		{"u:hunter2@localhost/d", "none of the known forms"},
		{"/var/lib/app.db", "sqlite:path/to/file.db"},
		{"postgres:u:hunter2@h/d", "// is missing"},
		{"postgres://u:hunter2@h", "the database is missing: write postgres://"},
		{"postgres://u:hunter2@h/", "the database is missing"},
		{"postgres://u:hunter2@h:0/d", "from 1 to 65535"},
		{"postgres://u:hunter2@h:65536/d", "from 1 to 65535"},
		{"postgres://u:hunter2@h:x/d", "from 1 to 65535"},
		{"postgres://u:hunter2/d", "from 1 to 65535"},
		{"postgres://u:hunter2@a:1,b:99999/d", "from 1 to 65535"},
		{"postgres://u:hun@ter2@h/d", "more than one @"},
		{"postgres://u:1/hunter2@h/d", "behind the first / or ?"},
		{"postgres://u:1?hunter2@h/d", "behind the first / or ?"},
		{"postgres://u:hunter2@h/d?user=a@b", "more than one @"},
		{"postgres://u:1#hunter2@h/d", "# is %23"},
		{"postgres://u:hunter2%zz@h/d", "two hexadecimal digits"},
		{"postgres://u:hunter2%00@h/d", "NUL byte"},
		{"postgres://u:hunter2@h/d\x00", "NUL byte at byte 24"},
		{"postgres://u:hunter2@h/d\n", "a line break?"},
		{"postgres://u:@hunter2%25/d", "no host name has"},
		{"mysql://u:@hunter2%25/d", "no host name has"},
		{"u:@tcp(hunter2/x)/d", "no host name has"},
		{"postgres://u:hunter2@::1/d", "brackets"},
		{"postgres://u:hunter2@[::1/d", "IPv6"},
		{"postgres://u:hunter2@h/d?sslmode=hunter2", "sslmode is invalid"},
		{"postgres://u:hunter2@h/d?sslrootcert=/nonexistent&sslmode=verify-full", "unable to read CA file"},
		{"host=h password='hunter2 dbname=d", "keyword/value form is malformed"},
		{"host=h password=x hunter2 dbname=d", "keyword/value form is malformed"},
		{"host=h user=u password=hunter2", "the database is missing"},
		{"mysql://u:hunter2@h", "the database is missing: write mysql://"},
		{"mariadb://u:hunter2@h/", "the database is missing: write mariadb://"},
		{"mysql://u:hunter2@h:99999/d", "from 1 to 65535"},
		{"mysql://u:hunter2@a,b/d", "one host"},
		{"mysql://u:hunter2@tcp(h:3306)/d", "mixes two forms"},
		{"mysql://u:hunter2@h/d?parseTime=maybe", "invalid bool value"},
		{"mysql://u:hunter2@h/d?tls=nosuch", "unknown config name"},
		{"mysql://u:hunter2@h/d?ssl-mode=maybe", "ssl-mode is one of"},
		{"mysql://u:hunter2@h/d?ssl-ca=/nonexistent.pem", "ssl-ca: open /nonexistent.pem"},
		{"mysql://u:hunter2@h/d?ssl-cert=x.pem", "go together"},
		{"mysql://u:hunter2@h/d?tls=true&ssl-mode=required", "write one of them"},
		{"u:hunter2@tcp(h:3306)/", "the database is missing"},
		{"u:hunter2@tcp(h:x)/d", "from 1 to 65535"},
		{"u:hunter2@tcp(h:3306/d", "malformed"},
		{"u:hunter2@tcp(h:3306)d", "malformed"},
		{"u:hunter2@tcp(h)/d?loc=US/Pacific", "malformed"},
		{"u:@tcp(x)/hunter2@h/", "malformed"},
		{"u:@tcp(x)/hunter2@h", "behind the last /"},
		{"u:hunter2@tcp(h)/d?timeout=hunter2", "invalid duration"},
		{"sqlite:", "the file is missing"},
		{"sqlite://", "the file is missing"},
		{"file:?mode=rwc", "the file is missing"},
		{"sqlite:data/", "a folder"},
		{"sqlite:a%zz.db", "two hexadecimal digits"},
		{"sqlite:a%00.db", "NUL byte"},
		{"sqlite:a#b.db", "# is %23"},
		{"sqlite://u:hunter2@h/d", "no user, password"},
		{"file://host/a.db", "has a host"},
		{"sqlite:a.db?_pragma=key('hunter2%3Bx')", "has a ;"},
		{"sqlite:a.db?x=%zz", "malformed"},
	} {
		t.Run(tt.in, func(t *testing.T) {
			d, err := Parse(tt.in)
			if err == nil {
				t.Fatalf("taken for %s", d)
			}
			if !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %q does not say %q", err, tt.want)
			}
			if !strings.HasPrefix(err.Error(), "dsn: ") {
				t.Errorf("error %q does not say where it comes from", err)
			}
			if strings.Contains(err.Error(), "hunter2") || strings.Contains(Redact(tt.in), "hunter2") {
				t.Errorf("the password shows: %q, %q", err, Redact(tt.in))
			}
		})
	}
}

func TestEnvironment(t *testing.T) {
	noEnvironment(t)
	t.Setenv("PGPASSWORD", "from-the-environment")
	t.Setenv("PGDATABASE", "envdb")
	d, err := Parse("postgres://u@h")
	if err != nil {
		t.Fatal(err)
	}
	if d.Redacted() != "postgres://u:xxxxx@h:5432/envdb" {
		t.Errorf("got %s", d)
	}
	if got := d.Scrubber().Text("x from-the-environment y"); got != "x xxxxx y" {
		t.Errorf("scrubbed: %q", got)
	}
}

func TestMySQLConfig(t *testing.T) {
	d, err := Parse("mysql://us%65r:p%40w%2F@db.example:3307/shop?ssl-mode=REQUIRED&timeout=3s&sql_mode=%27%27&charset=utf8mb4")
	if err != nil {
		t.Fatal(err)
	}
	c := d.my
	if c.User != "user" || c.Passwd != "p@w/" || c.Addr != "db.example:3307" || c.DBName != "shop" {
		t.Errorf("got %q %q %q %q", c.User, c.Passwd, c.Addr, c.DBName)
	}
	if c.TLS == nil || !c.TLS.InsecureSkipVerify || c.AllowFallbackToPlaintext || c.Timeout.Seconds() != 3 || c.Params["sql_mode"] != "''" {
		t.Errorf("got %+v", c)
	}

	d, err = Parse("mysql://h/shop?tls=true")
	if err != nil {
		t.Fatal(err)
	}
	if d.my.TLS == nil || d.my.TLS.ServerName != "h" || d.my.Timeout != connectTimeout {
		t.Errorf("tls=true: %+v", d.my)
	}
	for mode, fallback := range map[string]bool{"PREFERRED": true, "VERIFY_CA": false, "verify-identity": false} {
		d, err := Parse("mysql://h/shop?ssl-mode=" + mode)
		if err != nil {
			t.Fatal(err)
		}
		if d.my.TLS == nil || d.my.AllowFallbackToPlaintext != fallback || d.my.TLS.ServerName != "h" {
			t.Errorf("%s: %+v", mode, d.my.TLS)
		}
		if strings.EqualFold(mode, "VERIFY_CA") != (d.my.TLS.VerifyConnection != nil) {
			t.Errorf("%s: VerifyConnection", mode)
		}
	}
	if d, err = Parse("mysql://h/shop?ssl-mode=DISABLED"); err != nil || d.my.TLS != nil {
		t.Errorf("DISABLED: %v %v", d, err)
	}
}

func TestSQLiteURI(t *testing.T) {
	const defaults = "_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=immediate"
	for in, want := range map[string]string{
		"sqlite:a.db":                              "file:a.db?" + defaults,
		"sqlite:/x/a.db":                           "file:///x/a.db?" + defaults,
		"sqlite:my file.db":                        "file:my%20file.db?" + defaults,
		"sqlite:a%3Fb%25%23.db":                    "file:a%3Fb%25%23.db?" + defaults,
		"sqlite:a.db?_txlock=deferred":             "file:a.db?_pragma=busy_timeout(5000)&_pragma=journal_mode(WAL)&_txlock=deferred",
		"sqlite:a.db?_pragma=busy_timeout(1)":      "file:a.db?_pragma=journal_mode(WAL)&_txlock=immediate&_pragma=busy_timeout(1)",
		"sqlite:a.db?_pragma=journal_mode(DELETE)": "file:a.db?_pragma=busy_timeout(5000)&_txlock=immediate&_pragma=journal_mode(DELETE)",
		"sqlite:a.db?_journal=DELETE&_timeout=1":   "file:a.db?_txlock=immediate&_journal=DELETE&_timeout=1",
		"file:a.db?mode=ro":                        "file:a.db?_pragma=busy_timeout(5000)&_txlock=immediate&mode=ro",
		"sqlite::memory:":                          "file::memory:?_pragma=busy_timeout(5000)&_txlock=immediate",
	} {
		d, err := Parse(in)
		if err != nil {
			t.Errorf("%s: %v", in, err)
		} else if got := d.lite.uri(); got != want {
			t.Errorf("%s:\n got %s\nwant %s", in, got, want)
		}
	}
	d, err := Parse("sqlite:a.db?_txlock=deferred")
	if err != nil {
		t.Fatal(err)
	}
	d.SetBusyTimeout(time.Second)
	if got := d.lite.uri(); got != "file:a.db?_pragma=busy_timeout(1000)&_pragma=journal_mode(WAL)&_txlock=deferred" {
		t.Errorf("with another timeout: %s", got)
	}
}
