package main

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"log"
	"net/url"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
)

// probe asks the server behind a DSN what it is: its version where it is the right kind and new enough.
func (k *kind) probe(ctx context.Context, dsn string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	db, err := k.open(dsn)
	if err != nil {
		return "", err
	}
	defer db.Close()
	var text string
	if err := db.QueryRowContext(ctx, "SELECT version()").Scan(&text); err != nil {
		return "", err
	}
	return k.judge(text)
}

// open is sql.Open, with the driver's own logging off: it would stand between testdb's lines at every try.
func (k *kind) open(dsn string) (*sql.DB, error) {
	if k.name == "postgres" {
		return sql.Open("pgx", dsn)
	}
	cfg, err := mysql.ParseDSN(dsn)
	if err != nil {
		return nil, err
	}
	cfg.Logger = log.New(io.Discard, "", 0)
	connector, err := mysql.NewConnector(cfg)
	if err != nil {
		return nil, err
	}
	return sql.OpenDB(connector), nil
}

// judge reads the answer to SELECT version(), or the output of --version, which have the same marks in them.
func (k *kind) judge(text string) (string, error) {
	is := "mysql"
	switch {
	case strings.Contains(text, "MariaDB"):
		is = "mariadb"
	case strings.Contains(text, "PostgreSQL"):
		is = "postgres"
	}
	version, major, minor := parseVersion(text)
	switch {
	case version == "":
		return "", fmt.Errorf("no version to be read in %q", text)
	case is != k.name:
		return "", fmt.Errorf("this is not a %s server: it says %q", k.title, text)
	case major < k.major || major == k.major && minor < k.minor:
		return "", fmt.Errorf("version %s is too old: sqllock needs %s %d.%d or newer", version, k.title, k.major, k.minor)
	}
	return version, nil
}

// parseVersion finds the first number in a text such as "PostgreSQL 17.2 on x86_64" or "mysqld  Ver 10.11.6-MariaDB".
func parseVersion(text string) (version string, major, minor int) {
	start := strings.IndexAny(text, "0123456789")
	if start < 0 {
		return "", 0, 0
	}
	version = text[start:]
	if end := strings.IndexFunc(version, func(r rune) bool { return r != '.' && (r < '0' || r > '9') }); end >= 0 {
		version = version[:end]
	}
	version = strings.TrimRight(version, ".")
	fmt.Sscanf(version, "%d.%d", &major, &minor) // "18" alone sets major and leaves minor 0
	return version, major, minor
}

// errDead says that the server ended while it was being waited for; there is no use in asking it again.
var errDead = errors.New("the server ended while it was starting")

// await asks until the server answers. It gives up when ctx is done, or at once when dead is closed (nil: never), or
// when the server answers and is the wrong one.
func (k *kind) await(ctx context.Context, dsn string, dead <-chan struct{}) (string, error) {
	for {
		try, cancel := context.WithTimeout(ctx, 2*time.Second)
		version, err := k.probe(try, dsn)
		if err == nil {
			err = k.cheapLogins(try, dsn)
		}
		cancel()
		if err == nil {
			return version, nil
		}
		select {
		case <-dead:
			return "", errDead
		case <-ctx.Done():
			return "", fmt.Errorf("%w; the last answer was: %w", context.Cause(ctx), err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// cheapLogins has a server that testdb has started check its password by a thousand rounds of hashing in place of 4,096:
// a test run logs in some ten thousand times, and each round is the client's to compute, under the race detector. lib/pq
// refuses fewer than a thousand.
func (k *kind) cheapLogins(ctx context.Context, dsn string) error {
	if k.name != "postgres" {
		return nil
	}
	u, err := url.Parse(dsn)
	if err != nil {
		return errors.New("its DSN is not a URL") // which err would quote
	}
	password, _ := u.User.Password()
	db, err := k.open(dsn)
	if err != nil {
		return err
	}
	defer db.Close()
	// Before version 16 there is no such setting.
	var known bool
	if err := db.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_settings WHERE name = 'scram_iterations')").Scan(&known); err != nil || !known {
		return err
	}
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if _, err := conn.ExecContext(ctx, "SET scram_iterations = 1000"); err != nil {
		return err
	}
	_, err = conn.ExecContext(ctx, "ALTER ROLE CURRENT_USER PASSWORD '"+password+"'") // hex digits
	return err
}
