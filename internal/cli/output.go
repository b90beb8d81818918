package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"text/tabwriter"

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
	if _, err := io.WriteString(o.Stdout, b.String()); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}

// Say writes a message to Stderr, without passwords.
func (o *Output) Say(format string, args ...any) {
	text := o.Program + ": " + o.Clean(fmt.Sprintf(format, args...)) + "\n"
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

// Table writes rows in aligned columns.
type Table struct{ w *tabwriter.Writer }

// NewTable begins a table with its header.
func NewTable(w io.Writer, header ...string) *Table {
	t := &Table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	t.Row(header...)
	return t
}

// Row adds a row. A control character in a cell, which could move the cursor of
// a terminal, becomes a space.
func (t *Table) Row(cells ...string) {
	for i, c := range cells {
		cells[i] = strings.Map(func(r rune) rune {
			if r < ' ' || r == 0x7f {
				return ' '
			}
			return r
		}, c)
	}
	// The error is kept by the writer, for Flush.
	_, _ = fmt.Fprintln(t.w, strings.Join(cells, "\t"))
}

// Flush writes the table.
func (t *Table) Flush() error { return t.w.Flush() }
