package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/sqldb"
)

// watcher lists the locks again and again. People watch when something is wrong: a
// database that cannot be read is told of, and asked again, but for the first time,
// where it may be the command line that is wrong.
type watcher struct {
	*session
	interval time.Duration
	answer   time.Duration // how long the database may take
	last     *lsResult     // what was read last
	lost     bool          // it could not be read the last time
}

func (s *session) watch(ctx context.Context, interval time.Duration) error {
	return (&watcher{session: s, interval: interval, answer: sqldb.Bound}).run(ctx)
}

// run ends, without an error, when ctx does.
func (w *watcher) run(ctx context.Context) error {
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for {
		r, err := w.look(ctx)
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil:
			w.last = &r
		case w.last == nil:
			return err
		}
		if err := w.draw(err); err != nil {
			return err
		}
		w.lost = err != nil
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// errNoAnswer is the cause of a look that took too long.
var errNoAnswer = errors.New("no answer")

func (w *watcher) look(ctx context.Context) (lsResult, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, w.answer, errNoAnswer)
	defer cancel()
	r, err := w.list(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errNoAnswer) {
		err = fmt.Errorf("%w within %v", errNoAnswer, w.answer)
	}
	return r, err
}

// draw shows what was read last, and why it could not be read now. Where it cannot be
// shown in place, an outage is a message when it begins and when it ends.
func (w *watcher) draw(problem error) error {
	screen := w.out.Screen()
	if w.out.JSON || !screen.Cursor {
		switch {
		case problem == nil && w.lost:
			w.out.Say("the database can be read again")
		case problem != nil && !w.lost:
			w.out.Say("%v; trying again", problem)
		}
		if problem != nil {
			return nil
		}
		return w.out.Result(*w.last, w.listed(*w.last))
	}
	var b strings.Builder
	if problem != nil {
		t := w.out.Table(cli.Column{Flow: cli.Wrap})
		t.Row(cli.Cell{Text: "trying again: " + w.out.Clean(firstLine(problem)), Style: cli.Red})
		t.Row(plain("as of " + stamp(w.last.Now) + " UTC:"))
		if err := t.Write(&b); err != nil {
			return err
		}
	}
	if err := w.listed(*w.last)(&b); err != nil {
		return err
	}
	if _, err := io.WriteString(w.out.Stdout, screen.Frame(b.String())); err != nil {
		return fmt.Errorf("writing the result: %w", err)
	}
	return nil
}
