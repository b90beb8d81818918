package main

import (
	"context"
	"fmt"
	"net"
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
func runOverhead() figure {
	f := figure{
		name: "run-overhead-ratio", unit: "ratio",
		about: "How long `sqllock run x -- true` takes, with its lock and its history, over the database's own shell with `select 1` and then `true`. Whole processes, one after the other.",
	}
	for _, kind := range sqldb.Kinds() {
		client := clients[kind]
		f.on = append(f.on, target{kind: kind, bound: atMost(2), floor: client + " ... 'select 1'; true"})
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
		if out, err := exec.CommandContext(ctx, "go", "build", "-o", exe, "github.com/sqlnative/locks/cmd/sqllock").CombinedOutput(); err != nil {
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
		o, fl := split(pairs)
		m.note = fmt.Sprintf("ours %v, the floor %v", nanoseconds(median(o)), nanoseconds(median(fl)))
		return m, nil
	}
	return f
}

// commandLines are the two commands, on the bed's database. No password is in them.
func (b *bed) commandLines(exe string) (ours, shell func(context.Context) *exec.Cmd, err error) {
	dsn := os.Getenv(env(b.kind))
	command := func(environ []string, name string, args ...string) func(context.Context) *exec.Cmd {
		return func(ctx context.Context) *exec.Cmd {
			cmd := exec.CommandContext(ctx, name, args...)
			cmd.Env = append(os.Environ(), environ...)
			return cmd
		}
	}
	const query = "select 1"
	schema := []string{"run", "x", "--schema", b.name, "--", "true"}
	switch b.kind {
	case sqldb.Postgres:
		return command([]string{"SQLLOCK_DSN=" + dsn}, exe, schema...), command(nil, "psql", dsn, "-X", "-c", query), nil
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
