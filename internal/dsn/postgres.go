package dsn

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

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
	redacted := (&url.URL{Scheme: "postgres", Path: "/" + cc.Database}).String()
	redacted = strings.Replace(redacted, "postgres://", "postgres://"+userinfo(cc.User, cc.Password != "")+postgresHosts(cc.Config), 1)
	return &DSN{
		kind:     sqldb.Postgres,
		redacted: redacted,
		scrub:    newScrubber([]string{cc.User, cc.Database, cc.Host}, secrets),
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
