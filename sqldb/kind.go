package sqldb

import (
	"fmt"
	"strings"
)

// Kind says which database it is. MySQL and MariaDB are two kinds: they speak
// one protocol, and differ in the SQL that locks are made of.
type Kind uint8

// The kinds of database that sqllock knows.
const (
	Postgres Kind = iota + 1
	MySQL
	MariaDB
	SQLite
)

// Kinds lists every kind, in the order in which documentation names them.
func Kinds() []Kind { return []Kind{Postgres, MySQL, MariaDB, SQLite} }

// String returns the name that URLs, flags and file names use.
func (k Kind) String() string {
	switch k {
	case Postgres:
		return "postgres"
	case MySQL:
		return "mysql"
	case MariaDB:
		return "mariadb"
	case SQLite:
		return "sqlite"
	}
	return fmt.Sprintf("sqldb.Kind(%d)", uint8(k))
}

// ParseKind is the reverse of [Kind.String]; it also knows "postgresql" and
// "sqlite3".
func ParseKind(s string) (Kind, error) {
	switch strings.ToLower(s) {
	case "postgres", "postgresql":
		return Postgres, nil
	case "mysql":
		return MySQL, nil
	case "mariadb":
		return MariaDB, nil
	case "sqlite", "sqlite3":
		return SQLite, nil
	}
	return 0, fmt.Errorf("sqldb: unknown database %q: it is one of postgres, mysql, mariadb, sqlite", s)
}

// InnoDB reports whether the kind is MySQL or MariaDB, for what the two share.
func (k Kind) InnoDB() bool { return k == MySQL || k == MariaDB }

// maxIdent is how long an identifier may be: PostgreSQL cuts silently at 63
// bytes, MySQL and MariaDB refuse what is longer than 64 characters. One bound
// for all of them keeps a table name portable.
const maxIdent = 63

// CheckIdent reports why name can't be the name of a table, a column or a
// schema: it must be 1 to 63 bytes of ASCII letters, digits, '_' and '$', and not
// begin with a digit or '$'. It is narrower than what servers allow, so that a
// name means one thing on all of them, in a comment and in a log.
func CheckIdent(name string) error {
	if name == "" {
		return fmt.Errorf("sqldb: an identifier is empty")
	}
	if len(name) > maxIdent {
		return fmt.Errorf("sqldb: identifier %.20q... has %d bytes, more than %d", name, len(name), maxIdent)
	}
	for i := 0; i < len(name); i++ {
		c := name[i]
		switch {
		case c == '_', 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z':
		case i > 0 && ('0' <= c && c <= '9' || c == '$'):
		default:
			return fmt.Errorf("sqldb: identifier %q has the character %q at byte %d: only ASCII letters, digits, '_' and '$' are allowed, and a letter or '_' in front", name, name[i], i)
		}
	}
	return nil
}

// Quote quotes one identifier. It does not validate: see [CheckIdent].
func (k Kind) Quote(ident string) string {
	if k.InnoDB() {
		return "`" + strings.ReplaceAll(ident, "`", "``") + "`"
	}
	return `"` + strings.ReplaceAll(ident, `"`, `""`) + `"`
}

// QuoteColumn quotes a column in a statement that reads or changes rows. On SQLite
// "state" is the text 'state' where there is no such column, and a condition might
// hold; in backquotes it is a column, or an error.
func (k Kind) QuoteColumn(ident string) string {
	if k == SQLite {
		return MySQL.Quote(ident)
	}
	return k.Quote(ident)
}

// QuoteTable validates and quotes the name of a table, which may have a schema
// (MySQL and MariaDB: a database) in front: "t_bonus", "shop.t_bonus".
func (k Kind) QuoteTable(name string) (string, error) {
	parts := strings.Split(name, ".")
	if len(parts) > 2 {
		return "", fmt.Errorf("sqldb: table name %q has more than one dot: it is TABLE or SCHEMA.TABLE", name)
	}
	for i, p := range parts {
		if err := CheckIdent(p); err != nil {
			return "", fmt.Errorf("sqldb: table name %q: %w", name, err)
		}
		parts[i] = k.Quote(p)
	}
	return strings.Join(parts, "."), nil
}
