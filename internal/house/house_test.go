package house

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

func TestImportsKeepTheArrows(t *testing.T) {
	root := os.DirFS("../..")
	faults, files, err := inspect(root)
	if err != nil {
		t.Fatal(err)
	}
	if files < 2 {
		t.Fatalf("only %d files were read: this test looks in the wrong place", files)
	}
	for _, fault := range faults {
		t.Error(fault)
	}
}

// Users' go.mod gets what this one requires, so what only the suites on real databases need stays out.
func TestTestcontainersStaysOutOfTheRootModule(t *testing.T) {
	for _, name := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile("../../" + name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(text), "testcontainers") {
			t.Errorf("%s names testcontainers, which belongs into integration/go.mod", name)
		}
	}
}

// A rule may use only what stands above it; then there are no circles, and no two strategies use each other.
func TestTheTableRunsUpwards(t *testing.T) {
	strategies := []string{"sqllock", "advisory", "optimistic", "optimistic/stock"}
	var above []string
	for _, r := range rules() {
		for _, used := range r.uses {
			if !slices.Contains(above, used) {
				t.Errorf("%s may use %s, which does not stand above it", r.folder, used)
			}
		}
		if slices.Contains(above, r.folder) {
			t.Errorf("%s stands in the table twice", r.folder)
		}
		above = append(above, r.folder)
		if slices.Contains(strategies, r.folder) {
			for _, other := range strategies {
				if allowed, _ := allowedIn(r.folder); slices.Contains(allowed.uses, other) {
					t.Errorf("the strategy %s may use the strategy %s", r.folder, other)
				}
			}
		}
	}
}

// inspect reads the imports of all Go files of the module and reports each that its folder's rule does not allow.
// Nested modules are not part of it.
func inspect(root fs.FS) (faults []string, files int, err error) {
	err = fs.WalkDir(root, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			base := path.Base(name)
			_, statErr := fs.Stat(root, path.Join(name, "go.mod"))
			if name != "." && (strings.HasPrefix(base, ".") || strings.HasPrefix(base, "_") || base == "testdata" || statErr == nil) {
				return fs.SkipDir
			}
			return nil
		}
		if path.Ext(name) != ".go" {
			return nil
		}
		files++
		source, err := fs.ReadFile(root, name)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
		if err != nil {
			return err
		}
		var imports []string
		for _, spec := range file.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			imports = append(imports, imported)
		}
		faults = append(faults, judge(name, imports)...)
		return nil
	})
	return faults, files, err
}

