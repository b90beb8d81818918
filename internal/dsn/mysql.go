package dsn

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlnative/locks/sqldb"
)

// parseMySQLURL turns a URL into what go-sql-driver knows. Its parameters pass
// through, but for these, which clients of MySQL elsewhere know:
//
//	socket=/path                             a unix socket; or %2Fpath as the host
//	ssl-mode=DISABLED|PREFERRED|REQUIRED|VERIFY_CA|VERIFY_IDENTITY
//	ssl-ca=FILE, ssl-cert=FILE, ssl-key=FILE
func parseMySQLURL(s string, kind sqldb.Kind) (*DSN, error) {
	example := strings.Replace(exMySQL, "mysql", kind.String(), 1)
	u, err := splitURL(s, example)
	if err != nil {
		return nil, err
	}
	if u.path == "" {
		return nil, fmt.Errorf("dsn: the database is missing: write %s", example)
	}
	network, addr, err := mysqlAddress(u, example)
	if err != nil {
		return nil, err
	}
	u.params.Del("socket")
	tlsConfig, fallback, err := mysqlTLS(u.params)
	if err != nil {
		return nil, err
	}
	secrets := append([]string{u.password, u.rawPassword}, secretParams(u.params)...)
	form := network + "(" + addr + ")/" + url.PathEscape(u.path)
	if len(u.params) > 0 {
		form += "?" + u.params.Encode()
	}
	cfg, err := mysql.ParseDSN(form)
	if err != nil {
		return nil, driverError(err, NewScrubber(secrets...))
	}
	cfg.User, cfg.Passwd = u.user, u.password
	if tlsConfig != nil {
		cfg.TLS, cfg.AllowFallbackToPlaintext = tlsConfig, fallback
		if host, _, err := net.SplitHostPort(addr); err == nil && tlsConfig.ServerName == "" {
			tlsConfig.ServerName = host
		}
	}
	return newMySQL(cfg, kind, secrets), nil
}

func mysqlAddress(u rawURL, example string) (network, addr string, err error) {
	if strings.Contains(u.hosts, ",") {
		return "", "", fmt.Errorf("dsn: MySQL's driver connects to one host: write %s", example)
	}
	socket := u.params.Get("socket")
	if isSocket(u.hosts) {
		if socket, err = url.PathUnescape(u.hosts); err != nil {
			return "", "", fmt.Errorf("dsn: the host is no percent-encoded path of a socket: write %s?socket=/path", example)
		}
	}
	if socket != "" {
		if strings.ContainsAny(socket, "()") {
			return "", "", fmt.Errorf("dsn: the path of the socket has a parenthesis in it, which MySQL's driver cannot take")
		}
		return "unix", socket, hasNUL(socket)
	}
	if err := checkHost(u.hosts, example); err != nil {
		return "", "", err
	}
	host, port, err := splitHostPort(u.hosts)
	if err != nil {
		return "", "", err
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if port == "" {
		port = "3306"
	}
	return "tcp", net.JoinHostPort(host, port), nil
}

// driverNet is what may stand between the '@' and the database in go-sql-driver's
// own form.
var driverNet = regexp.MustCompile(`^(?:(tcp|tcp4|tcp6|unix)(?:\(([^()]*)\))?)?$`)

// cutDriverForm cuts go-sql-driver's own form as the driver does: at the last
// '/' and at the last '@' before it, so that a password may have both in it.
func cutDriverForm(s string) (userinfo, network, database string, ok bool) {
	slash := strings.LastIndexByte(s, '/')
	if slash < 0 {
		return "", "", "", false
	}
	left := s[:slash]
	network = left
	if at := strings.LastIndexByte(left, '@'); at >= 0 {
		userinfo, network = left[:at], left[at+1:]
	} else if !strings.Contains(left, "(") {
		return "", "", "", false // a path
	}
	return userinfo, network, s[slash+1:], driverNet.MatchString(network)
}

func isDriverForm(s string) bool {
	_, _, _, ok := cutDriverForm(s)
	if ok {
		return true
	}
	// A socket, or a parameter, with slashes in it.
	return strings.Contains(s, "@unix(") || strings.Contains(s, "@tcp(")
}

func parseDriverForm(s string) (*DSN, error) {
	info, network, tail, ok := cutDriverForm(s)
	if !ok {
		return nil, fmt.Errorf("dsn: MySQL's form is malformed: write %s, with a / in the database or in a parameter percent-encoded (%%2F)", exDriver)
	}
	if strings.Contains(tail, "@") {
		return nil, fmt.Errorf("dsn: there is an @ behind the last /: percent-encode it (@ is %%40), and a / in the database or in a parameter (%%2F)")
	}
	database, query, _ := strings.Cut(tail, "?")
	if database == "" {
		return nil, fmt.Errorf("dsn: the database is missing: write %s", exDriver)
	}
	if m := driverNet.FindStringSubmatch(network); strings.HasPrefix(m[1], "tcp") {
		if err := checkHost(m[2], exDriver); err != nil {
			return nil, err
		}
	}
	_, password, _ := strings.Cut(info, ":")
	params, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("dsn: the parameters behind the ? are malformed: write ?name=value&name=value, with %% and ; percent-encoded (%%25, %%3B)")
	}
	secrets := append([]string{password}, secretParams(params)...)
	cfg, err := mysql.ParseDSN(s)
	if err != nil {
		return nil, driverError(err, NewScrubber(secrets...))
	}
	if err := hasNUL(cfg.User, cfg.Passwd, cfg.DBName); err != nil {
		return nil, err
	}
	return newMySQL(cfg, sqldb.MySQL, secrets), nil
}

func driverError(err error, scrub *Scrubber) error {
	return fmt.Errorf("dsn: MySQL's driver refuses it: %s", scrub.Text(strings.TrimPrefix(err.Error(), "invalid DSN: ")))
}

func newMySQL(cfg *mysql.Config, kind sqldb.Kind, secrets []string) *DSN {
	if cfg.Timeout == 0 {
		cfg.Timeout = connectTimeout
	}
	// The driver would write to stderr what its errors say as well.
	cfg.Logger = &mysql.NopLogger{}
	addr := cfg.Addr
	if cfg.Net == "unix" {
		addr = "unix(" + addr + ")"
	}
	return &DSN{
		kind:     kind,
		redacted: kind.String() + "://" + userinfo(cfg.User, cfg.Passwd != "") + addr + "/" + url.PathEscape(cfg.DBName),
		scrub:    newScrubber([]string{cfg.User, cfg.DBName, cfg.Addr}, append(secrets, cfg.Passwd)),
		answer:   cfg.Timeout,
		hosts:    addr,
		my:       cfg,
	}
}
