package cli

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Visible returns text as it can be shown to people: a character that has no shape of
// its own is written as Go writes it in a string (\x1b, \n, \u202e). Labels and errors
// are other people's texts, and a terminal obeys such characters: they move its cursor,
// change its title, or show a text backwards.
func Visible(text string) string { return escape(text, "", goEscape) }

// lines is Visible for a text that may have several lines.
func lines(text string) string { return escape(text, "\n\t", goEscape) }

// jsonVisible is Visible for encoded JSON, which means the same afterwards: what
// encoding/json leaves as it is stands inside of strings.
func jsonVisible(text string) string {
	return escape(text, "\n", func(r rune, _ string) string {
		if r > 0xffff {
			return string(r)
		}
		return fmt.Sprintf("\\u%04x", r)
	})
}

func goEscape(r rune, bytes string) string {
	switch {
	case r == '\n':
		return `\n`
	case r == '\t':
		return `\t`
	case r == '\r':
		return `\r`
	case r == utf8.RuneError && len(bytes) == 1, r < ' ', r == 0x7f:
		return fmt.Sprintf("\\x%02x", bytes[0])
	case r > 0xffff:
		return fmt.Sprintf("\\U%08x", r)
	}
	return fmt.Sprintf("\\u%04x", r)
}

// escape replaces what is not graphic and not in keep.
func escape(text, keep string, as func(r rune, bytes string) string) string {
	odd := func(r rune) bool {
		return r == utf8.RuneError || !unicode.IsGraphic(r) && !strings.ContainsRune(keep, r)
	}
	if strings.IndexFunc(text, odd) < 0 {
		return text
	}
	var b strings.Builder
	for len(text) > 0 {
		r, n := utf8.DecodeRuneInString(text)
		if odd(r) && (r != utf8.RuneError || n == 1) {
			b.WriteString(as(r, text[:n]))
		} else {
			b.WriteString(text[:n])
		}
		text = text[n:]
	}
	return b.String()
}