// judge reports what is wrong with one file's imports.
func judge(file string, imports []string) (faults []string) {
	folder := path.Dir(file)
	allowed, known := allowedIn(folder)
	if !known {
		return []string{fmt.Sprintf("%s: the folder %s is not in the table of this test: say there what it may import", file, folder)}
	}
	for _, imported := range imports {
		if strings.Contains(imported, "testcontainers") {
			faults = append(faults, fmt.Sprintf("%s imports %s: testcontainers belongs into integration/", file, imported))
			continue
		}
		if strings.HasSuffix(file, "_test.go") || standard(imported) {
			continue
		}
		inside, ours := strings.CutPrefix(imported, module+"/")
		switch {
		case ours && slices.Contains(allowed.uses, inside):
		case !ours && slices.ContainsFunc(allowed.modules, func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") }):
		default:
			faults = append(faults, fmt.Sprintf("%s imports %s, which %s may not: see rules_test.go", file, imported, folder))
		}
	}
	return faults
}

// standard is whether an import is the standard library's: others have a host name first.
func standard(imported string) bool {
	first, _, _ := strings.Cut(imported, "/")
	return !strings.Contains(first, ".")
}

// allowedIn finds a folder's rule, with all that its uses may use.
func allowedIn(folder string) (rule, bool) {
	all := rules()
	i := slices.IndexFunc(all, func(r rule) bool {
		parent, wild := strings.CutSuffix(r.folder, "*")
		return r.folder == folder || wild && strings.HasPrefix(folder, parent)
	})
	if i < 0 {
		return rule{}, false
	}
	r := all[i]
	seen := slices.Clone(r.uses)
	for n := 0; n < len(seen); n++ { // it grows while it is read
		for _, other := range all {
			if other.folder != seen[n] {
				continue
			}
			for _, used := range other.uses {
				if !slices.Contains(seen, used) {
					seen = append(seen, used)
				}
			}
		}
	}
	// Go's own rule for internal folders is narrower than this closure, and the compiler keeps it.
	r.uses = seen
	return r, true
}

// The negative control: a house with every fault in it, each of which has to be found, beside what is in order.
func TestEveryFaultIsFound(t *testing.T) {
	const ours = module + "/"
	tests := map[string]struct {
		file    string
		imports []string
		fault   string // empty: there is none
	}{
		"standard library":                  {"sqldb/a.go", []string{"context", "database/sql"}, ""},
		"an adapter and its driver":         {"sqldb/pgdb/a.go", []string{ours + "sqldb", pgx + "/pgxpool"}, ""},
		"what a used folder uses":           {"sqllock/a.go", []string{ours + "lock", ours + "sqldb"}, ""},
		"a test of one strategy by another": {"sqllock/a_test.go", []string{ours + "advisory", pgx}, ""},
		"a command":                         {"cmd/sqllock/a.go", []string{ours + "migrations", ours + "internal/cli", cobra}, ""},
		"an example and its driver":         {"examples/redpacket/a.go", []string{ours + "optimistic/stock", sqlite}, ""},

		"downwards":                         {"sqldb/a.go", []string{ours + "lock"}, ours + "lock"},
		"from lock to a strategy":           {"lock/a.go", []string{ours + "sqllock"}, ours + "sqllock"},
		"between strategies":                {"sqllock/a.go", []string{ours + "advisory"}, ours + "advisory"},
		"from stock to optimistic":          {"optimistic/stock/a.go", []string{ours + "optimistic"}, ours + "optimistic"},
		"between adapters":                  {"sqldb/pgdb/a.go", []string{ours + "sqldb/mysqldb"}, ours + "sqldb/mysqldb"},
		"a driver below its adapter":        {"sqldb/a.go", []string{pgx}, pgx},
		"a driver in another one's adapter": {"sqldb/pgdb/a.go", []string{mysql}, mysql},
		"a driver in a strategy":            {"sqllock/a.go", []string{pgx + "/pgconn"}, pgx + "/pgconn"},
		"a driver in migrations":            {"migrations/a.go", []string{sqlite}, sqlite},
		"goose anywhere else":               {"internal/schema/a.go", []string{goose}, goose},
		"cobra in a library":                {"joblock/a.go", []string{cobra}, cobra},
		"a module that is nobody's":         {"lock/a.go", []string{"golang.org/x/sync/errgroup"}, "golang.org/x/sync/errgroup"},
		"a path that only begins alike":     {"sqldb/pgdb/a.go", []string{pgx + "x"}, pgx + "x"},
		"an example that uses test helpers": {"examples/redpacket/a.go", []string{ours + "internal/dbtest"}, ours + "internal/dbtest"},
		"an example that looks inside":      {"examples/redpacket/a.go", []string{ours + "internal/cli"}, ours + "internal/cli"},
		"testcontainers":                    {"internal/dbtest/a.go", []string{"github.com/testcontainers/testcontainers-go"}, "testcontainers"},
		"testcontainers in a test":          {"sqllock/a_test.go", []string{"github.com/testcontainers/testcontainers-go/wait"}, "testcontainers"},
		"a folder that nobody knows":        {"util/a.go", nil, "util"},
		"a folder of tests only":            {"misc/a_test.go", nil, "misc"},
		"a folder in a known one":           {"sqldb/extra/a.go", nil, "sqldb/extra"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			source := "package a\n"
			for _, imported := range test.imports {
				source += "import _ \"" + imported + "\"\n"
			}
			faults, files, err := inspect(fstest.MapFS{
				"go.mod":             {Data: []byte("module " + module)},
				test.file:            {Data: []byte(source)},
				"nested/go.mod":      {Data: []byte("module nested")},
				"nested/a.go":        {Data: []byte("package a\nimport _ \"github.com/testcontainers/testcontainers-go\"\n")},
				"lock/testdata/a.go": {Data: []byte("package a\nimport _ \"unknown.example/x\"\n")},
			})
			if err != nil || files != 1 {
				t.Fatalf("read %d files, want 1: %v", files, err)
			}
			switch {
			case test.fault == "" && len(faults) > 0:
				t.Errorf("found %q where nothing is wrong", faults)
			case test.fault != "" && (len(faults) != 1 || !strings.Contains(faults[0], test.fault)):
				t.Errorf("found %q, want one fault that names %s", faults, test.fault)
			}
		})
	}
}
