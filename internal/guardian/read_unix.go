//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package guardian

import (
	"os"
	"strconv"
)

// What follows is in packages bufio and strings, too; but whoever imports those is
// initialised after most of the program (see the package's doc).

// readLines reads until the end of the file, or an error, which means the same.
func readLines(f *os.File, lines chan<- string) {
	var line []byte
	for buf := make([]byte, 4096); ; {
		n, err := f.Read(buf)
		for _, c := range buf[:n] {
			if c == '\n' {
				lines <- string(line)
				line = line[:0]
			} else {
				line = append(line, c)
			}
		}
		if err != nil {
			return
		}
	}
}

// cut cuts s at the first sep.
func cut(s string, sep byte) (before, after string) {
	for i := range len(s) {
		if s[i] == sep {
			return s[:i], s[i+1:]
		}
	}
	return s, ""
}

// reader reads what stands behind the first word of a line, and keeps the first error.
type reader struct {
	rest string
	err  error
}

func (l *reader) number() int64 {
	word, rest := cut(l.rest, ' ')
	n, err := strconv.ParseInt(word, 10, 64)
	l.next(rest, err)
	return n
}

func (l *reader) text() string {
	quoted, err := strconv.QuotedPrefix(l.rest)
	_, rest := cut(l.rest[len(quoted):], ' ')
	text, _ := strconv.Unquote(quoted)
	l.next(rest, err)
	return text
}

func (l *reader) next(rest string, err error) {
	l.rest = rest
	if l.err == nil {
		l.err = err
	}
}
