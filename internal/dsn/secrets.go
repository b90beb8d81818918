package dsn

import (
	"net/url"
	"regexp"
	"strings"
)

var (
	secretName    = regexp.MustCompile(`(?i)pass|pwd|secret|token|^_?key$|hexkey|rekey`)
	secretPragma  = regexp.MustCompile(`(?is)^\s*(?:hex|re|hexre)?key\s*[(=]\s*(.*?)\)?\s*$`)
	keywordSecret = regexp.MustCompile(`(?i)pass\w*\s*=\s*('(?:[^'\\]|\\.)*'?|[^\s&]+)`)
)

// secretParams are the values of parameters that are passwords.
func secretParams(params url.Values) []string {
	var list []string
	for name, values := range params {
		for _, v := range values {
			if secretName.MatchString(name) {
				list = append(list, v)
			} else if m := secretPragma.FindStringSubmatch(v); name == "_pragma" && m != nil {
				list = append(list, m[1], strings.Trim(m[1], `'"`))
			}
		}
	}
	return list
}

// keywordSecrets are the passwords of a keyword/value string, well-formed or not.
func keywordSecrets(s string) []string {
	var list []string
	for _, m := range keywordSecret.FindAllStringSubmatch(s, -1) {
		v := strings.Trim(m[1], "'")
		list = append(list, m[1], v, regexp.MustCompile(`\\(.)`).ReplaceAllString(v, "$1"))
	}
	return list
}

// looseSecrets are what may be the password of a string that nobody understands:
// all that stands between the first ':' behind the scheme and any '@'.
func looseSecrets(s string) []string {
	s = strings.TrimLeft(s, "-") // taken for a flag
	list := keywordSecrets(s)
	if _, query, ok := strings.Cut(s, "?"); ok {
		params, _ := url.ParseQuery(query) // with an error, what could be read
		list = append(list, secretParams(params)...)
	}
	rest := s
	scheme := schemeForm.FindString(s)
	rest = rest[len(scheme):]
	if start := strings.IndexByte(rest, ':') + 1; start > 0 {
		for i := start; i < len(rest); i++ {
			if rest[i] == '@' {
				list = append(list, rest[start:i])
			}
		}
		if len(list) == 0 && scheme != "" && !strings.HasPrefix(strings.ToLower(scheme), "http") {
			list = append(list, rest[start:])
		}
	}
	return list
}
