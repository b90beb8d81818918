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
	if want := "leader 1 leads\nleader 2 leads\nleader 3 leads\nnobody is left\n"; out.String() != want {
		t.Errorf("it prints %q, want %q", out.String(), want)
	}
}
