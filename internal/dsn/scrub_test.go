package dsn

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

func TestScrub(t *testing.T) {
	for _, tt := range []struct{ secret, text, want string }{
		{"hunter2", "no password here", "no password here"},
		{"hunter2", "hunter2", "xxxxx"},
		{"hunter2", "u:hunter2@h and hunter2hunter2", "u:xxxxx@h and xxxxxxxxxx"},
		{"p@ss/word", `parse "x://u:p%40ss%2Fword@h"`, `parse "x://u:xxxxx@h"`},
		{"p@ss/word", "p%40ss%2fword, p@ss%2Fword, %70@ss/word", "xxxxx, xxxxx, xxxxx"},
		{"p%40ss", "u:p@ss@h u:p%40ss@h", "u:xxxxx@h u:xxxxx@h"},
		{"two words", "two+words two%20words two words", "xxxxx xxxxx xxxxx"},
		{`quo"te\d`, `value "quo\"te\\d"`, `value "xxxxx"`},
		{"bell\a", `"bell\a"`, `"xxxxx"`},
		{"pw", "pw spwan u:pw@h npw", "xxxxx spwan u:xxxxx@h npw"},
		{"", "nothing", "nothing"},
		{"postgres", "postgres://postgres:postgres@h password=postgres", "postgres://postgres:xxxxx@h password=xxxxx"},
	} {
		if got := NewScrubber(tt.secret).Text(tt.text); got != tt.want {
			t.Errorf("%q in %q:\n got %q\nwant %q", tt.secret, tt.text, got, tt.want)
		}
	}
	var none *Scrubber
	if none.Text("x") != "x" || none.Error(nil) != nil {
		t.Error("a nil Scrubber changes something")
	}
}

func TestScrubErrorWraps(t *testing.T) {
	inner := &net.OpError{Op: "dial", Net: "tcp", Err: &url.Error{Op: "parse", URL: "x://u:hunter%32@h", Err: errors.New("hunter2")}}
	err := NewScrubber("hunter2").Error(fmt.Errorf("open: %w", inner))
	if strings.Contains(err.Error(), "hunter") {
		t.Errorf("shows: %v", err)
	}
	var op *net.OpError
	if !errors.As(err, &op) || op.Op != "dial" {
		t.Error("the error is not wrapped")
	}
}

func TestScrubArgs(t *testing.T) {
	noEnvironment(t)
	for _, arg := range []string{
		"postgres://u:hunter2@h/d",
		"postgres://u:hunt/hunter2@h/d",
		"postgres://u:hunter2",
		"--dns=postgres://u:hunter2@h/d",
		"--dns=postgres://u:hunter2",
		"--postgres://u:hunter2/d",
		"u:hunter2@tcp(h)/d",
		"u:hunter2@somewhere",
		"host=h password=hunter2",
		"host=h password='hunter2",
		"sqlite:x.db?_pragma=key('hunter2')",
		`postgres://u:"hunter2"@h/d`,
		"x://u:hunter2\n@h",
	} {
		if !HoldsPassword(arg) {
			t.Errorf("%q: no password was seen", arg)
		}
		s := ScrubArgs("up", arg)
		for _, text := range []string{"unknown command " + strconv.Quote(arg), "got " + arg, url.QueryEscape(arg)} {
			if got := s.Text(text); strings.Contains(got, "hunter2") {
				t.Errorf("%q: %q", arg, got)
			}
		}
	}
	for _, arg := range []string{"up", "--to=3", "12:30", "http://example.com:80/x", "sqlite:app.db"} {
		if HoldsPassword(arg) {
			t.Errorf("%q: a password was seen", arg)
		}
		if got := ScrubArgs(arg).Text("unknown " + arg); got != "unknown "+arg {
			t.Errorf("%q: %q", arg, got)
		}
	}
}
