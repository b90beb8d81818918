package main

import (
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestRun(t *testing.T) {
	var out strings.Builder
	if err := run(t.Context(), &out); err != nil {
		t.Fatal(err)
	}
	const skipped = "skipped: another machine runs it, or has run it\n"
	if want := "ran: ok\n" + skipped + skipped + "history: nightly-report ok\n"; out.String() != want {
		t.Errorf("it prints %q, want %q", out.String(), want)
	}
}
