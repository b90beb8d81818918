package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/sqlnative/locks/internal/cli"
	"github.com/sqlnative/locks/internal/dbtest"
	"github.com/sqlnative/locks/joblock"
	"github.com/sqlnative/locks/lock"
	"github.com/sqlnative/locks/sqldb"
	"github.com/sqlnative/locks/sqllock"
)

// window is a terminal of a size, and all that was written to it.
type window struct {
	t           *testing.T
	keys, shell *os.File
	seen        said
}

func newWindow(t *testing.T, width, height uint16) *window {
	t.Helper()
	emulator, shell := pty(t)
	size := [4]uint16{height, width, 0, 0}
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, emulator.Fd(), syscall.TIOCSWINSZ, uintptr(unsafe.Pointer(&size))); errno != 0 {
		t.Fatal(errno)
	}
	w := &window{t: t, keys: emulator, shell: shell}
	go func() {
		buf := make([]byte, 1<<16)
		for {
			n, err := emulator.Read(buf)
			_, _ = w.seen.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	return w
}

// start starts a sqllock that has the terminal as its stdin and stdout.
func (w *window) start(dsn string, env []string, args ...string) *process {
	w.t.Helper()
	p := sqllockProcess(w.t, dsn, args...)
	p.cmd.Env = append(append(p.cmd.Env, "TERM=xterm", "NO_COLOR="), env...)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.cmd.Stdin, p.cmd.Stdout = w.shell, w.shell
	return p.begin()
}

const home = "\x1b[H"

// shows waits until the frame that was drawn last, or else all there is, fits; a frame
// that is not complete is none.
func (w *window) shows(what string, fits func(frame string) bool) {
	w.t.Helper()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		frames := strings.Split(w.seen.String(), home)
		for len(frames) > 1 && !strings.HasSuffix(frames[len(frames)-1], "\x1b[J") {
			frames = frames[:len(frames)-1]
		}
		if last := frames[len(frames)-1]; fits(last) {
			return
		} else if time.Since(begun) > patience {
			w.t.Fatalf("%s is not shown: %q", what, last)
		}
	}
}

func has(words ...string) func(string) bool {
	return func(frame string) bool {
		for _, word := range words {
			if no, not := strings.CutPrefix(word, "!"); strings.Contains(frame, no) == not {
				return false
			}
		}
		return true
	}
}

// TestWatch: on a terminal it draws in place, nothing is cleared before it is drawn
// again, and Ctrl-C ends it well.
func TestWatch(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		w := newWindow(t, 100, 20)
		p := w.start(db.DSN, nil, "ls", "--watch", "--interval", "20ms")
		w.shows("that none is held", has("no lock is held"))
		first := hold(t, db, "first", lock.Label("one"))
		w.shows("the first", has("first", "one", "!no lock"))
		hold(t, db, "second", lock.Label("two"))
		w.shows("both", has("first", "second"))
		if err := first.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
		w.shows("the second alone", has("second", "!first"))
		fmt.Fprint(w.keys, "\x03")
		if said := p.ends(0); said != "" {
			t.Errorf("it says %s", said)
		}
		seen := w.seen.String()
		if regexp.MustCompile(`\x1b\[[0-3]?J`).FindString(strings.ReplaceAll(seen, "\x1b[K\r\n\x1b[J", "")) != "" || strings.Contains(seen, home+"\x1b") && !strings.Contains(seen, home+"\x1b[1mNAME") {
			t.Errorf("it clears what it has not drawn yet: %q", seen)
		}
		if strings.Count(seen, home) < 4 {
			t.Errorf("%d frames", strings.Count(seen, home))
		}
	})
}

// TestWatchSmall: more than fits into a small terminal is cut off, and never makes it
// scroll; a dumb one gets one list after the other.
func TestWatchSmall(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	migrated(t, db)
	for i := range 9 {
		hold(t, db, fmt.Sprintf("a-lock-with-a-rather-long-name-%d", i), lock.Label(strings.Repeat("long ", 30)))
	}
	w := newWindow(t, 40, 5)
	p := w.start(db.DSN, nil, "ls", "-w", "--interval", "20ms")
	w.shows("how many there are besides", has("... and 7 more"))
	p.signal(syscall.SIGTERM)
	p.ends(0)
	for _, frame := range strings.Split(w.seen.String(), home)[1:] {
		frame = text.StripEscape(strings.ReplaceAll(frame, "\r", ""))
		lines := strings.Split(frame, "\n")
		if len(lines) > 5 {
			t.Fatalf("%d lines: %q", len(lines), frame)
		}
		for _, line := range lines {
			if len([]rune(line)) > 40 {
				t.Fatalf("%d wide: %q", len(line), line)
			}
		}
	}

	w = newWindow(t, 200, 5)
	p = w.start(db.DSN, []string{"TERM=dumb"}, "ls", "-w", "--interval", "20ms")
	w.shows("two lists", func(seen string) bool { return strings.Count(seen, "NAME") > 1 })
	fmt.Fprint(w.keys, "\x03")
	p.ends(0)
	if strings.Contains(w.seen.String(), "\x1b") {
		t.Errorf("%q", w.seen.String())
	}
}

