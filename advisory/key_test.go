package advisory_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode"

	"github.com/sqlnative/locks/advisory"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
)

// The servers compute the same keys, by their own SHA-256.
func TestKeyOfByServer(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		for _, name := range []string{"order:42", "ORDER:42", "jób 🔒", "a'b\\c", strings.Repeat("x", 255)} {
			key, err := advisory.KeyOf(db.DB, name)
			if err != nil {
				t.Fatal(err)
			}
			query := `SELECT ('x' || left(encode(sha256('sqllock advisory 1'::bytea || '\x00'::bytea || convert_to($1, 'UTF8') || '\x00'::bytea
				|| convert_to($2, 'UTF8') || '\x00'::bytea || convert_to($3, 'UTF8')), 'hex'), 16))::bit(64)::bigint::text`
			if db.Kind().InnoDB() {
				query = "SELECT CONCAT('sqllock_', LEFT(SHA2(CONCAT('sqllock advisory 1', CHAR(0), ?, CHAR(0), ?, CHAR(0), ?), 256), 48))"
			}
			var want string
			if err := db.QueryRow(t.Context(), query, db.Schema(), db.TablePrefix(), name).Scan(&want); err != nil {
				t.Fatal(err)
			}
			if key.String() != want {
				t.Errorf("KeyOf(%.20q) is %s, the server says %s", name, key, want)
			}
		}
	})
}

// Two applications with a database, or a schema, or a prefix of their own do not
// collide; two pools on one of them mean one lock.
func TestKeyOfApart(t *testing.T) {
	dbtest.Servers(t, func(t *testing.T, db *dbtest.DB) {
		key := func(db *sqldb.DB) advisory.Key {
			k, err := advisory.KeyOf(db, "job")
			if err != nil {
				t.Fatal(err)
			}
			return k
		}
		if key(db.DB) != key(db.Another(t).DB) {
			t.Error("the same application has two locks")
		}
		if key(db.DB) == key(dbtest.New(t, db.Kind()).DB) {
			t.Error("two databases, or schemas, have one lock")
		}
		if key(db.DB) == key(db.Another(t, sqldb.TablePrefix("other_")).DB) {
			t.Error("two prefixes have one lock")
		}
	})
}

func TestKeyOfBadInput(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	if _, err := advisory.KeyOf(db.DB, "job"); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("SQLite: %v", err)
	}
	if _, err := advisory.KeyOf(nil, "job"); !errors.Is(err, lock.ErrInvalid) {
		t.Errorf("nil: %v", err)
	}
	for _, name := range []string{"", "a\x00b", "\xff", strings.Repeat("x", 256)} {
		if _, err := advisory.KeyOf(db.DB, name); !errors.Is(err, lock.ErrInvalid) {
			t.Errorf("%.10q: %v", name, err)
		}
	}
}

// How the servers compare names, on which Raw leans. A pair that is one lock is
// equal in lower case on MySQL, and never one on MariaDB.
func TestNamesCompared(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL, sqldb.MariaDB}, func(t *testing.T, db *dbtest.DB) {
		one, two := connOf(t, db.SQL), connOf(t, db.SQL)
		for _, c := range []struct {
			a, b string
			same bool // on MySQL
		}{
			{"job", "JOB", true},
			{"é", "É", true},
			{"Σ", "σ", true},
			{"é", "e", false},
			{"é", "e\u0301", false},
			{"ß", "ss", false},
			{"job", "job ", false},
			{"σ", "ς", false},
		} {
			a, b := db.Schema()+c.a, db.Schema()+c.b
			if got := getLock(t, one, a); got != 1 {
				t.Fatalf("%q: %d", a, got)
			}
			same := getLock(t, two, b) == 0
			if same != (c.same && db.Kind() == sqldb.MySQL) {
				t.Errorf("%q and %q are one lock: %v", c.a, c.b, same)
			}
			for _, conn := range []*sql.Conn{one, two} {
				if _, err := conn.ExecContext(t.Context(), "DO RELEASE_ALL_LOCKS()"); err != nil {
					t.Fatal(err)
				}
			}
		}
		emoji := one.QueryRowContext(t.Context(), "SELECT GET_LOCK('🔒', 0)").Scan(new(int))
		if refused := emoji != nil; refused != (db.Kind() == sqldb.MySQL) {
			t.Errorf("an emoji: %v", emoji)
		}
	})
}

// What Go takes for lower case already, MySQL does not change: so two raw names
// that differ on our side differ there.
func TestLowerCase(t *testing.T) {
	dbtest.On(t, []sqldb.Kind{sqldb.MySQL}, func(t *testing.T, db *dbtest.DB) {
		var hex []string
		check := func() {
			var wrong int
			text := strings.Join(hex, "")
			query := fmt.Sprintf("SELECT CAST(LOWER(CONVERT(x'%s' USING utf8mb3) COLLATE utf8mb3_general_ci) AS BINARY) <> CAST(x'%s' AS BINARY)", text, text)
			if err := db.SQL.QueryRowContext(t.Context(), query).Scan(&wrong); err != nil || wrong != 0 {
				t.Errorf("MySQL changes one of %s: %v", text, err)
			}
			hex = nil
		}
		for r := rune(0x80); r <= 0xffff; r++ {
			if unicode.ToLower(r) != r || 0xd800 <= r && r <= 0xdfff {
				continue
			}
			if hex = append(hex, fmt.Sprintf("%x", string(r))); len(hex) == 512 {
				check()
			}
		}
		check()
	})
}

func connOf(t testing.TB, pool *sql.DB) *sql.Conn {
	t.Helper()
	c, err := pool.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// getLock is a GET_LOCK by hand, that does not wait.
func getLock(t testing.TB, c *sql.Conn, name string) int64 {
	t.Helper()
	var got sql.NullInt64
	if err := c.QueryRowContext(t.Context(), "SELECT GET_LOCK(?, 0)", name).Scan(&got); err != nil || !got.Valid {
		t.Fatalf("GET_LOCK(%q): %v, %v", name, got, err)
	}
	return got.Int64
}
