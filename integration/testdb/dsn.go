package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"
)

// newPassword makes a password for a server that lives as long as one test run. Hex digits need no quoting anywhere.
func newPassword() string {
	var b [16]byte
	rand.Read(b[:]) // never fails, by its own promise
	return hex.EncodeToString(b[:])
}

// dsn builds the DSN of a server that testdb started: an administrator, who may create databases and schemas.
func (k *kind) dsn(host, port, password string) string {
	address := net.JoinHostPort(host, port)
	if k.name == "postgres" {
		return "postgres://postgres:" + password + "@" + address + "/postgres?sslmode=disable"
	}
	return "root:" + password + "@tcp(" + address + ")/test?parseTime=true"
}

// normalize checks the form of a DSN that was given and turns a mysql:// or mariadb:// URL into the driver's own form.
// Its errors do not repeat the DSN, since a malformed one cannot be redacted with certainty.
func (k *kind) normalize(dsn string) (string, error) {
	if k.name == "postgres" {
		if !strings.HasPrefix(dsn, "postgres://") && !strings.HasPrefix(dsn, "postgresql://") {
			return "", fmt.Errorf("not a URL of the form postgres://user:password@host:port/database")
		}
		if _, err := url.Parse(dsn); err != nil {
			return "", fmt.Errorf("not a valid URL; a password with special characters has to be percent-encoded")
		}
		return dsn, nil
	}
	rest, isMySQL := strings.CutPrefix(dsn, "mysql://")
	if !isMySQL {
		rest, isMySQL = strings.CutPrefix(dsn, "mariadb://")
	}
	if isMySQL {
		u, err := url.Parse("mysql://" + rest)
		if err != nil {
			return "", fmt.Errorf("not a valid URL; a password with special characters has to be percent-encoded")
		}
		port := u.Port()
		if port == "" {
			port = "3306"
		}
		password, _ := u.User.Password()
		cfg := mysql.NewConfig()
		cfg.User, cfg.Passwd = u.User.Username(), password
		cfg.Net, cfg.Addr = "tcp", net.JoinHostPort(u.Hostname(), port)
		cfg.DBName = strings.TrimPrefix(u.Path, "/")
		dsn = cfg.FormatDSN()
		if u.RawQuery != "" {
			separator := "?"
			if strings.Contains(dsn[strings.LastIndex(dsn, "/"):], "?") {
				separator = "&"
			}
			dsn += separator + u.RawQuery
		}
	}
	if _, err := mysql.ParseDSN(dsn); err != nil {
		return "", fmt.Errorf("not of the form user:password@tcp(host:port)/database")
	}
	return dsn, nil
}

// redact makes a DSN fit to be shown: everything between the user's name and the last @ is hidden, whatever the form,
// and so are passwords in the parameters.
func redact(dsn string) string {
	scheme := ""
	if i := strings.Index(dsn, "://"); i >= 0 {
		scheme, dsn = dsn[:i+3], dsn[i+3:]
	}
	if at := strings.LastIndex(dsn, "@"); at >= 0 {
		user, _, hasPassword := strings.Cut(dsn[:at], ":")
		if hasPassword {
			user += ":***"
		}
		dsn = user + dsn[at:]
	}
	return scheme + regexp.MustCompile(`(?i)(password|passwd|pwd)=[^&\s]*`).ReplaceAllString(dsn, "$1=***")
}

// secretsOf lists what must not be printed of a DSN: its password, as it stands and decoded.
func secretsOf(dsn string) []string {
	var secrets []string
	rest := dsn
	if i := strings.Index(rest, "://"); i >= 0 {
		rest = rest[i+3:]
	}
	if at := strings.LastIndex(rest, "@"); at >= 0 {
		if _, password, ok := strings.Cut(rest[:at], ":"); ok && password != "" {
			secrets = append(secrets, password)
			if decoded, err := url.QueryUnescape(password); err == nil && decoded != password {
				secrets = append(secrets, decoded)
			}
			if decoded, err := url.PathUnescape(password); err == nil && decoded != password {
				secrets = append(secrets, decoded)
			}
		}
	}
	return secrets
}
