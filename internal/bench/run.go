package main

import (
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/migrations"
	"github.com/sqlnative/locks/sqldb"
)

// clients are the servers' own shells: what people write into a crontab by hand.
var clients = map[sqldb.Kind]string{sqldb.Postgres: "psql", sqldb.MySQL: "mysql", sqldb.MariaDB: "mariadb", sqldb.SQLite: "sqlite3"}

// runOverhead compares `sqllock run x -- true` with the database's own shell, which
// selects 1, followed by true: whole processes, in turn. Where there is no such
// shell, nothing is measured, and the figure says so.
//
// The shell of a server connects to it, and the 1 comes from there. That of SQLite
// would leave the file unread for it, and so asks for a number from a table; it does
// not write, as the others do not.
//
// sqllock is built without cgo, as a program that is copied to servers is: nothing is
// linked when it starts. What a start costs is the figure's greater part on SQLite,
// for which the note has the time of "sqllock --version", which opens nothing. A run
// starts two: the other is the guardian, which begins before most of the program is
// initialised (package guardian) and beside the connecting.
func runOverhead() figure {
	f := figure{
		name: "run-overhead-ratio", unit: "ratio",
		about: "How long `sqllock run x -- true` takes, with its lock and its history, over the database's own shell with `select 1` (sqlite3: one that reads from the file) and then `true`. Whole processes, one after the other; both log in once, on a PostgreSQL of testdb's with 1,000 rounds of hashing.",
	}
	for _, kind := range sqldb.Kinds() {
		client := clients[kind]
		f.on = append(f.on, target{kind: kind, bound: atMost(2), floor: client + " ... '" + shellQuery(kind) + "'; true"})
	}
	f.measure = func(ctx context.Context, b *bed) (measurement, error) {
		if _, err := exec.LookPath(clients[b.kind]); err != nil {
			return measurement{}, fmt.Errorf("%w: %s is not on the PATH", errUnavailable, clients[b.kind])
		}
		if err := migrations.Up(ctx, b.db); err != nil {
			return measurement{}, err
		}
		dir, err := os.MkdirTemp("", "sqllock_test_")
		if err != nil {
			return measurement{}, err
		}
		b.closing = append(b.closing, func() error { return os.RemoveAll(dir) })
		exe := filepath.Join(dir, "sqllock")
		root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "github.com/sqlnative/locks").Output()
		if err != nil {
			return measurement{}, fmt.Errorf("looking for sqllock's sources, which are built here: %w", err)
		}
		build := exec.CommandContext(ctx, "go", "build", "-C", strings.TrimSpace(string(root)), "-o", exe, "./cmd/sqllock")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			return measurement{}, fmt.Errorf("building sqllock: %w: %s", err, out)
		}
		ours, shell, err := b.commandLines(exe)
		if err != nil {
			return measurement{}, err
		}
		run := func(cmds ...*exec.Cmd) error {
			for _, cmd := range cmds {
				if out, err := cmd.CombinedOutput(); err != nil {
					return fmt.Errorf("%s: %w: %.300s", filepath.Base(cmd.Path), err, out)
				}
			}
			return nil
		}
		one := timed(func(ctx context.Context) error { return run(ours(ctx)) })
		floor := timed(func(ctx context.Context) error { return run(shell(ctx), exec.CommandContext(ctx, "true")) })
		if _, err := alternate(ctx, 3, one, floor); err != nil { // the files are in memory from here on
			return measurement{}, err
		}
		pairs, err := alternate(ctx, b.rounds, one, floor)
		if err != nil {
			return measurement{}, err
		}
		var m measurement
		for _, p := range pairs {
			m.values = append(m.values, p.ours/p.floor)
		}
		begin := timed(func(ctx context.Context) error { return run(exec.CommandContext(ctx, exe, "--version")) })
		alone, err := alternate(ctx, min(b.rounds, 20), begin, timed(func(ctx context.Context) error { return run(exec.CommandContext(ctx, "true")) }))
		if err != nil {
			return measurement{}, err
		}
		o, fl := split(pairs)
		version, empty := split(alone)
		m.note = fmt.Sprintf("ours %v, the floor %v; sqllock --version %v, true %v", nanoseconds(median(o)), nanoseconds(median(fl)), nanoseconds(median(version)), nanoseconds(median(empty)))
		return m, nil
	}
	return f
}

// shellQuery is what the shell asks.
func shellQuery(kind sqldb.Kind) string {
	if kind == sqldb.SQLite {
		return "select count(*) from sqllock_jobs"
	}
	return "select 1"
}

// commandLines are the two commands, on the bed's database. No password is among their arguments.
func (b *bed) commandLines(exe string) (ours, shell func(context.Context) *exec.Cmd, err error) {
	dsn := os.Getenv(env(b.kind))
	command := func(environ []string, name string, args ...string) func(context.Context) *exec.Cmd {
		return func(ctx context.Context) *exec.Cmd {
			cmd := exec.CommandContext(ctx, name, args...)
			cmd.Env = append(os.Environ(), environ...)
			return cmd
		}
	}
	query := shellQuery(b.kind)
	schema := []string{"run", "x", "--schema", b.name, "--", "true"}
	switch b.kind {
	case sqldb.Postgres:
		u, err := url.Parse(dsn)
		if err != nil {
			return nil, nil, fmt.Errorf("%s is not a URL", env(b.kind))
		}
		password, _ := u.User.Password()
		u.User = url.User(u.User.Username())
		return command([]string{"SQLLOCK_DSN=" + dsn}, exe, schema...), command([]string{"PGPASSWORD=" + password}, "psql", u.String(), "-X", "-c", query), nil
	case sqldb.SQLite:
		return command([]string{"SQLLOCK_DSN=sqlite:" + b.name}, exe, "run", "x", "--", "true"), command(nil, "sqlite3", b.name, query), nil
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, nil, err
	}
	host, port, err := net.SplitHostPort(cfg.Addr)
	if err != nil || strings.HasPrefix(cfg.Addr, "/") {
		return nil, nil, fmt.Errorf("%s has no TCP address", env(b.kind))
	}
	return command([]string{"SQLLOCK_DSN=" + dsn}, exe, schema...),
		command([]string{"MYSQL_PWD=" + cfg.Passwd}, clients[b.kind], "-h", host, "-P", port, "-u", cfg.User, "-e", query), nil
}
