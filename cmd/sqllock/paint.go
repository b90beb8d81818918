package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"
)

// painter writes tables for people: aligned columns and, on a terminal, colours.
type painter struct {
	colour bool
	rows   [][]cell
}

// cell is a text and its colour.
type cell struct {
	text   string
	colour int // SGR; 0: none
}

// The colours, as SGR (ECMA-48) numbers them: those that every terminal has.
const (
	red    = 31
	green  = 32
	yellow = 33
	cyan   = 36
	dim    = 2
	bold   = 1
)

// newPainter decides on colours: for a terminal, unless NO_COLOR is set to anything
// (no-color.org), or the terminal can do nothing.
func newPainter(w io.Writer) *painter {
	return &painter{colour: isTerminal(w) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"}
}

// isTerminal reports whether people look at w.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0 && f.Name() != os.DevNull
}

func plain(texts ...string) []cell {
	row := make([]cell, len(texts))
	for i, t := range texts {
		row[i].text = t
	}
	return row
}

func (p *painter) header(texts ...string) {
	row := plain(texts...)
	for i := range row {
		row[i].colour = bold
	}
	p.rows = append(p.rows, row)
}

// row adds a row. A control character, which could move the cursor of a terminal,
// becomes a space.
func (p *painter) row(cells ...cell) {
	for i, c := range cells {
		cells[i].text = strings.Map(func(r rune) rune {
			if r < ' ' || r >= 0x7f && r < 0xa0 || r == utf8.RuneError {
				return ' '
			}
			return r
		}, c.text)
	}
	p.rows = append(p.rows, cells)
}

// flush writes the rows.
func (p *painter) flush(w io.Writer) error {
	var widths []int
	for _, row := range p.rows {
		for i, c := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(c.text))
		}
	}
	var b strings.Builder
	for _, row := range p.rows {
		var line strings.Builder
		for i, c := range row {
			text := c.text
			if p.colour && c.colour != 0 {
				text = fmt.Sprintf("\x1b[%dm%s\x1b[0m", c.colour, text)
			}
			line.WriteString(text)
			if i < len(row)-1 {
				line.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.text)+2))
			}
		}
		b.WriteString(strings.TrimRight(line.String(), " ") + "\n")
	}
	p.rows = nil
	_, err := io.WriteString(w, b.String())
	return err
}

// bar is a bar of at most width characters, in eighths of one.
func bar(part, whole time.Duration, width int) string {
	if part <= 0 || whole <= 0 {
		return ""
	}
	eighths := max(1, int(float64(part)/float64(whole)*float64(width*8)))
	text := strings.Repeat("█", eighths/8)
	if rest := eighths % 8; rest > 0 {
		text += string(rune(0x2590 - rest)) // from ▏ to ▉
	}
	return text
}

// short is a duration in a few characters.
func short(d time.Duration) string {
	switch {
	case d <= 0:
		return "0s"
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") }
