package dsn

import (
	"net/url"
	"sort"
	"strconv"
	"strings"
)

// mask stands where a password was.
const mask = "xxxxx"

// Scrubber removes passwords from texts, in particular from those of drivers and
// of net/url. It finds a password as it is, percent-encoded in part or in whole,
// and quoted as %q quotes it.
//
// A password shorter than four bytes is found where no letter or digit adjoins,
// since otherwise nothing would be left of a text. One that is also the name of
// the user, the database or the host is found only in the places of a password
// (:password@, password=…): elsewhere it is that name.
//
// A nil Scrubber changes nothing.
type Scrubber struct {
	secrets []secret
}

type secret struct {
	text   string
	public bool
}

// NewScrubber makes a Scrubber of passwords; empty ones are left out.
func NewScrubber(secrets ...string) *Scrubber { return newScrubber(nil, secrets) }

func newScrubber(public, secrets []string) *Scrubber {
	s := &Scrubber{}
	seen := map[string]bool{"": true, mask: true}
	add := func(text string, isPublic bool) {
		if !seen[text] {
			seen[text] = true
			s.secrets = append(s.secrets, secret{text, isPublic})
		}
	}
	public = append([]string{"postgres", "mysql", "mariadb", "sqlite"}, public...)
	for _, text := range secrets {
		isPublic := false
		for _, p := range public {
			isPublic = isPublic || text == p
		}
		add(text, isPublic)
		quoted := strconv.Quote(text)
		add(quoted[1:len(quoted)-1], isPublic)
		quoted = strconv.QuoteToASCII(text)
		add(quoted[1:len(quoted)-1], isPublic)
		if plain, err := url.PathUnescape(text); err == nil {
			add(plain, isPublic)
		}
	}
	// The longest first: one may be a part of another.
	sort.SliceStable(s.secrets, func(i, j int) bool { return len(s.secrets[i].text) > len(s.secrets[j].text) })
	return s
}

// ScrubArgs makes a Scrubber for what was typed on a command line, of which an
// error may quote any part: arguments that look as if a password were in them
// (URLs with a user, user:password@, password=…) are removed as a whole, and the
// passwords in them wherever they occur.
func ScrubArgs(args ...string) *Scrubber {
	s := &Scrubber{}
	for _, a := range args {
		values := []string{a}
		if _, v, ok := strings.Cut(a, "="); ok && strings.HasPrefix(a, "-") {
			values = append(values, v) // --dsn=…
		}
		for _, v := range values {
			if d, err := Parse(v); err == nil {
				s = s.With(d.scrub)
				continue
			}
			if found := looseSecrets(v); len(found) > 0 {
				s = s.With(NewScrubber(append(found, v)...))
			}
		}
	}
	return s
}

// HoldsPassword reports whether a string looks as if a password were in it,
// whatever it is apart from that, a flag with a value too: a URL with user and
// password, user:password@, password=….
func HoldsPassword(s string) bool {
	_, value, _ := strings.Cut(s, "=")
	return len(looseSecrets(s)) > 0 || len(looseSecrets(value)) > 0
}

// With joins two scrubbers.
func (s *Scrubber) With(other *Scrubber) *Scrubber {
	j := &Scrubber{}
	for _, x := range []*Scrubber{s, other} {
		if x != nil {
			j.secrets = append(j.secrets, x.secrets...)
		}
	}
	sort.SliceStable(j.secrets, func(i, k int) bool { return len(j.secrets[i].text) > len(j.secrets[k].text) })
	return j
}

// Text returns text without the passwords.
func (s *Scrubber) Text(text string) string {
	if s == nil {
		return text
	}
	for _, x := range s.secrets {
		text = x.remove(text)
	}
	return text
}

// Error returns an error with the text of err less the passwords, which wraps
// err; nil for nil.
func (s *Scrubber) Error(err error) error {
	if err == nil {
		return nil
	}
	return &scrubbedError{text: s.Text(err.Error()), err: err}
}

type scrubbedError struct {
	text string
	err  error
}

func (e *scrubbedError) Error() string { return e.text }
func (e *scrubbedError) Unwrap() error { return e.err }
