package dsn

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/sqlnative/locks/sqldb"
)

func parsePostgresURL(s string) (*DSN, error) {
	u, err := splitURL(s, exPostgres)
	if err != nil {
		return nil, err
	}
	for _, h := range strings.Split(u.hosts, ",") {
		if err := checkHost(h, exPostgres); err != nil {
			return nil, err
		}
	}
	secrets := append([]string{u.password, u.rawPassword}, secretParams(u.params)...)
	// pgx knows the schemes in lower case only.
	return newPostgres("postgres"+s[strings.Index(s, "://"):], secrets)
}

func parsePostgresKeywords(s string) (*DSN, error) {
	return newPostgres(s, keywordSecrets(s))
}

// newPostgres lets pgx read the string, which also looks into the environment
// (PGHOST, PGPASSWORD, …), the service file and the password file.
func newPostgres(s string, secrets []string) (*DSN, error) {
	scrub := NewScrubber(secrets...)
	cfg, err := pgxpool.ParseConfig(s)
	if err != nil {
		return nil, postgresError(err, scrub)
	}
	cc := cfg.ConnConfig
	if cc.Database == "" {
		return nil, fmt.Errorf("dsn: the database is missing: write %s", exPostgres)
	}
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = connectTimeout
	}
	secrets = append(secrets, cc.Password)
	hosts := postgresHosts(cc.Config)
	redacted := (&url.URL{Scheme: "postgres", Path: "/" + cc.Database}).String()
	redacted = strings.Replace(redacted, "postgres://", "postgres://"+userinfo(cc.User, cc.Password != "")+hosts, 1)
	return &DSN{
		kind:     sqldb.Postgres,
		redacted: redacted,
		scrub:    newScrubber([]string{cc.User, cc.Database, cc.Host}, secrets),
		answer:   cc.ConnectTimeout * time.Duration(1+strings.Count(hosts, ",")),
		hosts:    hosts,
		pg:       cfg,
	}, nil
}

// postgresError says what pgx said, without the string that pgx quotes and
// without the password. A keyword/value string that is malformed may have the
// password anywhere, so nothing of it is shown.
func postgresError(err error, scrub *Scrubber) error {
	text := err.Error()
	if strings.Contains(text, "failed to parse as keyword/value") {
		return errors.New("dsn: the keyword/value form is malformed: write host=… user=… password='…' dbname=…, with a \\ before ' and \\ inside the quotes")
	}
	var pe *pgconn.ParseConfigError
	if errors.As(err, &pe) {
		if i := strings.LastIndex(text, "`: "); i >= 0 {
			text = text[i+len("`: "):]
		}
	}
	return fmt.Errorf("dsn: PostgreSQL's driver refuses it: %s", scrub.Text(text))
}

// postgresHosts lists the hosts that a connection tries, in order.
func postgresHosts(c pgconn.Config) string {
	var list []string
	add := func(host string, port uint16) {
		h := net.JoinHostPort(host, strconv.Itoa(int(port)))
		if strings.HasPrefix(host, "/") {
			h = url.PathEscape(host)
		}
		for _, have := range list {
			if have == h {
				return
			}
		}
		list = append(list, h)
	}
	add(c.Host, c.Port)
	for _, f := range c.Fallbacks {
		add(f.Host, f.Port)
	}
	return strings.Join(list, ",")
}

// connectError puts the reason first in the text of an error of pgx, which lists
// every attempt, with and without TLS, from the first on: the last one is what
// counts.
func connectError(err error) error {
	var failed *pgconn.ConnectError
	if !errors.As(err, &failed) {
		return err
	}
	attempts := []error{failed.Unwrap()}
	if joined, ok := attempts[0].(interface{ Unwrap() []error }); ok {
		attempts = joined.Unwrap()
	}
	var texts []string
	for i := len(attempts) - 1; i >= 0; i-- {
		text := oneLine(attempts[i].Error())
		if strings.Contains(text, "failed to receive message") {
			text += " (is it another server?)"
		}
		withoutTLS := strings.HasSuffix(text, "server refused TLS connection") && len(attempts) > 1
		if !withoutTLS && !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	var refused *pgconn.PgError
	switch {
	case len(texts) == 0:
		texts = []string{attempts[0].Error()}
	case len(texts) == 1 && errors.As(attempts[len(attempts)-1], &refused):
		texts[0] = refused.Error() // which host that was stands in front
	}
	return &scrubbedError{text: strings.Replace(err.Error(), failed.Error(), strings.Join(texts, "; "), 1), err: err}
}

// oneLine joins the lines of a text, less those that only repeat the end of one
// before.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if !slices.ContainsFunc(lines, func(l string) bool { return strings.HasSuffix(l, line) }) {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "; ")
}
