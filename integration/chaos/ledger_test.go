package chaos_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ledger is what the workers have said.
type ledger struct {
	mu     sync.Mutex
	last   map[string]string // the last word on each increment
	older  []string
	stalls int
}

func (l *ledger) note(word, id string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch word {
	case stalled:
		l.stalls++
	case older:
		l.older = append(l.older, id)
	default:
		l.last[id] = word
	}
}

// count is how many increments were surely made, and of how many nobody knows.
func (l *ledger) count() (sure, unsure, not int64) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, word := range l.last {
		switch word {
		case done:
			sure++
		case failed:
			not++
		default:
			unsure++
		}
	}
	return sure, unsure, not
}

// worker is a process of the run, as the test sees it.
type worker struct {
	cmd   *exec.Cmd
	in    io.Closer
	ended chan struct{}
	err   error // once ended is closed
}

// hire starts a process, whose words go into the ledger.
func hire(t testing.TB, what task, l *ledger) *worker {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	w := &worker{cmd: exec.Command(exe), ended: make(chan struct{})}
	w.cmd.Env = append(os.Environ(), workerEnv+"=1")
	in, err := w.cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.in = in
	var stderr strings.Builder
	w.cmd.Stderr = &stderr
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if err := json.NewEncoder(in).Encode(what); err != nil {
		t.Error(err)
	}
	go func() {
		defer close(w.ended)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			word, id, _ := strings.Cut(lines.Text(), " ")
			l.note(word, id)
			if word == stalled {
				time.AfterFunc(2*ttl, func() { w.signal(syscall.SIGCONT) })
			}
		}
		w.err = w.cmd.Wait()
		text := stderr.String()
		if w.err != nil {
			w.err = fmt.Errorf("%w: %s", w.err, text)
		}
		if strings.Contains(text, "panic") || strings.Contains(text, "DATA RACE") {
			t.Errorf("a worker says:\n%s", text)
		}
	}()
	return w
}

func (w *worker) signal(s syscall.Signal) {
	select {
	case <-w.ended: // its id may be another's by now
	default:
		_ = w.cmd.Process.Signal(s)
	}
}

// dismiss lets the process come to its end.
func (w *worker) dismiss(t testing.TB) {
	t.Helper()
	_ = w.in.Close()
	tick := time.NewTicker(100 * time.Millisecond) // it may just be stopping itself
	defer tick.Stop()
	patience := time.After(time.Minute)
	for {
		select {
		case <-w.ended:
			if w.err != nil {
				t.Errorf("a worker has ended: %v", w.err)
			}
			return
		case <-tick.C:
			w.signal(syscall.SIGCONT)
		case <-patience:
			w.signal(syscall.SIGKILL)
			<-w.ended
			t.Error("a worker did not come to its end in a minute")
			return
		}
	}
}
