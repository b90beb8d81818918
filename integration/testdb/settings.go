package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

// settings is everything the caller has a say in: flags, environment and the command.
type settings struct {
	kinds    []*kind
	required map[string]bool
	docker   bool
	apt      bool
	env      []string
	command  []string
}

// parseSettings refuses what it does not understand before anything is started.
func parseSettings(args, env []string, stderr io.Writer) (*settings, error) {
	flags := flag.NewFlagSet("testdb", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.Usage = func() {
		fmt.Fprint(stderr, "usage: testdb [-databases postgres,mysql,mariadb] -- COMMAND [ARGUMENT...]\n\n"+
			"Runs COMMAND with real databases up: from the DSNs in SQLLOCK_TEST_POSTGRES_DSN, _MYSQL_DSN, _MARIADB_DSN,\n"+
			"else from Docker (SQLLOCK_TEST_DOCKER=0 skips it), else from server binaries on this machine, else, as root on\n"+
			"Debian or Ubuntu, from apt-get (SQLLOCK_TEST_APT=0 refuses). SQLLOCK_TEST_REQUIRE=postgres,mysql,mariadb makes\n"+
			"a missing one an error. `go doc ./testdb` in integration/ tells the rest.\n\n")
		flags.PrintDefaults()
	}
	databases := flags.String("databases", "postgres,mysql,mariadb", "the databases to bring up")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}

	s := &settings{env: env, command: flags.Args(), required: map[string]bool{}}
	if len(s.command) == 0 {
		return nil, fmt.Errorf("no command: testdb [flags] -- COMMAND [ARGUMENT...]")
	}
	var err error
	if s.kinds, err = parseKinds(*databases, "-databases"); err != nil {
		return nil, err
	}
	if len(s.kinds) == 0 {
		return nil, fmt.Errorf("-databases names none")
	}
	required, err := parseKinds(lookup(env, "SQLLOCK_TEST_REQUIRE"), "SQLLOCK_TEST_REQUIRE")
	if err != nil {
		return nil, err
	}
	for _, k := range required {
		s.required[k.name] = true
	}
	if s.docker, err = switchedOn(env, "SQLLOCK_TEST_DOCKER"); err != nil {
		return nil, err
	}
	s.apt, err = switchedOn(env, "SQLLOCK_TEST_APT")
	return s, err
}

// switchedOn reads a switch that is on unless it says 0. Other words are refused: "no" meant as 0 and read as 1 would
// install packages.
func switchedOn(env []string, name string) (bool, error) {
	switch value := lookup(env, name); value {
	case "", "1":
		return true, nil
	case "0":
		return false, nil
	default:
		return false, fmt.Errorf("%s=%s: write 0 to switch it off, or leave it unset", name, value)
	}
}

// lookup finds a variable in an environment; the last one counts, as it does for os/exec.
func lookup(env []string, name string) string {
	value := ""
	for _, entry := range env {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}

// without drops variables from an environment.
func without(env []string, drop func(name string) bool) []string {
	var kept []string
	for _, entry := range env {
		if name, _, _ := strings.Cut(entry, "="); !drop(name) {
			kept = append(kept, entry)
		}
	}
	return kept
}

// isRoot is whether servers need another user to run as, and whether apt-get can be used.
func isRoot() bool { return os.Geteuid() == 0 }
