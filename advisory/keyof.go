package advisory

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"

	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// KeyOf is the key of a name on db: what Acquire and [AcquireTx] of that name lock,
// and what a program in another language, or a DBA, has to lock to take part. It is
// made by a hash that will not change:
//
//	hash = SHA-256("sqllock advisory 1", NUL, schema, NUL, prefix, NUL, name)
//
//	PostgreSQL:      the first 8 bytes of it as a big-endian signed bigint
//	MySQL, MariaDB:  "sqllock_" and the first 24 bytes of it in lower-case hex
//
// Everything is UTF-8; NUL, one zero byte, stands in none of the parts. prefix is
// [sqldb.DB.TablePrefix], "sqllock_" by default, and schema is [sqldb.DB.Schema]: the
// schema on PostgreSQL, whose advisory locks belong to one database anyway; the
// database on MySQL and MariaDB, whose locks are server-wide, and there both have
// their ASCII letters in lower case, as a server may compare them so. Two applications
// in two databases, two schemas or with two prefixes therefore have locks of their
// own. Names are compared byte by byte, whatever their length and case.
//
//	schema  prefix    name        PostgreSQL            MySQL, MariaDB
//	public  sqllock_  order:42     1838396926035086750  sqllock_19834c43947dcd9ee79d8acc3add10a59dd4e3c8c3541d3d
//	public  sqllock_  Order:42    -3798039982442588711  sqllock_cb4aa6c243c755d984afc65194f5dbd537b8d7e6680238ce
//	shop    sqllock_  order:42     6707607332512365459  sqllock_5d1635549b347b93f83744dc00de21e19f76f7e455daf91b
//	shop    (empty)   jób 🔒      -6710102644004013463  sqllock_a2e0ed3269bb3a69f2b1858c3332ab3c931dd3dc373f48a0
//
// In a shell:
//
//	printf 'sqllock advisory 1\0public\0sqllock_\0order:42' | sha256sum
//
// The String of a Key is what goes into the functions of the server:
// pg_advisory_lock(1838396926035086750).
func KeyOf(db *sqldb.DB, name string) (Key, error) {
	if db == nil {
		return Key{}, fmt.Errorf("%w: advisory.KeyOf: the *sqldb.DB is nil", lock.ErrInvalid)
	}
	if err := lock.CheckName(name); err != nil {
		return Key{}, err
	}
	if db.Kind() == sqldb.SQLite {
		return Key{}, errSQLite
	}
	return namespaceOf(db).key(name), nil
}

// namespace is where names are: what stands in front of a name in the hash, and on
// what kind of server.
type namespace struct {
	kind sqldb.Kind
	head string
}

func namespaceOf(db *sqldb.DB) namespace {
	return newNamespace(db.Kind(), db.Schema(), db.TablePrefix())
}

func newNamespace(kind sqldb.Kind, schema, prefix string) namespace {
	if kind.InnoDB() {
		schema, prefix = asciiLower(schema), asciiLower(prefix)
	}
	return namespace{kind, strings.Join([]string{"sqllock advisory 1", schema, prefix, ""}, "\x00")}
}

// key is the key of a name: one that on would leave as it is.
func (n namespace) key(name string) Key {
	h := sha256.Sum256([]byte(n.head + name))
	if n.kind.InnoDB() {
		return Raw("sqllock_" + hex.EncodeToString(h[:24]))
	}
	return Int64(int64(binary.BigEndian.Uint64(h[:8])))
}
