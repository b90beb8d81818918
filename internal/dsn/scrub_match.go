package dsn

import "strings"

func (x secret) remove(text string) string {
	var b strings.Builder
	last := 0
	for i := 0; i < len(text); {
		n := matchAt(text[i:], x.text)
		if n == 0 || !x.placed(text, i, i+n) {
			i++
			continue
		}
		b.WriteString(text[last:i])
		b.WriteString(mask)
		i += n
		last = i
	}
	if last == 0 {
		return text
	}
	b.WriteString(text[last:])
	return b.String()
}

// placed reports whether what was found at text[i:j] is to be taken for the
// password.
func (x secret) placed(text string, i, j int) bool {
	if x.public {
		before := strings.ToLower(text[:i])
		return strings.HasSuffix(before, ":") && strings.HasPrefix(text[j:], "@") ||
			strings.HasSuffix(before, "password=") || strings.HasSuffix(before, "password='")
	}
	if len(x.text) < 4 {
		return (i == 0 || !alnum(text[i-1])) && (j == len(text) || !alnum(text[j]))
	}
	return true
}

func alnum(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c == '_' || c >= 0x80
}

// matchAt returns how many bytes at the beginning of text spell secret, each of
// whose bytes may be there as it is, percent-encoded, or escaped as %q does; 0 if
// they do not. A %25 may be three bytes of the secret or one, so all readings are
// followed at once.
func matchAt(text, secret string) int {
	ends, next := []int{0}, []int(nil)
	add := func(n int) {
		if len(next) == 0 || next[len(next)-1] != n {
			next = append(next, n)
		}
	}
	for i := 0; i < len(secret); i++ {
		next = next[:0]
		for _, n := range ends {
			if n < len(text) && (text[n] == secret[i] || text[n] == '+' && secret[i] == ' ') {
				add(n + 1)
			}
			if n+2 < len(text) && text[n] == '%' && unhex(text[n+1])<<4|unhex(text[n+2]) == int(secret[i]) {
				add(n + 3)
			}
			if size := unquote(text[n:], secret[i]); size > 0 {
				add(n + size)
			}
		}
		if len(next) == 0 {
			return 0
		}
		ends, next = next, ends
	}
	return ends[len(ends)-1]
}

// unquote returns the length of an escape of %q for c at the beginning of text, 0
// if there is none.
func unquote(text string, c byte) int {
	if len(text) < 2 || text[0] != '\\' {
		return 0
	}
	if len(text) >= 4 && text[1] == 'x' && unhex(text[2])<<4|unhex(text[3]) == int(c) {
		return 4
	}
	if i := strings.IndexByte(`abfnrtv\"'`, text[1]); i >= 0 && "\a\b\f\n\r\t\v\\\"'"[i] == c {
		return 2
	}
	return 0
}

func unhex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c - 'a' + 10)
	case 'A' <= c && c <= 'F':
		return int(c - 'A' + 10)
	}
	return -1 << 16
}
