package main

import (
	"os"
	"strings"
	"testing"

	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/sqldb"
)

// TestNetworkFileRefused: an SQLite file on one is refused, the default one and one that
// is named, before anything is made on it. It runs alone: it takes the file system of
// this test for one, so that what statfs says of a real file is what is judged.
func TestNetworkFileRefused(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_STATE_HOME", dir+"/state")
	dsn := "sqlite:" + dir + "/named.db"
	magic := fileSystemOf(dir + "/no-such-file")
	if magic == 0 {
		t.Skip("statfs says nothing")
	}
	if was, is := networkMagic[magic]; is {
		t.Skipf("this folder is on %s", was)
	}
	refused := func(what string, code int, args ...string) {
		t.Helper()
		stdout, stderr := want(t, code, args...)
		if !strings.Contains(stdout+stderr, "is on a network file system (nfs), where SQLite's locks cannot be relied upon: take a local folder, or a server (--dsn, SQLLOCK_DSN)") {
			t.Errorf("%s: %s", what, stdout+stderr)
		}
	}
	networkMagic[magic] = "nfs"
	defer delete(networkMagic, magic)
	refused("the default file", 1, "ls")
	refused("under run", 69, "run", "x", "--", "true")
	refused("a named file", 1, "ls", "--migrate", "--dsn", dsn)
	refused("a URI", 1, "doctor", "--dsn", "file:"+dir+"/named.db?mode=rwc")
	for _, file := range []string{dir + "/state/sqllock/sqllock.db", dir + "/named.db"} {
		if _, err := os.Stat(file); err == nil {
			t.Errorf("%s was made", file)
		}
	}
	want(t, 0, "ls", "--dsn", "sqlite::memory:", "--migrate") // which is nowhere

	// The same without: it is the file system that was refused.
	delete(networkMagic, magic)
	want(t, 0, "ls")
	want(t, 0, "ls", "--migrate", "--dsn", dsn)

	// A link leads to where the file is.
	if err := os.Symlink("/proc/self/status", dir+"/link.db"); err != nil {
		t.Fatal(err)
	}
	if got, proc := fileSystemOf(dir+"/link.db"), fileSystemOf("/proc/self/status"); got != proc || got == magic {
		t.Errorf("of a link: %#x, want %#x", got, proc)
	}
}

// TestUserSpace: what may be a network file system is a warning of doctor.
func TestUserSpace(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	migrated(t, db)
	r := wantJSON[doctorResult](t, 0, on(db, "doctor")...)
	for _, c := range r.Checks {
		if c.Name == "file system" && (c.State != ok || c.Value == "") {
			t.Errorf("%+v", c)
		}
	}
	if !mayBeRemote(fuseMagic) || mayBeRemote(0xef53) {
		t.Error("FUSE is not told from ext4")
	}
}
