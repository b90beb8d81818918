package lock_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/sqlnative/locks/lock"
)

func TestName(t *testing.T) {
	for want, parts := range map[string][]string{
		"":           nil,
		"job":        {"job"},
		"order:42":   {"order", "42"},
		`a\:b`:       {"a:b"},
		`a:b`:        {"a", "b"},
		`a\\:b`:      {`a\`, "b"},
		`\e`:         {""},
		`\e:\e`:      {"", ""},
		`a:\e`:       {"a", ""},
		`\\e`:        {`\e`},
		"jób:\u00a0": {"jób", "\u00a0"},
	} {
		if got := lock.Name(parts...); got != want {
			t.Errorf("Name(%q) = %q, not %q", parts, got, want)
		}
	}
}

// parse is the inverse of Name, written as the doc comment says.
func parse(name string) []string {
	if name == "" {
		return nil
	}
	parts := []string{""}
	for i := 0; i < len(name); i++ {
		last := len(parts) - 1
		switch name[i] {
		case ':':
			parts = append(parts, "")
		case '\\':
			if i++; name[i] != 'e' {
				parts[last] += string(name[i])
			}
		default:
			parts[last] += name[i : i+1]
		}
	}
	return parts
}

// What has an inverse gives no name twice.
func FuzzName(f *testing.F) {
	for _, seed := range []string{"", "a", "a,b", "a:b", `a\,:b`, ",", ",,", `\e`, `\,e`, `:\`, "é,\x00,\xff"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, joined string) {
		for _, parts := range [][]string{strings.Split(joined, ","), strings.SplitAfter(joined, ":"), {joined}} {
			if len(parts) == 0 {
				continue
			}
			name := lock.Name(parts...)
			if got := parse(name); !slices.Equal(got, parts) {
				t.Errorf("Name(%q) = %q, which is %q too", parts, name, got)
			}
		}
	})
}

func TestCheckName(t *testing.T) {
	for what, name := range map[string]string{
		"one byte": "x", "255 bytes": strings.Repeat("x", 255), "255 bytes of runes": strings.Repeat("ö", 127) + "x",
		"a space": " ", "a newline": "\n", "four bytes a rune": "🔒", "the replacement character": "\ufffd",
	} {
		if err := lock.CheckName(name); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for what, c := range map[string]struct{ name, text string }{
		"empty": {"", "empty"}, "256 bytes": {strings.Repeat("x", 256), "256 bytes"}, "128 runes": {strings.Repeat("ö", 128), "256 bytes"},
		"NUL": {"a\x00b", "NUL"}, "not UTF-8": {"a\xff", "UTF-8"}, "a surrogate": {"\xed\xa0\x80", "UTF-8"},
	} {
		err := lock.CheckName(c.name)
		if !errors.Is(err, lock.ErrInvalid) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", what, err)
		}
		if len(err.Error()) > 200 {
			t.Errorf("%s: the error has %d bytes", what, len(err.Error()))
		}
	}
}
