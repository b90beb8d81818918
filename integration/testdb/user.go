package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// A home is where a server lives: a temporary folder and the user who owns it. The user is nil where testdb itself is
// no root; database servers refuse to run as root, and are right to.
type home struct {
	dir  string
	user *syscall.Credential
}

// newHome finds a user who can read the binary, and makes a folder of that user's own. TMPDIR comes first, but under
// root it may lie where nobody else can go, so /tmp and /var/tmp are tried as well.
func newHome(ctx context.Context, k *kind, binary string) (*home, error) {
	bases := []string{os.TempDir()}
	if !isRoot() {
		dir, err := os.MkdirTemp(bases[0], "sqllock-testdb-")
		return &home{dir: dir}, err
	}
	for _, base := range []string{"/tmp", "/var/tmp"} {
		if !slices.Contains(bases, base) {
			bases = append(bases, base)
		}
	}
	var why error
	for _, name := range k.users {
		credential, err := credentialOf(name)
		if err != nil {
			why = errors.Join(why, err)
			continue
		}
		for _, base := range bases {
			dir, err := os.MkdirTemp(base, "sqllock-testdb-")
			if err != nil {
				why = errors.Join(why, err)
				continue
			}
			h := &home{dir: dir, user: credential}
			if err = h.try(ctx, binary); err == nil {
				return h, nil
			}
			os.RemoveAll(dir)
			why = errors.Join(why, fmt.Errorf("as %s in %s: %w", name, base, err))
		}
	}
	return nil, fmt.Errorf("no unprivileged user can run %s: %w", binary, why)
}

func credentialOf(name string) (*syscall.Credential, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

// try hands the folder over and runs the binary in it, both as the server's user.
func (h *home) try(ctx context.Context, binary string) error {
	if err := os.Chown(h.dir, int(h.user.Uid), int(h.user.Gid)); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	out, err := newCommand(ctx, h.user, h.dir, "/bin/sh", "-c", `cd "$0" && : >probe && rm probe && "$1" --version`, h.dir, binary).CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// write puts a file into the folder that only the server's user can read: passwords go to servers this way and never
// over a command line.
func (h *home) write(name, text string) (string, error) {
	path := filepath.Join(h.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		return "", err
	}
	if h.user == nil {
		return path, nil
	}
	return path, os.Chown(path, int(h.user.Uid), int(h.user.Gid))
}

// run runs one of the server's tools to its end.
func (h *home) run(ctx context.Context, argv ...string) error {
	out, err := newCommand(ctx, h.user, h.dir, argv...).CombinedOutput()
	if err != nil {
		lines := strings.Split(strings.TrimSpace(string(out)), "\n")
		return fmt.Errorf("%s: %w: %s", filepath.Base(argv[0]), err, strings.Join(lines[max(0, len(lines)-4):], " | "))
	}
	return nil
}
