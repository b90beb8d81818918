//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sqlnative/locks/internal/guardian"
	"github.com/sqlnative/locks/lock"
)

// ward is the command, as sqllock sees it through its guardian.
type ward struct {
	control *os.File
	reports chan string   // closed when the guardian has ended
	started chan struct{} // closed when the guardian was started, or could not be
	err     error         // why it could not
	guard   int           // the guardian's pid, from then on

	pid    int
	killAt time.Time
}

// newWard begins to start a guardian, which takes about as long as connecting to the
// database, beside which it happens. ready says how it went.
func newWard(o *runOptions) *ward {
	w := &ward{reports: make(chan string, 8), started: make(chan struct{})}
	fail := func(err error) *ward {
		w.err = fmt.Errorf("starting the guardian: %w", err)
		close(w.started)
		close(w.reports)
		return w
	}
	exe := "/proc/self/exe" // also when the file has been replaced meanwhile
	if runtime.GOOS != "linux" {
		var err error
		if exe, err = os.Executable(); err != nil {
			return fail(err)
		}
	}
	controlR, control, err := os.Pipe()
	if err != nil {
		return fail(err)
	}
	report, reportW, err := os.Pipe()
	if err != nil {
		_, _ = controlR.Close(), control.Close()
		return fail(err)
	}
	w.control = control
	go func() {
		defer close(w.reports)
		defer func() { _ = report.Close() }()
		// Not by package os/exec, which tries first, with a process for that alone, whether
		// the kernel has pidfds.
		pid, err := syscall.ForkExec(exe, append([]string{"sqllock", guardian.Arg, o.path}, o.args...), &syscall.ProcAttr{
			Env: os.Environ(),
			// In the order of guardian.ControlFD and guardian.ReportFD.
			Files: []uintptr{0, 1, 2, controlR.Fd(), reportW.Fd()},
			// What is sent to sqllock's group, as Ctrl-C is, is not for the guardian.
			Sys: &syscall.SysProcAttr{Setpgid: true},
		})
		_, _ = controlR.Close(), reportW.Close()
		if err != nil {
			w.err = fmt.Errorf("starting the guardian: %w", err)
		}
		w.guard = pid
		close(w.started)
		if err != nil {
			return
		}
		for s := bufio.NewScanner(report); s.Scan(); {
			w.reports <- s.Text()
		}
		for {
			if _, err := syscall.Wait4(pid, nil, 0, nil); !errors.Is(err, syscall.EINTR) {
				return
			}
		}
	}()
	return w
}

// ready waits until the guardian was started.
func (w *ward) ready() error {
	<-w.started
	return w.err
}

// tell writes a line, which a guardian that has died does not read. One that is stopped
// reads nothing either, and sqllock must not wait for it when the pipe is full: a line is
// shorter than PIPE_BUF, and goes whole or not at all. A renewal that is missed ends the
// command too early, and never too late.
func (w *ward) tell(format string, args ...any) {
	_ = w.control.SetWriteDeadline(time.Now().Add(tellBound))
	_, _ = fmt.Fprintf(w.control, format+"\n", args...)
}

const tellBound = 100 * time.Millisecond

// leave tells the guardian that there is nothing to guard any more, upon which it ends.
func (w *ward) leave() { _ = w.control.Close() }

// dismiss ends a guardian that has nothing to guard, and waits for it.
func (w *ward) dismiss() {
	w.leave()
	for range w.reports {
	}
}

// start has the command started.
func (w *ward) start(l *lock.Lock, ttl time.Duration) {
	term, kill := w.deadlines(l, ttl)
	w.tell("start %d %d %d %q %q %q", term, kill, syscall.Getpgrp(), l.Name(), l.Owner(), strconv.FormatInt(l.Token(), 10))
}

// renewed passes on how long the lock can be trusted now.
func (w *ward) renewed(l *lock.Lock, ttl time.Duration) {
	term, kill := w.deadlines(l, ttl)
	w.tell("arm %d %d", term, kill)
}

// lost has the command ended now: by SIGKILL when a tenth of the TTL has passed, and
// no later than was said before.
func (w *ward) lost(ttl time.Duration) {
	now := time.Now()
	if end := now.Add(lock.Margin(ttl)); w.killAt.IsZero() || end.Before(w.killAt) {
		w.killAt = end
	}
	w.tell("arm %d %d", guardian.EncodeDeadline(now), guardian.EncodeDeadline(w.killAt))
}

// deadlines are when the command gets SIGTERM, and when SIGKILL: the latter is a
// little before the lock can no longer be trusted, the former a fifth of the TTL
// before that. A renewal is due after a third of the TTL, so several have failed by
// then. 0 and 0: the lock has no end.
func (w *ward) deadlines(l *lock.Lock, ttl time.Duration) (term, kill int64) {
	until, ok := l.Until()
	if !ok {
		w.killAt = time.Time{}
		return 0, 0
	}
	w.killAt = until.Add(-min(max(ttl/50, 5*time.Millisecond), 500*time.Millisecond))
	return guardian.EncodeDeadline(w.killAt.Add(-ttl / 5)), guardian.EncodeDeadline(w.killAt)
}

// signal forwards a signal to the group. One that asks it to end is for those who are
// stopped, too.
func (w *ward) signal(sig syscall.Signal) {
	w.tell("signal %d", int(sig))
	switch sig {
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT:
		w.tell("signal %d", int(syscall.SIGCONT))
	}
}

// killGroup is for a guardian that does not do its work.
func (w *ward) killGroup() {
	if w.pid > 0 {
		_ = syscall.Kill(-w.pid, syscall.SIGKILL)
	}
}

// wake has a guardian that was stopped say how the command has ended.
func (w *ward) wake() { _ = syscall.Kill(w.guard, syscall.SIGCONT) }

// abandoned ends a command whose guardian has died: nobody can say any more how it
// ends, only that nothing of it is left.
func (w *ward) abandoned() {
	if w.pid == 0 {
		return
	}
	_ = syscall.Kill(-w.pid, syscall.SIGTERM)
	_ = syscall.Kill(-w.pid, syscall.SIGCONT)
	end := time.Now().Add(guardian.LeftoverGrace)
	if !w.killAt.IsZero() && w.killAt.Before(end) {
		end = w.killAt
	}
	for killed := time.Duration(0); killed < guardian.LeftoverGrace; time.Sleep(10 * time.Millisecond) {
		if err := syscall.Kill(-w.pid, 0); errors.Is(err, syscall.ESRCH) {
			return
		}
		if killed = time.Since(end); killed >= 0 {
			w.killGroup()
		}
	}
}

// report reads "word number text".
func report(line string) (word string, n int, text string) {
	word, rest, _ := strings.Cut(line, " ")
	number, text, _ := strings.Cut(rest, " ")
	n, _ = strconv.Atoi(number)
	return word, n, text
}
