package schema

import (
	"embed"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/sqlnative/locks/sqldb"
)

// Latest is the version of the schema that this program was made for.
const Latest int64 = 7

// VersionTable is the base name of the table that records which migrations have
// been applied.
const VersionTable = "schema_version"

//go:embed sql
var files embed.FS

// Migration is one step from a version of the schema to the next.
type Migration struct {
	// Version counts from 1. Name is the rest of the file's name.
	Version int64
	Name    string
	// Compatible is the oldest version that a program must have been made for to
	// work with the schema after this migration.
	Compatible int64
	// About says why the SQL is as it is, in lines that begin with "--".
	About string
	// Up and Down are statements with placeholders ([Place.Render]), without the
	// semicolon.
	Up, Down []string
}

// Migrations returns the migrations of a kind of database, from version 1 on. It
// panics where a file of this package is wrong.
func Migrations(kind sqldb.Kind) []Migration { return load(kind)[1:] }

// Bookkeeping returns the statements that make the table of versions, and drop it.
func Bookkeeping(kind sqldb.Kind) Migration { return load(kind)[0] }

// folder says where the SQL of a kind stands.
func folder(kind sqldb.Kind) string {
	if kind == sqldb.MariaDB {
		kind = sqldb.MySQL
	}
	return "sql/" + kind.String()
}

func load(kind sqldb.Kind) []Migration {
	dir := folder(kind)
	entries, err := fs.ReadDir(files, dir) // sorted by name
	if err != nil {
		panic(fmt.Sprintf("schema: %v", err))
	}
	var all []Migration
	for i, e := range entries {
		text, err := fs.ReadFile(files, path.Join(dir, e.Name()))
		if err != nil {
			panic(fmt.Sprintf("schema: %v", err))
		}
		m, err := parse(e.Name(), string(text))
		if err == nil && m.Version != int64(i) {
			err = fmt.Errorf("version %d is missing", i)
		}
		if err != nil {
			panic(fmt.Sprintf("schema: %s/%s: %v", dir, e.Name(), err))
		}
		all = append(all, m)
	}
	return all
}

var fileName = regexp.MustCompile(`^(\d{5})_([a-z_]+)\.sql$`)

// parse reads one file.
func parse(file, text string) (Migration, error) {
	parts := fileName.FindStringSubmatch(file)
	if parts == nil {
		return Migration{}, fmt.Errorf("the name is not NNNNN_name.sql")
	}
	version, err := strconv.ParseInt(parts[1], 10, 64)
	if err != nil {
		return Migration{}, err
	}
	m := Migration{Version: version, Name: parts[2]}
	head, rest, ok := strings.Cut(text, "-- +up\n")
	up, down, ok2 := strings.Cut(rest, "-- +down\n")
	if !ok || !ok2 {
		return m, fmt.Errorf("it does not have the lines -- +up and -- +down")
	}
	if version > 0 {
		first, about, _ := strings.Cut(head, "\n")
		n, found := strings.CutPrefix(first, "-- compatible: ")
		if m.Compatible, err = strconv.ParseInt(n, 10, 64); !found || err != nil {
			return m, fmt.Errorf("its first line is not -- compatible: VERSION")
		}
		head = about
	}
	m.About = head
	if m.Up, err = split(up); err != nil {
		return m, err
	}
	m.Down, err = split(down)
	return m, err
}

// split cuts SQL into statements.
func split(text string) ([]string, error) {
	var statements []string
	var b strings.Builder
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		end, done := strings.CutSuffix(line, ";")
		b.WriteString(end)
		if !done {
			b.WriteByte('\n')
			continue
		}
		statements = append(statements, b.String())
		b.Reset()
	}
	if strings.TrimSpace(b.String()) != "" {
		return nil, fmt.Errorf("its last statement has no semicolon")
	}
	if len(statements) == 0 {
		return nil, fmt.Errorf("there is no statement after -- +up or -- +down")
	}
	return statements, nil
}
