package advisory

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// Key is a lock as the server knows it: an int64 or two int32 on PostgreSQL, a
// name for GET_LOCK on MySQL and MariaDB. [Int64], [Pair] and [Raw] make one, to
// share a lock with programs that do not use sqllock; the key of a name is [KeyOf].
// Keys can be compared, and be keys of a map. The zero Key is none.
//
// A Key that the server has no such lock for is refused when it is used, with an
// error that wraps [errors.ErrUnsupported]; one that can be none with one that wraps
// [lock.ErrInvalid].
type Key struct {
	form keyForm
	n    int64  // Int64; Pair: the first in the upper half, the second in the lower
	name string // Raw
}

type keyForm uint8

const (
	noKey keyForm = iota
	int64Key
	pairKey
	rawKey
)

// Int64 is the key n of pg_advisory_lock(bigint). PostgreSQL only.
func Int64(n int64) Key { return Key{form: int64Key, n: n} }

// Pair is the key (a, b) of pg_advisory_lock(int, int), which no Int64 is equal to.
// PostgreSQL only.
func Pair(a, b int32) Key { return Key{form: pairKey, n: int64(a)<<32 | int64(uint32(b))} }

// Raw is the name of a GET_LOCK, as given: server-wide, with nothing in front. MySQL
// and MariaDB only.
//
// MySQL takes 1 to 64 characters and compares them without case: it makes lower case
// of them, and so does Raw's use there with ASCII letters. Other letters have to be
// lower case already, since programs do not agree about what that is; what is outside
// of the Basic Multilingual Plane (emoji) MySQL refuses. MariaDB takes 1 to 192 bytes
// and compares them as they are. What is not ASCII depends on the character set of
// the connection: every program must have the same.
func Raw(name string) Key { return Key{form: rawKey, name: name} }

// String is the key as one would write it on the server: 42, (1, 42), their_name.
func (k Key) String() string {
	switch k.form {
	case int64Key:
		return strconv.FormatInt(k.n, 10)
	case pairKey:
		a, b := k.pair()
		return fmt.Sprintf("(%d, %d)", a, b)
	case rawKey:
		return k.name
	}
	return "no key"
}

func (k Key) pair() (a, b int32) { return int32(k.n >> 32), int32(uint32(k.n)) }

// Bounds of a GET_LOCK name.
const (
	maxMySQLName   = 64  // characters: error 4163, before 9.0 3057
	maxMariaDBName = 192 // bytes: error 1059
)

// on is the key as a server of that kind tells keys apart: two keys are one lock there
// if and only if they are equal after it. Only such a key is held, waited for or
// compared. It says why a key is none there.
func (k Key) on(kind sqldb.Kind) (Key, error) {
	switch {
	case k.form == noKey:
		return k, fmt.Errorf("%w: advisory: the Key is the zero one: make it with Int64, Pair, Raw or KeyOf", lock.ErrInvalid)
	case kind == sqldb.SQLite:
		return k, errSQLite
	case kind == sqldb.Postgres && k.form == rawKey:
		return k, fmt.Errorf("advisory: Raw(%q): PostgreSQL's keys are numbers: use Int64, Pair or a name: %w", k.name, errors.ErrUnsupported)
	case kind.InnoDB() && k.form != rawKey:
		return k, fmt.Errorf("advisory: key %s: the locks of %s have names, no numbers: use Raw or a name: %w", k, kind, errors.ErrUnsupported)
	case kind == sqldb.Postgres:
		return k, nil
	}
	if err := checkRaw(kind, k.name); err != nil {
		return k, fmt.Errorf("%w: advisory: Raw(%q): %w", lock.ErrInvalid, k.name, err)
	}
	if kind == sqldb.MySQL {
		k.name = asciiLower(k.name)
	}
	return k, nil
}

// errSQLite is the answer to everything here on SQLite.
var errSQLite = fmt.Errorf("advisory: SQLite has no advisory locks: use the lock table, sqllock.New: %w", errors.ErrUnsupported)

func checkRaw(kind sqldb.Kind, name string) error {
	switch {
	case name == "":
		return errors.New("the name is empty")
	case !utf8.ValidString(name):
		return errors.New("the name is not valid UTF-8")
	case strings.IndexByte(name, 0) >= 0:
		return errors.New("the name has a NUL byte, at which the server would cut it")
	case kind == sqldb.MariaDB && len(name) > maxMariaDBName:
		return fmt.Errorf("the name has %d bytes, more than MariaDB's %d", len(name), maxMariaDBName)
	case kind == sqldb.MySQL && utf8.RuneCountInString(name) > maxMySQLName:
		return fmt.Errorf("the name has %d characters, more than MySQL's %d", utf8.RuneCountInString(name), maxMySQLName)
	}
	if kind != sqldb.MySQL {
		return nil
	}
	for _, r := range name {
		switch {
		case r > 0xffff:
			return fmt.Errorf("MySQL keeps lock names in utf8mb3, which has no %q", r)
		case r > unicode.MaxASCII && unicode.ToLower(r) != r:
			return fmt.Errorf("MySQL compares lock names in lower case: write %q so", r)
		}
	}
	return nil
}

func asciiLower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// pg is the call of an advisory lock function of PostgreSQL with the key:
// pg_advisory_lock($1::bigint), and its arguments.
func (k Key) pg(function string) (call string, args []any) {
	if k.form == pairKey {
		a, b := k.pair()
		return function + "($1::int4, $2::int4)", []any{int64(a), int64(b)}
	}
	return function + "($1::bigint)", []any{k.n}
}
