//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package main

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/sqlnative/locks/lock"
)

// ward is the command, as sqllock sees it through its guardian.
type ward struct {
	proc    *exec.Cmd
	control *os.File
	reports chan string // closed when the guardian has ended

	pid    int
	killAt time.Time
}

// newWard starts a guardian. It takes about as long as connecting to the database,
// beside which it happens.
func newWard(o *runOptions) (*ward, error) {
	exe := "/proc/self/exe" // also when the file has been replaced meanwhile
	if runtime.GOOS != "linux" {
		var err error
		if exe, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	controlR, control, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = controlR.Close() }()
	report, reportW, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer func() { _ = reportW.Close() }()
	w := &ward{control: control, reports: make(chan string, 8)}
	w.proc = &exec.Cmd{
		Path: exe, Args: append([]string{"sqllock", guardianArg, o.path}, o.args...),
		Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		ExtraFiles: []*os.File{controlR, reportW},
		// What is sent to sqllock's group, as Ctrl-C is, is not for the guardian.
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	if err := w.proc.Start(); err != nil {
		return nil, fmt.Errorf("starting the guardian: %w", err)
	}
	go func() {
		defer close(w.reports)
		for s := bufio.NewScanner(report); s.Scan(); {
			w.reports <- s.Text()
		}
		_ = report.Close()
		_ = w.proc.Wait()
	}()
	return w, nil
}

// tell writes a line, which a guardian that has died does not read.
func (w *ward) tell(format string, args ...any) { _, _ = fmt.Fprintf(w.control, format+"\n", args...) }

// dismiss ends a guardian that has nothing to guard, and waits for it.
func (w *ward) dismiss() {
	_ = w.control.Close()
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
	w.tell("arm %d %d", encodeDeadline(now), encodeDeadline(w.killAt))
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
	return encodeDeadline(w.killAt.Add(-ttl / 5)), encodeDeadline(w.killAt)
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

// abandoned ends a command whose guardian has died: nobody can say any more how it
// ends, only that nothing of it is left.
func (w *ward) abandoned() {
	if w.pid == 0 {
		return
	}
	_ = syscall.Kill(-w.pid, syscall.SIGTERM)
	_ = syscall.Kill(-w.pid, syscall.SIGCONT)
	end := time.Now().Add(leftoverGrace)
	if !w.killAt.IsZero() && w.killAt.Before(end) {
		end = w.killAt
	}
	for killed := time.Duration(0); killed < leftoverGrace; time.Sleep(10 * time.Millisecond) {
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
