package main

import (
	"io"
	"strings"
	"testing"
)

func TestParseKinds(t *testing.T) {
	for list, want := range map[string]string{
		"":                              "",
		" , ":                           "",
		"postgres":                      "postgres",
		"MariaDB, postgres,,postgres":   "mariadb postgres",
		"postgres,mysql,mariadb":        "postgres mysql mariadb",
		"postgres mysql":                "error",
		"sqlite":                        "error",
		"postgres,mysql,mariadb,oracle": "error",
	} {
		var got []string
		found, err := parseKinds(list, "SQLLOCK_TEST_REQUIRE")
		for _, k := range found {
			got = append(got, k.name)
		}
		if err != nil {
			got = []string{"error"}
			if !strings.HasPrefix(err.Error(), "SQLLOCK_TEST_REQUIRE: ") {
				t.Errorf("%q: the error does not say where the word stands: %v", list, err)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%q gave %q, want %q", list, got, want)
		}
	}
}

func TestWrongSettingsAreRefused(t *testing.T) {
	for name, test := range map[string]struct {
		args, env []string
	}{
		"no command":         {args: nil},
		"no command after":   {args: []string{"--"}},
		"unknown flag":       {args: []string{"-nope", "--", "true"}},
		"unknown database":   {args: []string{"-databases", "oracle", "--", "true"}},
		"no database":        {args: []string{"-databases", ",", "--", "true"}},
		"unknown required":   {args: []string{"--", "true"}, env: []string{"SQLLOCK_TEST_REQUIRE=oracle"}},
		"a switch says no":   {args: []string{"--", "true"}, env: []string{"SQLLOCK_TEST_APT=no"}},
		"a switch says true": {args: []string{"--", "true"}, env: []string{"SQLLOCK_TEST_DOCKER=true"}},
	} {
		if _, err := parseSettings(test.args, test.env, io.Discard); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	s, err := parseSettings([]string{"--", "go", "test", "-run", "X"}, []string{"SQLLOCK_TEST_APT=0", "SQLLOCK_TEST_REQUIRE=mysql"}, io.Discard)
	if err != nil || s.apt || !s.docker || !s.required["mysql"] || s.required["postgres"] || strings.Join(s.command, " ") != "go test -run X" {
		t.Errorf("%+v, %v", s, err)
	}
}

func TestDemandNamesWhatIsMissingAndWhy(t *testing.T) {
	s, err := parseSettings([]string{"-databases", "postgres,mysql", "--", "true"}, []string{"SQLLOCK_TEST_REQUIRE=postgres,mysql,mariadb"}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	teller, out := quiet()
	l := newLadder(s, teller)
	l.add(&server{kind: kindNamed(t, "postgres"), version: "17.2", how: "Docker, postgres:17-alpine"})
	l.miss(kindNamed(t, "mysql"), "Docker cannot be used")
	l.miss(kindNamed(t, "mysql"), "there is no MySQL binary on this machine")
	err = l.demand()
	if err == nil {
		t.Fatal("nothing is missing")
	}
	for _, want := range []string{"MySQL (Docker cannot be used; there is no MySQL binary on this machine)", "MariaDB (it is not among -databases)"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not say %q", err, want)
		}
	}
	l.report()
	want := "testdb: PostgreSQL 17.2: Docker, postgres:17-alpine\n" +
		"testdb: MySQL: NOT TESTED: Docker cannot be used; there is no MySQL binary on this machine\n"
	if out.String() != want {
		t.Errorf("reported %q, want %q", out, want)
	}
}

func TestEnvironmentHoldsWhatIsUpAndNothingElse(t *testing.T) {
	s, err := parseSettings([]string{"--", "true"}, []string{
		"HOME=/home/me",
		"SQLLOCK_TEST_POSTGRES_DSN=postgres://given", "SQLLOCK_TEST_POSTGRES_CONTROL=http://outer",
		"SQLLOCK_TEST_MYSQL_DSN=given, and stale", "SQLLOCK_TEST_MYSQL_CONTROL=stale",
		"SQLLOCK_TEST_STARTED=postgres",
	}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	teller, _ := quiet()
	l := newLadder(s, teller)
	l.add(&server{kind: kindNamed(t, "postgres"), dsn: "postgres://given"})
	l.add(&server{kind: kindNamed(t, "mariadb"), dsn: "own", control: &process{}})
	got := strings.Join(l.environment(map[string]string{"mariadb": "http://own"}), "\n")
	want := strings.Join([]string{
		"HOME=/home/me",
		"SQLLOCK_TEST_POSTGRES_DSN=postgres://given", "SQLLOCK_TEST_POSTGRES_CONTROL=http://outer",
		"SQLLOCK_TEST_MARIADB_DSN=own", "SQLLOCK_TEST_MARIADB_CONTROL=http://own",
		"SQLLOCK_TEST_STARTED=postgres,mariadb",
	}, "\n")
	if got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
