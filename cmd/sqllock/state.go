package main

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/sqlnative/locks/internal/dsn"
)

// stateFile is the SQLite file of this machine and user, where nobody says which
// database: $XDG_STATE_HOME/sqllock/sqllock.db, ~/.local/state otherwise (XDG Base
// Directory Specification 0.8). Not the cache folder, which may be emptied at any
// time: two commands would then hold one lock in two files.
func stateFile() (string, error) {
	dir := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(dir) { // the specification: a relative one is to be ignored
		home, err := os.UserHomeDir()
		if err != nil || !filepath.IsAbs(home) {
			return "", fmt.Errorf("which database? Give --dsn, or set %s; without them it is a file in the user's state folder, but neither XDG_STATE_HOME nor HOME is set", envDSN)
		}
		dir = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(dir, "sqllock", "sqllock.db"), nil
}

// stateDSN makes the folder of the file, and says once, when it makes the file, how
// far such a lock reaches.
func (a *app) stateDSN() (*dsn.DSN, error) {
	file, err := stateFile()
	if err != nil {
		return nil, usagef("%w", err)
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("the folder of the default database cannot be made: %w; give --dsn, or set %s", err, envDSN)
	}
	// Not with --json, whose reader takes a line of stderr for the result of run.
	if _, err := os.Stat(file); errors.Is(err, os.ErrNotExist) && !a.out.JSON {
		a.out.Say("using %s, which excludes processes of this host only, of one user; for several hosts give --dsn, or set %s", file, envDSN)
	}
	return dsn.Parse("sqlite:" + strings.ReplaceAll((&url.URL{Path: file}).EscapedPath(), "//", "/"))
}

// checkFileSystem refuses an SQLite file on a network file system: its locks do not
// reach other machines reliably, and its shared memory (WAL) never does.
func checkFileSystem(file string) error {
	name := networkFileSystem(file)
	if name == "" {
		return nil
	}
	return fmt.Errorf("%s is on a network file system (%s), where SQLite's locks cannot be relied upon: take a local folder, or a server (--dsn, %s)", filepath.Dir(file), name, envDSN)
}
