package main

import (
	"errors"
	"strings"
	"testing"
)

func TestNoPasswordIsShown(t *testing.T) {
	for _, dsn := range []string{
		"postgres://me:s3cret@host:5432/db",
		"postgres://me:s3cret@host/db?sslmode=disable",
		"postgres://me@host/db?password=s3cret&sslmode=disable",
		"host=h user=me password=s3cret dbname=d",
		"me:s3cret@tcp(host:3306)/db?parseTime=true",
		"me:s3cret:with@colon@tcp(host:3306)/db",
		"me:s3cret@unix(/tmp/sock)/db",
		"mysql://me:s3cret@host/db",
		"me:s3cret@not a dsn",
	} {
		shown := redact(dsn)
		if strings.Contains(shown, "s3cret") || strings.Contains(shown, "colon") {
			t.Errorf("%s shows as %s", dsn, shown)
		}
		if !strings.Contains(shown, "me") {
			t.Errorf("%s shows as %s, without the user's name", dsn, shown)
		}
	}
	if shown := redact("postgres://me:s3cret@host:5432/db"); shown != "postgres://me:***@host:5432/db" {
		t.Error(shown)
	}
	if shown := redact("root@tcp(127.0.0.1:3306)/test"); shown != "root@tcp(127.0.0.1:3306)/test" {
		t.Error(shown)
	}
}

func TestTellerHidesSecretsInAnyText(t *testing.T) {
	teller, out := quiet()
	teller.keep(secretsOf("postgres://me:p%40ss%2Bw@host/db")...)
	teller.keep(secretsOf("me:wörd:x@tcp(h)/db")...)
	teller.say("one %v", errors.Join(errors.New("bad p%40ss%2Bw"), errors.New("or p@ss+w\n\tor wörd:x")))
	if want := "testdb: one bad ***; or ***; or ***\n"; out.String() != want {
		t.Errorf("said %q, want %q", out, want)
	}
}

func TestNormalize(t *testing.T) {
	for _, test := range []struct{ kind, dsn, want string }{
		{"postgres", "postgres://u:p@h/d", "postgres://u:p@h/d"},
		{"postgres", "postgresql://u:p@h/d", "postgresql://u:p@h/d"},
		{"postgres", "host=h user=u", ""},
		{"postgres", "postgres://u:p%zz@h/d", ""},
		{"mysql", "u:p@tcp(h:3307)/d?parseTime=true", "u:p@tcp(h:3307)/d?parseTime=true"},
		{"mysql", "mysql://u:p%40@h/d?parseTime=true", "u:p@@tcp(h:3306)/d?parseTime=true"},
		{"mariadb", "mariadb://u:p@h:3307/d", "u:p@tcp(h:3307)/d"},
		{"mysql", "u:p@h/d", ""},
		{"mysql", "nonsense", ""},
	} {
		got, err := kindNamed(t, test.kind).normalize(test.dsn)
		if got != test.want || (err == nil) != (test.want != "") {
			t.Errorf("%s %s gave %q, %v; want %q", test.kind, test.dsn, got, err, test.want)
		}
		if err != nil && strings.Contains(err.Error(), test.dsn) {
			t.Errorf("the error repeats the DSN: %v", err)
		}
	}
}

func TestJudge(t *testing.T) {
	for _, test := range []struct{ kind, text, want string }{
		{"postgres", "PostgreSQL 17.2 on aarch64-unknown-linux-musl, compiled by gcc 14", "17.2"},
		{"postgres", "postgres (PostgreSQL) 18beta1", "18"},
		{"postgres", "postgres (PostgreSQL) 13.14 (Debian 13.14-0+deb11u1)", "too old"},
		{"postgres", "8.0.36", "not a PostgreSQL"},
		{"mysql", "8.0.36-0ubuntu0.24.04.1", "8.0.36"},
		{"mysql", "5.7.44", "too old"},
		{"mysql", "11.8.3-MariaDB-ubu2404", "not a MySQL"},
		{"mariadb", "10.11.6-MariaDB-0+deb12u1", "10.11.6"},
		{"mariadb", "10.5.23-MariaDB", "too old"},
		{"mariadb", "9.4.0", "not a MariaDB"},
		{"mariadb", "", "no version"},
	} {
		got, err := kindNamed(t, test.kind).judge(test.text)
		if got != test.want && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%s %q gave %q, %v; want %q", test.kind, test.text, got, err, test.want)
		}
	}
}
