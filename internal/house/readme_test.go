package house

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
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

// What the README names without a mark is there, and what it marks as planned is
// not yet: a mark that has outlived its issue is a lie too.
func TestReadmeNames(t *testing.T) {
	folders := map[string]string{
		"sqldb": "sqldb", "pgdb": "sqldb/pgdb", "mysqldb": "sqldb/mysqldb", "sqlitedb": "sqldb/sqlitedb", "stock": "optimistic/stock",
		"optimistic": "optimistic", "lock": "lock", "sqllock": "sqllock", "advisory": "advisory", "joblock": "joblock", "migrations": "migrations",
	}
	names := map[string]map[string]bool{}
	for pkg, folder := range folders {
		names[pkg] = exported(t, folder)
	}
	mention := regexp.MustCompile(`\b([a-z]+)\.([A-Z]\w*)`)
	checked := 0
	for i, line := range strings.Split(read(t, "README.md"), "\n") {
		// A mark is for what stands before it, back to the last semicolon or cell.
		for _, part := range strings.FieldsFunc(line, func(r rune) bool { return r == ';' || r == '|' }) {
			planned := strings.Contains(part, "planned")
			for _, m := range mention.FindAllStringSubmatch(part, -1) {
				known, ok := names[m[1]]
				if !ok {
					continue
				}
				checked++
				switch is := known[m[2]]; {
				case planned && is:
					t.Errorf("README.md:%d: %s.%s is there, and marked as planned", i+1, m[1], m[2])
				case !planned && !is:
					t.Errorf("README.md:%d: there is no %s.%s", i+1, m[1], m[2])
				}
			}
		}
	}
	if checked < 20 {
		t.Errorf("only %d names were found", checked)
	}
}

// exported lists the exported names of a folder: functions, methods, types,
// variables, constants. It is empty where there is no such folder.
func exported(t *testing.T, folder string) map[string]bool {
	t.Helper()
	names := map[string]bool{}
	files, err := filepath.Glob("../../" + folder + "/*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				names[d.Name.Name] = true // a method too: stock.Take
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						names[s.Name.Name] = true
					case *ast.ValueSpec:
						for _, n := range s.Names {
							names[n.Name] = true
						}
					}
				}
			}
		}
	}
	return names
}
