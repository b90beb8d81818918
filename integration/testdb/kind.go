package main

import (
	"fmt"
	"slices"
	"strings"
)

// A kind is one of the databases that testdb can bring up, with everything that differs between them and is no code.
type kind struct {
	name    string // as in SQLLOCK_TEST_REQUIRE
	title   string // as people write it
	image   string
	major   int // the oldest version that sqllock takes
	minor   int
	users   []string // whom a server that root starts may run as, in order of preference
	servers []string // names of the server's binary
	// packages are the Debian packages to try, each entry a set that belongs together. The -core packages are
	// preferred where there are any: they hold the binaries without the service around them.
	packages [][]string
}

func (k *kind) env(what string) string {
	return "SQLLOCK_TEST_" + strings.ToUpper(k.name) + "_" + what
}

// kinds lists the databases in the order in which they are reported.
func kinds() []*kind {
	return []*kind{
		{
			name: "postgres", title: "PostgreSQL", image: "postgres:17-alpine", major: 14,
			users: []string{"postgres", "nobody"}, servers: []string{"postgres"},
			packages: [][]string{{"postgresql"}},
		},
		{
			name: "mysql", title: "MySQL", image: "mysql:9", major: 8,
			users: []string{"mysql", "nobody"}, servers: []string{"mysqld"},
			packages: [][]string{{"mysql-server-core"}, {"mysql-server-core-8.4"}, {"mysql-server-core-8.0"}},
		},
		{
			name: "mariadb", title: "MariaDB", image: "mariadb:11", major: 10, minor: 6,
			users: []string{"mysql", "nobody"}, servers: []string{"mariadbd", "mysqld"},
			packages: [][]string{{"mariadb-server-core", "mariadb-client-core"}, {"mariadb-server"}},
		},
	}
}

// parseKinds reads a list such as "postgres,mysql". Where it comes from stands in the error.
func parseKinds(list, from string) ([]*kind, error) {
	all := kinds()
	var wanted []*kind
	for word := range strings.SplitSeq(list, ",") {
		word = strings.ToLower(strings.TrimSpace(word))
		if word == "" {
			continue
		}
		i := slices.IndexFunc(all, func(k *kind) bool { return k.name == word })
		if i < 0 {
			return nil, fmt.Errorf("%s: there is no database %q; write postgres, mysql or mariadb, separated by commas", from, word)
		}
		if !slices.ContainsFunc(wanted, func(k *kind) bool { return k.name == word }) {
			wanted = append(wanted, all[i])
		}
	}
	return wanted, nil
}
