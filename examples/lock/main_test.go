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
	want := "second: invoice:42 is held by \"first\", and need not wait for it\ninvoice 42 was sent by first\n"
	if out.String() != want {
		t.Errorf("it prints %q, want %q", out.String(), want)
	}
}
