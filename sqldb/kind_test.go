package sqldb_test

import (
	"strings"
	"testing"

	"github.com/sqlnative/locks/sqldb"
)

func TestParseKind(t *testing.T) {
	for _, k := range sqldb.Kinds() {
		got, err := sqldb.ParseKind(strings.ToUpper(k.String()))
		if err != nil || got != k {
			t.Errorf("%v: %v, %v", k, got, err)
		}
		if k.InnoDB() != (k == sqldb.MySQL || k == sqldb.MariaDB) {
			t.Errorf("%v: InnoDB is %v", k, k.InnoDB())
		}
	}
	for alias, want := range map[string]sqldb.Kind{"postgresql": sqldb.Postgres, "sqlite3": sqldb.SQLite} {
		if got, err := sqldb.ParseKind(alias); err != nil || got != want {
			t.Errorf("%s: %v, %v", alias, got, err)
		}
	}
	for _, s := range []string{"", "oracle", " mysql", "mysql2"} {
		if _, err := sqldb.ParseKind(s); err == nil || !strings.Contains(err.Error(), "postgres, mysql, mariadb, sqlite") {
			t.Errorf("%q: %v", s, err)
		}
	}
	if got := sqldb.Kind(9).String(); got != "sqldb.Kind(9)" {
		t.Error(got)
	}
}

// goodIdents and badIdents are names that may, and that must not, stand in a
// statement.
var (
	goodIdents = []string{"a", "_", "_x", "t_bonus", "Sale2024", "a$b", strings.Repeat("x", 63)}
	badIdents  = []string{
		"", "1a", "$a", "a b", "a-b", "a.b", "a;b", `a"b`, "a`b", "a'b", "a\x00", "ä", "a\n", "日本", "a/*b", `a\b`, strings.Repeat("x", 64), "a\u200b",
	}
)

func TestCheckIdent(t *testing.T) {
	for _, s := range goodIdents {
		if err := sqldb.CheckIdent(s); err != nil {
			t.Errorf("%q: %v", s, err)
		}
	}
	for _, s := range badIdents {
		err := sqldb.CheckIdent(s)
		if err == nil {
			t.Errorf("%q was accepted", s)
		} else if len(err.Error()) > 250 || strings.ContainsAny(err.Error(), "\x00\n") {
			t.Errorf("%q: the error is no line of text: %q", s, err)
		}
	}
}

func TestQuote(t *testing.T) {
	for _, k := range sqldb.Kinds() {
		q := `"`
		if k.InnoDB() {
			q = "`"
		}
		if got, want := k.Quote("a"+q+"b"), q+"a"+q+q+"b"+q; got != want {
			t.Errorf("%v: %s", k, got)
		}
		for name, want := range map[string]string{"t": q + "t" + q, "shop.t": q + "shop" + q + "." + q + "t" + q} {
			if got, err := k.QuoteTable(name); err != nil || got != want {
				t.Errorf("%v: %s, %v", k, got, err)
			}
		}
		for _, name := range append([]string{"a.b.c", ".a", "a.", "."}, badIdents...) {
			if name == "a.b" {
				continue
			}
			if got, err := k.QuoteTable(name); err == nil || got != "" {
				t.Errorf("%v: %q became %s", k, name, got)
			}
		}
	}
}
