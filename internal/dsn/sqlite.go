package dsn

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"github.com/sqlnative/locks/sqldb"
)

// liteFile is what modernc.org/sqlite opens.
type liteFile struct {
	path   string // "" and memory, or as the operating system knows it
	memory bool
	params url.Values
	query  string
	busy   time.Duration
}

// busyTimeout is how long a statement waits for the file, unless the DSN or
// [DSN.SetBusyTimeout] says otherwise.
const busyTimeout = 5 * time.Second

// SetBusyTimeout sets how long a statement waits for an SQLite file that is locked,
// where the DSN does not say so itself. It means nothing to other kinds.
func (d *DSN) SetBusyTimeout(timeout time.Duration) {
	if d.lite != nil {
		d.lite.busy = timeout
	}
}

// uri is the name by which modernc.org/sqlite opens the file.
func (f *liteFile) uri() string {
	params := f.defaults()
	if f.query != "" {
		params = append(params, f.query)
	}
	return liteURI(filepath.ToSlash(f.path)) + "?" + strings.Join(params, "&")
}

var hostPassword = regexp.MustCompile(`^//[^/]*:[^/]*@`)

// parseSQLite reads what stands behind sqlite: or file:, a path in which a %, a ?
// and a # are percent-encoded, and then parameters as modernc.org/sqlite knows
// them. Of sqlite:// and file:// the first has a relative path behind it
// (sqlite:///x is absolute all the same), the second an empty host.
func parseSQLite(scheme, rest string) (*DSN, error) {
	raw, query, _ := strings.Cut(rest, "?")
	switch {
	case strings.Contains(rest, "#"):
		return nil, errors.New("dsn: there is a # in it: percent-encode it (# is %23)")
	case hostPassword.MatchString(raw):
		return nil, fmt.Errorf("dsn: SQLite has no user, password or host: write %s", exSQLite)
	}
	if scheme == "file" {
		if authority, ok := strings.CutPrefix(raw, "//"); ok {
			host, path, _ := strings.Cut(authority, "/")
			if host != "" && host != "localhost" {
				return nil, errors.New("dsn: file:// has a host behind it: write file:relative/path or file:///absolute/path")
			}
			raw = "/" + path
		}
	} else {
		raw = strings.TrimPrefix(raw, "//")
	}
	path, err := url.PathUnescape(raw)
	if err != nil {
		return nil, errors.New("dsn: a % in the path is not followed by two hexadecimal digits: percent-encode it (% is %25)")
	}
	if err := hasNUL(path); err != nil {
		return nil, err
	}
	params, err := url.ParseQuery(query)
	if err != nil {
		return nil, errors.New("dsn: the parameters behind the ? are malformed: write ?name=value&name=value, with % and ; percent-encoded (%25, %3B)")
	}
	memory := path == ":memory:" || params.Get("mode") == "memory" || params.Get("vfs") == "memdb"
	switch {
	case path == "" && !memory:
		return nil, fmt.Errorf("dsn: the file is missing: write %s", exSQLite)
	case strings.HasSuffix(path, "/") && !memory:
		return nil, fmt.Errorf("dsn: the path ends with a /, so it is a folder: write %s", exSQLite)
	}
	for _, p := range params["_pragma"] {
		if strings.Contains(p, ";") {
			return nil, errors.New("dsn: a _pragma has a ; in it: write one _pragma=name(value) each")
		}
	}
	lite := &liteFile{path: filepath.FromSlash(path), memory: memory, params: params, query: query, busy: busyTimeout}
	redacted := "sqlite:" + path
	if memory {
		redacted = "sqlite::memory:"
	}
	return &DSN{
		kind:     sqldb.SQLite,
		redacted: redacted,
		scrub:    newScrubber([]string{path}, secretParams(params)),
		lite:     lite,
	}, nil
}

// liteURI writes a path as SQLite's URI: file:relative, file:///absolute.
func liteURI(path string) string {
	var b strings.Builder
	b.WriteString("file:")
	if strings.HasPrefix(path, "/") {
		b.WriteString("//")
	}
	for i := 0; i < len(path); i++ {
		switch c := path[i]; {
		case c == '%', c == '?', c == '#', c <= ' ', c >= 0x7f:
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// defaults are the parameters that a file shared by processes needs, where
// the DSN says nothing of the kind: waiting for a lock instead of failing at once,
// readers beside a writer, and transactions that take the write lock at BEGIN, as
// one that takes it later fails at once whatever busy_timeout says.
func (f *liteFile) defaults() []string {
	params, memory := f.params, f.memory
	pragma := func(name string) bool {
		for _, p := range params["_pragma"] {
			if strings.HasPrefix(strings.ToLower(strings.TrimSpace(p)), name) {
				return true
			}
		}
		return false
	}
	var add []string
	if !pragma("busy_timeout") && !params.Has("_busy_timeout") && !params.Has("_timeout") {
		add = append(add, fmt.Sprintf("_pragma=busy_timeout(%d)", max(1, f.busy.Milliseconds())))
	}
	readOnly := params.Get("mode") == "ro" || params.Has("immutable")
	if !memory && !readOnly && !pragma("journal_mode") && !params.Has("_journal_mode") && !params.Has("_journal") {
		add = append(add, "_pragma=journal_mode(WAL)")
	}
	if !params.Has("_txlock") {
		add = append(add, "_txlock=immediate")
	}
	return add
}
