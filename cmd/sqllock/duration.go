package main

import (
	"strings"
	"time"
)

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
