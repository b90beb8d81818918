package house

import (
	"os"
	"strings"
	"testing"
)

func read(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile("../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// The README's program is examples/quickstart, which compiles.
func TestReadmeProgram(t *testing.T) {
	program := read(t, "examples/quickstart/main.go")
	program = strings.TrimSpace(program[strings.Index(program, "package main"):])
	if !strings.Contains(read(t, "README.md"), "```go\n"+program+"\n```") {
		t.Error("README.md does not hold examples/quickstart/main.go as it is")
	}
}

// What the README names is there: packages, commands, scripts.
func TestReadmePaths(t *testing.T) {
	readme := read(t, "README.md")
	for _, path := range []string{
		"sqldb", "sqldb/pgdb", "sqldb/mysqldb", "sqldb/sqlitedb", "optimistic/stock", "migrations", "cmd/sqllock-migrate",
		"examples/redpacket", "integration/", "scripts/test", "scripts/bench", "CHANGELOG.md",
	} {
		name := strings.TrimSuffix(path, "/")
		if _, err := os.Stat("../../" + name); err != nil {
			t.Errorf("README.md names %s: %v", path, err)
		}
		if !strings.Contains(readme, path) {
			t.Errorf("README.md does not name %s", path)
		}
	}
}
