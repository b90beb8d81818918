package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/sqlnative/locks/internal/dsn"
)

func TestCodeOf(t *testing.T) {
	for _, tt := range []struct {
		err  error
		want int
	}{
		{nil, Done},
		{errors.New("x"), Failed},
		{Usagef("x %d", 1), Usage},
		{fmt.Errorf("wrapped: %w", Exit(LockTimeout, errors.New("x"))), LockTimeout},
		{Exit(Pending, nil), Pending},
	} {
		if got := CodeOf(tt.err); got != tt.want {
			t.Errorf("%v: %d, want %d", tt.err, got, tt.want)
		}
	}
}

func TestOutput(t *testing.T) {
	var stdout, stderr strings.Builder
	o := &Output{Program: "p", Stdout: &stdout, Stderr: &stderr}
	o.Hide(dsn.NewScrubber("hunter2"))
	o.Hide(dsn.NewScrubber("swordfish"))

	if code := o.Finish(errors.New("login as hunter2 or sword%66ish failed")); code != Failed {
		t.Errorf("code %d", code)
	}
	if code := o.Finish(Exit(Pending, nil)); code != Pending {
		t.Errorf("code %d", code)
	}
	if got := stderr.String(); got != "p: login as xxxxx or xxxxx failed\n" {
		t.Errorf("stderr %q", got)
	}

	text := func(w io.Writer) error {
		tab := o.Table(Columns("A", "LONG")...)
		tab.Row(Cell{"wide", Red}, Cell{Text: "x\x1b[2J\ny"})
		return tab.Write(w)
	}
	if err := o.Result(nil, text); err != nil {
		t.Fatal(err)
	}
	if got := stdout.String(); got != "A     LONG\nwide  x\\x1b[2J\\ny\n" {
		t.Errorf("stdout %q", got)
	}
	stdout.Reset()
	o.JSON = true
	if err := o.Result(map[string]any{"sql": "a < b"}, text); err != nil {
		t.Fatal(err)
	}
	if got := stdout.String(); got != "{\n  \"sql\": \"a < b\"\n}\n" {
		t.Errorf("stdout %q", got)
	}

	o.Stdout = failing{}
	if err := o.Result(1, nil); err == nil || !strings.Contains(err.Error(), "disk full") {
		t.Errorf("a failed write: %v", err)
	}
}

type failing struct{}

func (failing) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestInterrupts(t *testing.T) {
	signals := make(chan os.Signal)
	released := make(chan struct{})
	said := make(chan string, 2)
	i := watch(t.Context(), signals, func() {
		select {
		case <-released:
		default:
			close(released)
		}
	}, func() { said <- "first" }, func() { said <- "second" })

	if i.Stopped() || i.Soft().Err() != nil || i.Hard().Err() != nil {
		t.Fatal("stopped before any signal")
	}
	signals <- os.Interrupt
	<-i.Soft().Done()
	if got := <-said; got != "first" || !i.Stopped() || i.Aborted() || i.Hard().Err() != nil {
		t.Errorf("after the first: %s %v %v", got, i.Stopped(), i.Hard().Err())
	}
	signals <- os.Interrupt
	<-i.Hard().Done()
	if got := <-said; got != "second" || !i.Stopped() || !i.Aborted() {
		t.Errorf("after the second: %s %v", got, context.Cause(i.Hard()))
	}
	<-released // a third one is the system's
	i.Close()
	i.Close()
}

func TestInterruptsClosed(t *testing.T) {
	i := CatchInterrupts(t.Context(), nil, nil)
	i.Close()
	if i.Soft().Err() == nil || i.Hard().Err() == nil || i.Stopped() || i.Aborted() {
		t.Errorf("after Close: %v", context.Cause(i.Soft()))
	}
}

// A line of JSON means what it was made of, and a terminal obeys nothing in it.
func TestJSONLine(t *testing.T) {
	const label = "a\x1b[2J\u0085\u202eb<c>"
	line, err := JSONLine(map[string]string{"label": label})
	var back map[string]string
	if err != nil || json.Unmarshal([]byte(line), &back) != nil || back["label"] != label {
		t.Errorf("%q, %v", line, err)
	}
	if strings.ContainsAny(line, "\x1b\u0085\u202e\n") {
		t.Errorf("a terminal obeys %q", line)
	}
}
