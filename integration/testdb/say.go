package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
)

// A teller prints testdb's own lines. Every line goes through it, so that no password that it was told of gets out,
// whichever library put it into an error.
type teller struct {
	mu      sync.Mutex
	out     io.Writer
	secrets []string
}

// keep makes the teller hide a secret. Very short ones are left: hiding "a" would make every line unreadable, and
// drivers do not print passwords by themselves.
func (t *teller) keep(secrets ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range secrets {
		if len(s) >= 4 {
			t.secrets = append(t.secrets, s)
		}
	}
}

// clean makes one line of a text and hides the secrets in it.
func (t *teller) clean(text string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, s := range t.secrets {
		text = strings.ReplaceAll(text, s, "***")
	}
	var parts []string
	for line := range strings.Lines(text) { // joined errors have a line each
		if part := strings.Join(strings.Fields(line), " "); part != "" {
			parts = append(parts, part)
		}
	}
	return strings.Join(parts, "; ")
}

func (t *teller) say(format string, args ...any) {
	line := t.clean(fmt.Sprintf(format, args...))
	t.mu.Lock()
	defer t.mu.Unlock()
	fmt.Fprintln(t.out, "testdb: "+line)
}
