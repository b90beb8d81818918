package lock

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// MaxName is how long a name may be, in bytes.
const MaxName = 255

// CheckName says why name can't be the name of a lock: it is 1 to 255 bytes of
// valid UTF-8 without NUL. Names are compared byte by byte on every database.
func CheckName(name string) error {
	switch {
	case name == "":
		return fmt.Errorf("%w: the name is empty", ErrInvalid)
	case len(name) > MaxName:
		return fmt.Errorf("%w: the name %.20q... has %d bytes, more than %d: hash the long part", ErrInvalid, name, len(name), MaxName)
	case !utf8.ValidString(name):
		return fmt.Errorf("%w: the name %q is not valid UTF-8", ErrInvalid, name)
	case strings.IndexByte(name, 0) >= 0:
		return fmt.Errorf("%w: the name %q has a NUL byte", ErrInvalid, name)
	}
	return nil
}

// Name makes one name of parts, joined by colons: Name("order", "42") is
// "order:42". Different parts never give one name: a colon or a backslash inside a
// part is escaped by a backslash, and an empty part is written as \e.
func Name(parts ...string) string {
	var b strings.Builder
	for i, p := range parts {
		if i > 0 {
			b.WriteByte(':')
		}
		if p == "" {
			b.WriteString(`\e`)
			continue
		}
		for j := 0; j < len(p); j++ {
			if p[j] == ':' || p[j] == '\\' {
				b.WriteByte('\\')
			}
			b.WriteByte(p[j])
		}
	}
	return b.String()
}
