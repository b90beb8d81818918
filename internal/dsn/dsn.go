package dsn

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlnative/locks/sqldb"
)

// DSN is a connection string that has been understood. Printing it, however,
// prints [DSN.Redacted].
type DSN struct {
	kind     sqldb.Kind
	redacted string
	scrub    *Scrubber

	answer time.Duration // how long Open waits for the server's first answer; 0: for ever
	hosts  string        // of the server, for errors
	conns  int           // how many connections the pool has at most; 0: as many as the driver says

	pg   *pgxpool.Config
	my   *mysql.Config
	lite *liteFile
}

// connectTimeout is how long one attempt to connect may take, unless the DSN
// says otherwise.
const connectTimeout = 10 * time.Second

// What to write, for errors.
const (
	exPostgres = "postgres://user:password@host:5432/database"
	exMySQL    = "mysql://user:password@host:3306/database"
	exDriver   = "user:password@tcp(host:3306)/database"
	exSQLite   = "sqlite:path/to/file.db"
)

var (
	schemeForm  = regexp.MustCompile(`^([A-Za-z][A-Za-z0-9+.-]{0,19})://`)
	keywordForm = regexp.MustCompile(`^\s*(host|hostaddr|port|user|password|passfile|dbname|service|sslmode|application_name|connect_timeout|options)\s*=`)
)

// Parse understands a connection string; the package's doc lists the forms. No
// connection is made. An error says what to write instead, and has no part of the
// string in it that could be a password.
func Parse(s string) (*DSN, error) {
	if strings.TrimSpace(s) == "" {
		return nil, fmt.Errorf("dsn: it is empty: write %s, %s or %s", exPostgres, exMySQL, exSQLite)
	}
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == 0:
			return nil, fmt.Errorf("dsn: there is a NUL byte at byte %d: remove it", i)
		case c < ' ' || c == 0x7f:
			return nil, fmt.Errorf("dsn: there is a control character (a line break?) at byte %d: remove it, or percent-encode it if it belongs there", i)
		}
	}
	scheme, rest, _ := strings.Cut(s, ":")
	switch strings.ToLower(scheme) {
	case "postgres", "postgresql":
		return parsePostgresURL(s)
	case "mysql":
		return parseMySQLURL(s, sqldb.MySQL)
	case "mariadb":
		return parseMySQLURL(s, sqldb.MariaDB)
	case "sqlite", "sqlite3", "file":
		return parseSQLite(strings.ToLower(scheme), rest)
	}
	if m := schemeForm.FindStringSubmatch(s); m != nil {
		return nil, fmt.Errorf("dsn: the scheme %s:// is not known: write %s, %s or %s", m[1], exPostgres, exMySQL, exSQLite)
	}
	if keywordForm.MatchString(s) {
		return parsePostgresKeywords(s)
	}
	if isDriverForm(s) {
		return parseDriverForm(s)
	}
	return nil, fmt.Errorf("dsn: it has none of the known forms: write %s, %s, %s or %s", exPostgres, exMySQL, exDriver, exSQLite)
}

// Kind is the database that the DSN speaks of. Only the server itself knows
// whether it is MySQL or MariaDB: the kind is MariaDB for mariadb:// and MySQL for
// the other forms, whichever of the two the server turns out to be; the DB that
// [DSN.Open] returns has the true one.
func (d *DSN) Kind() sqldb.Kind { return d.kind }

// Redacted is the DSN for messages and logs: user, host and database, with xxxxx
// in place of a password, and without parameters.
func (d *DSN) Redacted() string { return d.redacted }

// String is [DSN.Redacted].
func (d *DSN) String() string { return d.redacted }

// GoString is [DSN.Redacted].
func (d *DSN) GoString() string { return d.redacted }

// File is the path of the SQLite file, "" for other kinds and for a database in
// memory.
func (d *DSN) File() string {
	if d.lite == nil || d.lite.memory {
		return ""
	}
	return d.lite.path
}

// Absent reports whether the DSN is of an SQLite file that does not exist, in a
// folder that does.
func (d *DSN) Absent() bool {
	file := d.File()
	if file == "" {
		return false
	}
	_, err := os.Stat(file)
	_, dirErr := os.Stat(filepath.Dir(file))
	return errors.Is(err, os.ErrNotExist) && dirErr == nil
}

// SetAnswerTimeout makes [DSN.Open] wait for the server's first answer for that long
// at most, where its own bound is longer.
func (d *DSN) SetAnswerTimeout(timeout time.Duration) { d.answer = min(d.answer, timeout) }

// SetMaxConns bounds the pool that [DSN.Open] opens.
func (d *DSN) SetMaxConns(n int) { d.conns = n }

// Scrubber removes the DSN's passwords from texts.
func (d *DSN) Scrubber() *Scrubber { return d.scrub }

// Redact is [DSN.Redacted] of a string that may be malformed; of one that is,
// nothing but the scheme is left.
func Redact(s string) string {
	if d, err := Parse(s); err == nil {
		return d.redacted
	}
	scheme, _, ok := strings.Cut(s, ":")
	if ok {
		switch l := strings.ToLower(scheme); l {
		case "postgres", "postgresql", "mysql", "mariadb":
			return l + "://" + mask
		case "sqlite", "sqlite3", "file":
			return l + ":" + mask
		}
	}
	return mask
}

// hasNUL is for what percent-encoding has hidden from Parse.
func hasNUL(parts ...string) error {
	for _, p := range parts {
		if strings.IndexByte(p, 0) >= 0 {
			return errors.New("dsn: there is a NUL byte (%00) in it: remove it")
		}
	}
	return nil
}
