package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestFind(t *testing.T) {
	const (
		pg      = "echo 'postgres (PostgreSQL) "
		mysqld  = "echo '/usr/sbin/mysqld  Ver "
		mariadb = "echo 'mariadbd  Ver "
	)
	tests := map[string]struct {
		files map[string]string // path to script
		kind  string
		want  string // path, or a part of the error
	}{
		"nothing": {nil, "postgres", "there is no PostgreSQL binary on this machine"},
		"Debian's newest": {map[string]string{
			"usr/lib/postgresql/9.6/bin/postgres": pg + "9.6.24'",
			"usr/lib/postgresql/15/bin/postgres":  pg + "15.6'",
			"usr/lib/postgresql/17/bin/postgres":  pg + "17.2'",
		}, "postgres", "usr/lib/postgresql/17/bin/postgres"},
		"PATH before Debian's": {map[string]string{
			"path/postgres":                      pg + "14.1'",
			"usr/lib/postgresql/17/bin/postgres": pg + "17.2'",
		}, "postgres", "path/postgres"},
		"too old alone":  {map[string]string{"usr/lib/postgresql/13/bin/postgres": pg + "13.1'"}, "postgres", "version 13.1 is too old"},
		"too old passed": {map[string]string{"path/postgres": pg + "13.1'", "usr/lib/postgresql/14/bin/postgres": pg + "14.9'"}, "postgres", "usr/lib/postgresql/14/bin/postgres"},
		"broken":         {map[string]string{"path/postgres": "exit 3"}, "postgres", "exit status 3"},
		"Homebrew on Apple's processors": {map[string]string{
			"opt/homebrew/opt/postgresql@14/bin/postgres": pg + "14.1'",
			"opt/homebrew/opt/postgresql@17/bin/postgres": pg + "17.1'",
		}, "postgres", "opt/homebrew/opt/postgresql@17/bin/postgres"},
		"Homebrew on Intel's":        {map[string]string{"usr/local/opt/mysql/bin/mysqld": mysqld + "9.1.0 for macos'"}, "mysql", "usr/local/opt/mysql/bin/mysqld"},
		"MySQL":                      {map[string]string{"usr/sbin/mysqld": mysqld + "8.0.36 for Linux'"}, "mysql", "usr/sbin/mysqld"},
		"MySQL is no MariaDB":        {map[string]string{"usr/sbin/mysqld": mysqld + "8.0.36 for Linux'"}, "mariadb", "there is no MariaDB binary"},
		"MariaDB":                    {map[string]string{"usr/sbin/mariadbd": mariadb + "10.11.6-MariaDB-0+deb12u1'"}, "mariadb", "usr/sbin/mariadbd"},
		"MariaDB that says mysqld":   {map[string]string{"usr/sbin/mysqld": mysqld + "10.6.1-MariaDB'"}, "mariadb", "usr/sbin/mysqld"},
		"MariaDB's mysqld, no MySQL": {map[string]string{"usr/sbin/mysqld": mysqld + "10.6.1-MariaDB'"}, "mysql", "there is no MySQL binary"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			for path, body := range test.files {
				script(t, filepath.Join(root, path), body)
			}
			k := kindNamed(t, test.kind)
			found, err := k.find(context.Background(), searchDirs(k, filepath.Join(root, "path"), root))
			if err != nil {
				if !strings.Contains(err.Error(), test.want) {
					t.Errorf("%v; want %q", err, test.want)
				}
				return
			}
			if found.path != filepath.Join(root, test.want) {
				t.Errorf("found %s, want %s", found.path, test.want)
			}
		})
	}
}

func TestFindPassesOverWhatCannotRun(t *testing.T) {
	root := t.TempDir()
	if err := os.MkdirAll(filepath.Join(root, "a", "postgres"), 0o755); err != nil { // a folder of that name
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(root, "postgres"), nil, 0o644); err != nil { // not executable
		t.Fatal(err)
	}
	k := kindNamed(t, "postgres")
	if found, err := k.find(context.Background(), []string{filepath.Join(root, "a"), root}); err == nil {
		t.Errorf("found %s", found.path)
	}
}

// A link to a server in a folder of links, as /usr/local/bin often is: its tools lie beside the real one.
func TestToolsLieBesideTheRealBinary(t *testing.T) {
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	script(t, filepath.Join(root, "real/bin/postgres"), "echo 'postgres (PostgreSQL) 17.2'")
	script(t, filepath.Join(root, "real/bin/initdb"), "")
	if err := os.Symlink(filepath.Join(root, "real/bin/postgres"), filepath.Join(root, "postgres")); err != nil {
		t.Fatal(err)
	}
	k := kindNamed(t, "postgres")
	found, err := k.find(context.Background(), []string{root})
	if err != nil {
		t.Fatal(err)
	}
	if initdb, err := found.tool("initdb"); err != nil || initdb != filepath.Join(root, "real/bin/initdb") {
		t.Errorf("%s, %v", initdb, err)
	}
	if _, err := found.tool("pg_nothing"); err == nil {
		t.Error("a tool that is not there was found")
	}
}
