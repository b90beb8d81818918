//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package guardian

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestReader: what fmt writes is read as it was, whatever is in the texts.
func TestReader(t *testing.T) {
	for _, text := range []string{"", "x", "a b", ` "a" \ b `, "a\nb\x00\xff", "jób:1 €", "1 2"} {
		l := reader{rest: fmt.Sprintf("%d %d %q %q", int64(-1<<63), 0, text, "end")}
		a, b, c, d := l.number(), l.number(), l.text(), l.text()
		if a != -1<<63 || b != 0 || c != text || d != "end" || l.err != nil || l.rest != "" {
			t.Errorf("%q: %d %d %q %q, %v, left %q", text, a, b, c, d, l.err, l.rest)
		}
	}
	for _, line := range []string{"", "x", "1", "1 ", "1 x", `1 "x`, `1 2 `, "9223372036854775808 \"\""} {
		l := reader{rest: line}
		if l.number(); l.err == nil {
			l.text()
		}
		if l.err == nil {
			t.Errorf("%q is understood", line)
		}
		first := l.err
		l.number()
		if l.err != first {
			t.Errorf("%q: the error has become %v", line, l.err)
		}
	}
}

// TestReadLines: lines come whole, however they are cut; what has no end at the end is
// none, for whoever wrote it was killed at it.
func TestReadLines(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = r.Close() }()
	want := []string{"start 1", "", strings.Repeat("x", 10000), "arm 1 2"}
	go func() {
		defer func() { _ = w.Close() }()
		all := strings.Join(want, "\n") + "\nsignal 1"
		for part := range slices.Chunk([]byte(all), 7) {
			if _, err := w.Write(part); err != nil {
				t.Error(err)
				return
			}
		}
	}()
	lines := make(chan string)
	go func() {
		defer close(lines)
		readLines(r, lines)
	}()
	var got []string
	for l := range lines {
		got = append(got, l)
	}
	if !slices.Equal(got, want) {
		t.Errorf("%.200q", got)
	}
}

func TestCut(t *testing.T) {
	for s, want := range map[string][2]string{"": {"", ""}, "a": {"a", ""}, "a ": {"a", ""}, " a": {"", "a"}, "a b c": {"a", "b c"}} {
		if a, b := cut(s, ' '); a != want[0] || b != want[1] {
			t.Errorf("%q: %q, %q", s, a, b)
		}
	}
}

// TestStartsNothingTooLate: a guardian that was stopped between the line and the start
// starts nothing, for the lock may be another's. The control is a command that is not
// there, within the time.
func TestStartsNothingTooLate(t *testing.T) {
	for in, want := range map[time.Duration]string{-time.Second: "kill\nfailed 0 not started", time.Hour: "failed 2 "} {
		r, w, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		g := &guardian{path: "/nonexistent", args: []string{"x"}, report: w, term: stopped(), kill: stopped()}
		at := EncodeDeadline(time.Now().Add(in))
		if g.told(fmt.Sprintf("start %d %d 0 %q %q %q", at, at, "name", "owner", "1"), nil) || g.pid != 0 {
			t.Errorf("%v: it has started something", in)
		}
		_ = w.Close()
		if said, err := io.ReadAll(r); err != nil || !strings.HasPrefix(string(said), want) {
			t.Errorf("%v: it says %q, %v", in, said, err)
		}
		_ = r.Close()
	}
}
