package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/sqlnative/locks/internal/dsn"
)

// Output is where a command writes: results to Stdout, everything else to
// Stderr. It is safe for concurrent use where the two writers are; each message is
// one Write.
type Output struct {
	// Program stands in front of messages.
	Program string
	Stdout  io.Writer
	Stderr  io.Writer
	// JSON asks for results as one JSON value each.
	JSON bool

	mu    sync.Mutex
	scrub *dsn.Scrubber
}

// Hide adds passwords that no message may show.
func (o *Output) Hide(s *dsn.Scrubber) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.scrub = o.scrub.With(s)
}

// Clean returns text without passwords.
func (o *Output) Clean(text string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.scrub.Text(text)
}

// Result writes a result: v as indented JSON, or what text writes.
func (o *Output) Result(v any, text func(w io.Writer) error) error {
	var b strings.Builder
	if o.JSON {
		enc := json.NewEncoder(&b)
		enc.SetIndent("", "  ")
		enc.SetEscapeHTML(false)
		if err := enc.Encode(v); err != nil {
			return fmt.Errorf("encoding the result: %w", err)
		}
	} else if err := text(&b); err != nil {
		return err
	}
	shown := b.String()
	if o.JSON {
		shown = jsonVisible(shown)
	}
	if _, err := io.WriteString(o.Stdout, shown); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// JSONLine is v as one line of JSON, in which nothing is left that a terminal obeys.
func JSONLine(v any) (string, error) {
	line, err := json.Marshal(v)
	return jsonVisible(string(line)), err
}

// Linef writes one line of a result for people, [Visible].
func Linef(w io.Writer, format string, args ...any) error {
	_, err := io.WriteString(w, Visible(fmt.Sprintf(format, args...))+"\n")
	return err
}

// Say writes a message to Stderr, without passwords, and without control characters
// but for line breaks and tabs.
func (o *Output) Say(format string, args ...any) {
	text := lines(o.Clean(fmt.Sprintf(format, args...)))
	text = o.Program + ": " + strings.TrimPrefix(text, o.Program+": ") + "\n" // a package may be called the same
	// Nothing can be done where stderr cannot be written.
	_, _ = io.WriteString(o.Stderr, text)
}

// Finish says what err says and returns the exit code for it.
func (o *Output) Finish(err error) int {
	var e *ExitError
	if err != nil && (!errors.As(err, &e) || e.Err != nil) {
		o.Say("%v", err)
	}
	return CodeOf(err)
}
