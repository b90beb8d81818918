package dsn

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"
)

// sentinel is in the middle of every password of the fuzz test. It has no
// character that any form gives a meaning to, and occurs nowhere else.
const sentinel = "5eNt1NeL"

// FuzzParse puts a password, of which the fuzzer makes the rest, into every form
// of DSN, well-formed or not, and looks for it in all that comes out.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"", "x", "@", "/", ":", "?", "#", "%", "%40", "'", "\\", "(", ")", "@h/", "@tcp(x)/y", "&", "1/", "1?", "12@", "[", "]", "://", "\x00", "\n", "é", "=", " "} {
		f.Add(s, "", "h:5432/d")
		f.Add("", s, "h/d?sslmode=disable")
		f.Add(s, s, "h:1/d?timeout="+s)
	}
	f.Fuzz(func(t *testing.T, before, after, tail string) {
		if strings.Contains(before+after+tail, sentinel) {
			t.Skip()
		}
		noEnvironment(t)
		pw := before + sentinel + after
		quoted := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(pw)
		encoded := url.PathEscape(pw)
		for _, s := range []string{
			"postgres://u:" + encoded + "@" + tail,
			"postgres://u:" + pw + "@" + tail,
			"postgresql://h/d?user=u&password=" + url.QueryEscape(pw) + "&" + tail,
			"host=h user=u dbname=d password='" + quoted + "' " + tail,
			"mysql://u:" + encoded + "@" + tail,
			"mysql://u:" + pw + "@" + tail,
			"mariadb://:" + pw + "@" + tail,
			"u:" + pw + "@tcp(h:3306)/d",
			"u:" + encoded + "@" + tail,
			"u:" + pw + "@" + tail,
			"sqlite:a.db?_pragma=key('" + url.QueryEscape(pw) + "')&" + tail,
			"oracle://u:" + pw + "@" + tail,
		} {
			check(t, s)
		}
	})
}

func check(t *testing.T, s string) {
	t.Helper()
	show := func(what, text string) {
		if strings.Contains(text, sentinel) {
			t.Errorf("%s of %q shows the password: %q", what, s, text)
		}
	}
	show("Redact", Redact(s))
	show("ScrubArgs", ScrubArgs("--dsn="+s).Text(fmt.Sprintf("invalid argument %q for --to, got %s", s, s)))
	d, err := Parse(s)
	if err != nil {
		show("the error", err.Error())
		return
	}
	show("Redacted", d.Redacted())
	show("%+v", fmt.Sprintf("%+v", d))
	show("a driver's text", d.Scrubber().Text(fmt.Sprintf("cannot parse %q: u:%s@h", s, s)))
	// No connection is tried: the context has ended.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if d.File() != "" {
		return // it would make a file
	}
	if _, _, err := d.Open(ctx); err != nil {
		show("the error of Open", err.Error())
	}
}