// TestWatchOutage: a database that goes away, or does not answer, is told of and asked
// again; what is shown meanwhile says of when it is.
func TestWatchOutage(t *testing.T) {
	t.Setenv("TERM", "xterm")
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		migrated(t, db)
		hold(t, db, "kept")
		var line dbtest.Line
		locker, err := sqllock.New(t.Context(), db.Wrap(line.Wrap))
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = locker.Close() }()
		t.Run("terminal", func(t *testing.T) {
			w := newWindow(t, 100, 20)
			s := &session{app: &app{out: &cli.Output{Program: "sqllock", Stdout: w.shell, Stderr: w.shell}}, db: db.Wrap(line.Wrap), locker: locker}
			ctx, leave := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			watch := &watcher{session: s, interval: 20 * time.Millisecond, answer: time.Second}
			go func() { ended <- watch.run(ctx) }()
			w.shows("the lock", has("kept"))
			line.Set(dbtest.Gone)
			w.shows("that it is gone", has("trying again: ", "the database is gone", "as of 20", "kept"))
			line.Set(dbtest.Whole)
			w.shows("that it is back", has("kept", "!gone"))
			line.Set(dbtest.Paused)
			w.shows("that it does not answer", has("trying again: no answer within 1s", "kept"))
			leave() // while it waits
			if err := <-ended; err != nil {
				t.Error(err)
			}
			if strings.Contains(w.seen.String(), "canceled") {
				t.Error("that it was left is shown as an outage")
			}
			line.Set(dbtest.Whole)
		})
		t.Run("pipe", func(t *testing.T) {
			for _, json := range []bool{false, true} {
				var stdout, stderr said
				s := &session{app: &app{out: &cli.Output{Program: "sqllock", Stdout: &stdout, Stderr: &stderr, JSON: json}}, db: db.Wrap(line.Wrap), locker: locker}
				ctx, leave := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() { ended <- s.watch(ctx, 10*time.Millisecond) }()
				wait := func(what string, done func() bool) {
					t.Helper()
					for begun := time.Now(); !done(); time.Sleep(time.Millisecond) {
						if time.Since(begun) > patience {
							t.Fatalf("never: %s\n%s\n%s", what, stdout.String(), stderr.String())
						}
					}
				}
				wait("a list", func() bool { return strings.Contains(stdout.String(), "kept") })
				line.Set(dbtest.Gone)
				wait("gone", func() bool { return strings.Contains(stderr.String(), "gone; trying again\n") })
				n := strings.Count(stdout.String(), "kept")
				line.Set(dbtest.Whole)
				wait("back", func() bool { return strings.Contains(stderr.String(), "sqllock: the database can be read again\n") })
				wait("a further list", func() bool { return strings.Count(stdout.String(), "kept") > n })
				leave()
				if err := <-ended; err != nil {
					t.Error(err)
				}
				if strings.Count(stderr.String(), "\n") != 2 {
					t.Errorf("it is said more than once: %s", stderr.String())
				}
			}
		})
		t.Run("at once", func(t *testing.T) {
			line.Set(dbtest.Gone)
			defer line.Set(dbtest.Whole)
			s := &session{app: &app{out: &cli.Output{Stdout: &said{}}}, db: db.Wrap(line.Wrap), locker: locker}
			if err := s.watch(t.Context(), time.Hour); !errors.Is(err, dbtest.ErrGone) {
				t.Errorf("the first look: %v", err)
			}
		})
	})
}

