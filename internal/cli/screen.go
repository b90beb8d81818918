package cli

import (
	"fmt"
	"os"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// Screen is what can be shown where results go. Its zero value is a pipe or a file:
// nothing but text, as wide as it needs to be.
type Screen struct {
	// Terminal: people look at it.
	Terminal bool
	// Cursor: it can be drawn again in place.
	Cursor bool
	// Colour: it shows colours, and they are wanted.
	Colour bool
	// Width and Height are in characters; 0 is not known, and no bound.
	Width, Height int
}

// Screen asks what Stdout is just now: a terminal may have been resized. A terminal
// that calls itself dumb can do nothing but text. NO_COLOR, set to anything but
// nothing, turns colours off (https://no-color.org).
func (o *Output) Screen() Screen {
	f, ok := o.Stdout.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return Screen{}
	}
	s := Screen{Terminal: true, Cursor: os.Getenv("TERM") != "dumb"}
	s.Colour = s.Cursor && os.Getenv("NO_COLOR") == ""
	if w, h, err := term.GetSize(int(f.Fd())); err == nil {
		s.Width, s.Height = w, h
	}
	return s
}

// Frame makes of a text what draws it in place of the last one, in one piece: what is
// written in pieces, or after everything has been cleared, flickers. What does not fit
// is left out, so that the terminal neither scrolls nor breaks lines, and the next frame
// begins where this one does.
func (s Screen) Frame(frame string) string {
	all := strings.Split(strings.TrimSuffix(frame, "\n"), "\n")
	if room := s.Height - 1; s.Height > 1 && len(all) > room {
		left := len(all) - room + 1
		all = append(all[:room-1], fmt.Sprintf("... and %d more", left))
	}
	var b strings.Builder
	b.WriteString("\x1b[H") // home
	for _, line := range all {
		if s.Width > 0 {
			line = text.Trim(line, s.Width)
		}
		b.WriteString(line + "\x1b[K\n") // and clear the rest of the line
	}
	b.WriteString("\x1b[J") // and what is below
	return b.String()
}
