package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// A binary is a server found on the machine.
type binary struct {
	path    string // as found
	dir     string // the folder it really lies in, where its tools are too
	version string
}

// searchDirs lists the folders to look in, in order: PATH, Debian's versions of PostgreSQL from the newest on, the
// folders for daemons, Homebrew's on both kinds of Mac. A kind's own folders are those of its name. root is "/", but
// for tests.
func searchDirs(k *kind, path, root string) []string {
	dirs := filepath.SplitList(path)
	patterns := []string{"usr/sbin", "usr/local/sbin", "usr/local/mysql/bin"}
	if k.name == "postgres" {
		patterns = []string{"usr/lib/postgresql/*/bin", "usr/pgsql-*/bin"}
	}
	formula := map[string]string{"postgres": "postgresql", "mysql": "mysql", "mariadb": "mariadb"}[k.name]
	for _, brew := range []string{"opt/homebrew", "usr/local"} {
		patterns = append(patterns, brew+"/opt/"+formula+"/bin", brew+"/opt/"+formula+"@*/bin", brew+"/bin")
	}
	for _, pattern := range patterns {
		found, _ := filepath.Glob(filepath.Join(root, pattern)) // the patterns are well-formed
		slices.SortFunc(found, func(a, b string) int { return versionOf(b) - versionOf(a) })
		dirs = append(dirs, found...)
	}
	return dirs
}

// versionOf is the major version in a folder's name: 17 for /usr/lib/postgresql/17/bin and postgresql@17/bin.
func versionOf(dir string) int {
	name := filepath.Base(filepath.Dir(dir))
	_, major, _ := parseVersion(name)
	return major
}

// find looks for a server of this kind that is new enough. Where there is none, the error tells what was seen.
func (k *kind) find(ctx context.Context, dirs []string) (*binary, error) {
	var seen []string
	asked := map[string]bool{}
	for _, dir := range dirs {
		for _, name := range k.servers {
			path := filepath.Join(dir, name)
			real, err := filepath.EvalSymlinks(path)
			if err != nil || asked[real] {
				continue
			}
			if info, err := os.Stat(real); err != nil || info.IsDir() || info.Mode()&0o111 == 0 {
				continue
			}
			asked[real] = true
			found, err := k.ask(ctx, path, real)
			if err == nil {
				return found, nil
			}
			if !strings.Contains(err.Error(), "is not a") { // a mysqld that is MariaDB's is nobody's mistake
				seen = append(seen, fmt.Sprintf("%s: %v", path, err))
			}
		}
	}
	if len(seen) > 0 {
		return nil, fmt.Errorf("no %s binary on this machine can be used (%s)", k.title, strings.Join(seen, "; "))
	}
	return nil, fmt.Errorf("there is no %s binary on this machine", k.title)
}

// ask runs the binary with --version, which tells MySQL's mysqld from MariaDB's and touches nothing.
func (k *kind) ask(ctx context.Context, path, real string) (*binary, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("--version: %w", err)
	}
	// "/usr/sbin/mysqld  Ver 8.0.36": MySQL prints its path first, which may have digits in it.
	text := strings.TrimSpace(string(out))
	if _, rest, ok := strings.Cut(text, "Ver "); ok {
		text = rest
	}
	version, err := k.judge(text)
	if err != nil {
		return nil, err
	}
	return &binary{path: path, dir: filepath.Dir(real), version: version}, nil
}

// tool finds a program that belongs to a server: beside it, or in its prefix's bin.
func (b *binary) tool(names ...string) (string, error) {
	for _, dir := range []string{b.dir, filepath.Join(filepath.Dir(b.dir), "bin"), filepath.Dir(b.path)} {
		for _, name := range names {
			path := filepath.Join(dir, name)
			if info, err := os.Stat(path); err == nil && info.Mode()&0o111 != 0 {
				return path, nil
			}
		}
	}
	return "", fmt.Errorf("%s lies beside %s nowhere; is the package installed as a whole?", names[0], b.path)
}
