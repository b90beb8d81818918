package dsn

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
)

// rawURL is a URL cut into its parts. It is cut here and not by net/url, since
// the errors of net/url quote what they could not parse, which may be half of a
// password; and since PostgreSQL's lists of hosts are no URLs to it.
type rawURL struct {
	user, password string // decoded
	rawPassword    string
	hosts          string // as written: host:port, or several with commas
	path           string // decoded, without the slash in front
	params         url.Values
	rawQuery       string
}

// splitURL cuts s, whose scheme is known, into its parts.
//
// It insists on one '@' at most, in front of the host, and on no '#'. Anything
// else is what a password looks like that has not been percent-encoded, and then
// nobody can tell where it ends.
func splitURL(s, example string) (rawURL, error) {
	var u rawURL
	_, rest, found := strings.Cut(s, "://")
	if !found || !strings.HasPrefix(s[strings.IndexByte(s, ':'):], "://") {
		return u, fmt.Errorf("dsn: // is missing behind the scheme: write %s", example)
	}
	authority, tail := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, tail = rest[:i], rest[i:]
	}
	switch {
	case strings.Contains(rest, "#"):
		return u, errors.New("dsn: there is a # in it: percent-encode it (# is %23), in a password too")
	case strings.Contains(tail, "@") && !strings.Contains(authority, "@"):
		return u, errors.New("dsn: there is an @ behind the first / or ?: percent-encode it (@ is %40), and a / or ? in a password, too (%2F, %3F)")
	case strings.Count(rest, "@") > 1:
		return u, errors.New("dsn: there is more than one @ in it: percent-encode those of the password and of the parameters (@ is %40)")
	case strings.Contains(authority, "("):
		return u, fmt.Errorf("dsn: this mixes two forms: write %s or, without a scheme, %s", example, exDriver)
	}
	if info, hosts, ok := strings.Cut(authority, "@"); ok {
		u.hosts = hosts
		user, password, _ := strings.Cut(info, ":")
		var err1, err2 error
		u.user, err1 = url.PathUnescape(user)
		u.password, err2 = url.PathUnescape(password)
		u.rawPassword = password
		if err1 != nil || err2 != nil {
			return u, errors.New("dsn: a % in user or password is not followed by two hexadecimal digits: percent-encode it (% is %25)")
		}
	} else {
		u.hosts = authority
	}
	path, query, _ := strings.Cut(tail, "?")
	var err error
	if u.path, err = url.PathUnescape(strings.TrimPrefix(path, "/")); err != nil {
		return u, errors.New("dsn: a % in the database name is not followed by two hexadecimal digits: percent-encode it (% is %25)")
	}
	u.rawQuery = query
	if u.params, err = url.ParseQuery(query); err != nil {
		return u, errors.New("dsn: the parameters behind the ? are malformed: write ?name=value&name=value, with % and ; percent-encoded (%25, %3B)")
	}
	return u, hasNUL(u.user, u.password, u.path)
}

// isSocket reports whether a host is the percent-encoded path of a unix socket.
func isSocket(host string) bool { return strings.HasPrefix(strings.ToUpper(host), "%2F") }

// checkHost reports what is wrong with one host:port, without showing it: a URL
// whose host was forgotten has the password in its place.
func checkHost(hostport, example string) error {
	host, port, err := splitHostPort(hostport)
	if err != nil {
		return err
	}
	for i := 0; i < len(host); i++ {
		if c := host[i]; !alnum(c) && !strings.ContainsRune(".-:%", rune(c)) || c == '%' && !strings.HasPrefix(hostport, "[") && !isSocket(hostport) {
			return fmt.Errorf("dsn: the host has a character that no host name has (an @ in the password is %%40): write %s", example)
		}
	}
	if port == "" {
		return nil
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("dsn: the port is no number from 1 to 65535: write %s", example)
	}
	return nil
}

// splitHostPort is [net.SplitHostPort] with the port left out at will.
func splitHostPort(s string) (host, port string, err error) {
	if strings.HasPrefix(s, "[") {
		end := strings.IndexByte(s, ']')
		rest := s[end+1:]
		if end < 0 || rest != "" && rest[0] != ':' || net.ParseIP(cutZone(s[1:max(end, 1)])) == nil {
			return "", "", errors.New("dsn: what stands in brackets is no IPv6 address: write [::1]:5432")
		}
		return s[1:end], strings.TrimPrefix(rest, ":"), nil
	}
	host, port, _ = strings.Cut(s, ":")
	if strings.Contains(port, ":") {
		return "", "", errors.New("dsn: there is more than one : behind the host: put an IPv6 address in brackets, as in [::1]:5432")
	}
	return host, port, nil
}

func cutZone(s string) string {
	ip, _, _ := strings.Cut(s, "%")
	return ip
}

// userinfo writes user and password for Redacted.
func userinfo(user string, password bool) string {
	if user == "" && !password {
		return ""
	}
	s := url.User(user).String()
	if password {
		s += ":" + mask
	}
	return s + "@"
}