// TestColours: bars and colours are for terminals that have them and people who want
// them. Whatever it is, the words are the same.
func TestColours(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	migrated(t, db)
	start(t, db.DSN, "run", "good", "--", "true").ends(0)
	start(t, db.DSN, "run", "bad", "--", "sh", "-c", "sleep 0.1; exit 3").ends(3)
	hold(t, db, "lock", lock.Label("label"))
	piped, _ := want(t, 0, on(db, "history")...)
	if strings.ContainsAny(piped, "\x1b█▏") || !strings.Contains(piped, "TOOK   EXIT") && !strings.Contains(piped, "TOOK  EXIT") {
		t.Errorf("in a pipe:\n%s", piped)
	}
	for _, tt := range []struct {
		env    []string
		colour bool
	}{
		{nil, true},
		{[]string{"TERM=vt100"}, true},
		{[]string{"NO_COLOR=1"}, false},
		{[]string{"NO_COLOR=0"}, false},
		{[]string{"NO_COLOR=0", "FORCE_COLOR=1"}, false},
		{[]string{"TERM=dumb"}, false},
		{[]string{"TERM=dumb", "FORCE_COLOR=1"}, false},
	} {
		for args, words := range map[string][]string{
			"history":   {"good", "\x1b[32mok\x1b[0m", "bad", "\x1b[31mfailed\x1b[0m", "███"},
			"show good": {"not held", "\x1b[32mok\x1b[0m", "███"},
			"ls":        {"lock", "\x1b[32mheld\x1b[0m", "label"},
			"doctor":    {"\x1b[32mok\x1b[0m", "lock pair"},
		} {
			w := newWindow(t, 200, 40)
			w.start(db.DSN, tt.env, strings.Fields(args)...).ends(0)
			w.shows("the end of "+args, func(seen string) bool {
				for _, word := range words {
					if !tt.colour {
						word = text.StripEscape(word)
					}
					if !strings.Contains(seen, word) {
						return false
					}
				}
				return strings.HasSuffix(seen, "\n")
			})
			if got := w.seen.String(); strings.Contains(got, "\x1b") != tt.colour {
				t.Errorf("%s %v: %q", args, tt.env, got)
			}
		}
	}
	// In a file they are never.
	p := sqllockProcess(t, db.DSN, "history")
	p.cmd.Env = append(p.cmd.Env, "TERM=xterm", "FORCE_COLOR=1", "CLICOLOR_FORCE=1")
	p.begin().sees("STARTED              JOB ")
	p.ends(0)
}

// TestNarrow: a line fits into a narrow terminal, and the last text is cut.
func TestNarrow(t *testing.T) {
	db := dbtest.New(t, sqldb.SQLite)
	migrated(t, db)
	start(t, db.DSN, "run", "job", "--", "sh", "-c", "kill -9 $$").ends(137)
	for width, words := range map[uint16][]string{
		70:  {"job", "failed", "137", "killed by ", "!█", "!TOKEN", "!PID"},
		110: {"█", "!TOKEN", "killed by "},
		300: {"█", "PID", "TOKEN", "killed by signal: killed"},
	} {
		w := newWindow(t, width, 20)
		w.start(db.DSN, nil, "history").ends(0)
		w.shows(fmt.Sprint(words), has(words...))
		for _, line := range strings.Split(text.StripEscape(w.seen.String()), "\r\n") {
			if len([]rune(line)) > int(width) {
				t.Errorf("%d wide: %q", width, line)
			}
		}
	}
}

// TestHostileTexts: what others have written, as a label or an error, is shown, and
// cannot speak to the terminal.
func TestHostileTexts(t *testing.T) {
	const evil = "nice\x1b]0;title\x07\x1b[2J\u009b31m\u202ebackwards\r\nlast"
	dbtest.Each(t, func(t *testing.T, db *dbtest.DB) {
		t.Parallel()
		migrated(t, db)
		hold(t, db, joblock.LockName("job"), lock.Label(evil))
		locker, err := sqllock.New(t.Context(), db.DB)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = locker.Close() })
		jobs, err := joblock.New(t.Context(), db.DB, locker)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := jobs.Run(t.Context(), joblock.Job{Name: "other", Note: evil}, func(context.Context) error { return errors.New(evil) }); err == nil {
			t.Fatal("the job has not failed")
		}
		if err := jobs.Disable(t.Context(), "off", evil); err != nil {
			t.Fatal(err)
		}
		for _, tt := range []struct {
			code int
			args []string
			word string
		}{
			{0, []string{"ls"}, `nice\x1b]0;title\x07\x1b[2J\u009b31m\u202ebackwards\r\nlast`},
			{0, []string{"show", "job"}, `nice\x1b]0;title`},
			{0, []string{"show", "off"}, `disabled: nice\x1b]0;title`},
			{0, []string{"history"}, `nice\x1b]0;title\x07\x1b[2J\u009b31m\u202ebackwards\r`},
			{1, []string{"release", "job", "--token", "5"}, `nice\x1b]0;title`},
			{75, []string{"run", "job", "--", "true"}, `nice\x1b]0;title`},
			{75, []string{"run", "off", "--", "true"}, `nice\x1b]0;title`},
			{0, []string{"ls", "--json"}, `nice\u001b]0;title\u0007\u001b[2J\u009b31m\u202ebackwards\r\nlast`},
			{0, []string{"show", "off", "--json"}, `nice\u001b]0;title`},
			{0, []string{"history", "--json"}, `nice\u001b]0;title`},
			{0, []string{"release", "job", "--force"}, `nice\x1b]0;title`},
		} {
			p := start(t, db.DSN, tt.args...)
			var out strings.Builder
			for line := range p.lines {
				out.WriteString(line + "\n")
			}
			all := out.String() + p.ends(tt.code)
			if !strings.Contains(all, tt.word) {
				t.Errorf("%q: %q is not in %q", tt.args, tt.word, all)
			}
			if strings.ContainsAny(all, "\x1b\x07\u009b\u202e\r") {
				t.Errorf("%q: %q", tt.args, all)
			}
		}
	})
}
