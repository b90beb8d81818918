package cli

import (
	"os"
	"strings"
	"testing"

	"github.com/jedib0t/go-pretty/v6/text"
)

// evil is a text that does things to a terminal: it clears it, changes its title, rings,
// uses the one-byte forms of that, shows what follows backwards, and is no UTF-8.
const evil = "a\x1b[2Jb\x1b]0;title\x07c\u009b31md\u202ee\x7f\xff\r\n\tf"

func TestVisible(t *testing.T) {
	want := `a\x1b[2Jb\x1b]0;title\x07c\u009b31md\u202ee\x7f\xff\r\n\tf`
	if got := Visible(evil); got != want {
		t.Errorf("%q", got)
	}
	for _, text := range []string{"", "plain", "größer", "東京", "🚀", "a b", "1\u00a0000", "\ufffd"} {
		if got := Visible(text); got != text {
			t.Errorf("%q has become %q", text, got)
		}
	}
	if got := Visible("\U000e0041"); got != `\U000e0041` {
		t.Errorf("a tag character: %q", got)
	}
	if got := lines("a\n\tb\x1b"); got != "a\n\tb\\x1b" {
		t.Errorf("a message: %q", got)
	}
}

// TestEvilOutput: whatever is in them, results and messages have no control character.
func TestEvilOutput(t *testing.T) {
	var stdout, stderr strings.Builder
	o := &Output{Program: "p", Stdout: &stdout, Stderr: &stderr}
	tab := o.Table(Columns("A", "B")...)
	tab.Row(Cell{Text: evil}, Cell{Text: "x", Style: Red})
	for _, json := range []bool{false, true} {
		o.JSON = json
		if err := o.Result(map[string]string{"label": evil}, tab.Write); err != nil {
			t.Fatal(err)
		}
	}
	if err := Linef(&stdout, "taken from %s", evil); err != nil {
		t.Fatal(err)
	}
	o.Say("held by %s", evil)
	for _, r := range stdout.String() + stderr.String() {
		if r < ' ' && r != '\n' && r != '\t' || r >= 0x7f && r < 0xa0 || r == 0x202e {
			t.Errorf("%U is in %q", r, stdout.String()+stderr.String())
		}
	}
	if n := strings.Count(stdout.String(), "\n"); n != 2+3+1 {
		t.Errorf("%d lines: %s", n, stdout.String())
	}
	// A reader of the JSON gets what was there.
	if !strings.Contains(stdout.String(), `\u009b31md\u202ee\u007f`) {
		t.Errorf("%s", stdout.String())
	}
}

// columns has a column of each sort.
func columns(s Screen) *Table {
	t := &Table{screen: s, cols: []Column{{Title: "NAME"}, {Title: "TOKEN", Spare: 1}, {Title: "BAR", Spare: 2}, {Title: "TEXT", Flow: Cut}}}
	t.Row(Cell{"job", Bold}, Cell{"12345678", Faint}, Cell{"=====", Green}, Cell{"the quick brown fox jumps", Plain})
	t.Row(Cell{"東京", Bold}, Cell{"1", Plain}, Cell{}, Cell{Text: "é"})
	return t
}

func written(t *testing.T, tab *Table) string {
	t.Helper()
	var b strings.Builder
	if err := tab.Write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestTable: columns are aligned, also behind wide characters and colours. A pipe gets
// all there is; a narrow terminal gets what it has room for.
func TestTable(t *testing.T) {
	whole := "NAME  TOKEN     BAR    TEXT\n" +
		"job   12345678  =====  the quick brown fox jumps\n" +
		"東京  1                é\n"
	for _, tt := range []struct {
		width int
		want  string
	}{
		{0, whole},
		{48, whole},
		{47, strings.Replace(whole, "fox jumps", "fox jum…", 1)},
		{39, "NAME  TOKEN     BAR    TEXT\njob   12345678  =====  the quick brown…\n東京  1                é\n"},
		{38, "NAME  TOKEN     TEXT\njob   12345678  the quick brown fox j…\n東京  1         é\n"},
		{31, "NAME  TEXT\njob   the quick brown fox jumps\n東京  é\n"},
		{5, "NAME  TEXT\njob   the quick brown…\n東京  é\n"}, // the terminal breaks it
	} {
		if got := written(t, columns(Screen{Terminal: true, Width: tt.width})); got != tt.want {
			t.Errorf("%d wide:\n%s\nwant\n%s", tt.width, got, tt.want)
		}
		coloured := written(t, columns(Screen{Terminal: true, Colour: true, Width: tt.width}))
		if got := text.StripEscape(coloured); got != tt.want {
			t.Errorf("%d wide, coloured:\n%s\nwant\n%s", tt.width, got, tt.want)
		}
		if !strings.Contains(coloured, "\x1b[1mNAME\x1b[0m") || !strings.Contains(coloured, "\x1b[1m東京\x1b[0m") {
			t.Errorf("%q", coloured)
		}
	}
	if got := written(t, &Table{cols: make([]Column, 2)}); got != "" {
		t.Errorf("a table of nothing: %q", got)
	}
}

// TestWrap: a text that may flow stays in its column.
func TestWrap(t *testing.T) {
	tab := &Table{screen: Screen{Terminal: true, Width: 30}, cols: []Column{{}, {Flow: Wrap}}}
	tab.Row(Cell{"warn", Yellow}, Cell{Text: "set each of these to 1 and restart"})
	tab.Row(Cell{Text: "ok"}, Cell{Text: "fine"})
	if got, want := written(t, tab), "warn  set each of these to 1\n      and restart\nok    fine\n"; got != want {
		t.Errorf("%q", got)
	}
}

// TestFrame: a frame begins at home, clears what it does not cover, and never has the
// terminal scroll or break a line.
func TestFrame(t *testing.T) {
	s := Screen{Width: 5, Height: 4}
	if got, want := s.Frame("ab\n\x1b[1m1234567\x1b[0m\n"), "\x1b[Hab\x1b[K\n\x1b[1m12345\x1b[0m\x1b[K\n\x1b[J"; got != want {
		t.Errorf("%q", got)
	}
	if got, want := (Screen{Width: 20, Height: 4}).Frame("1\n2\n3\n4\n"), "\x1b[H1\x1b[K\n2\x1b[K\n... and 2 more\x1b[K\n\x1b[J"; got != want {
		t.Errorf("%q", got)
	}
	if got, want := (Screen{}).Frame("1\n2\n"), "\x1b[H1\x1b[K\n2\x1b[K\n\x1b[J"; got != want {
		t.Errorf("size unknown: %q", got)
	}
}

// TestScreen: a pipe, a file and /dev/null are no terminals.
func TestScreen(t *testing.T) {
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _, _ = r.Close(), w.Close() }()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	file, err := os.Create(t.TempDir() + "/out")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	for _, f := range []*os.File{w, null, file} {
		if s := (&Output{Stdout: f}).Screen(); s != (Screen{}) {
			t.Errorf("%s: %+v", f.Name(), s)
		}
	}
	if s := (&Output{Stdout: &strings.Builder{}}).Screen(); s != (Screen{}) {
		t.Errorf("%+v", s)
	}
}
