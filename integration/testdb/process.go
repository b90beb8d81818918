package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A process is a server that testdb started from a binary: it can be ended, paused and started again with the same
// arguments, on the same port and data.
type process struct {
	argv   []string
	dir    string // its temporary folder, gone when the server is removed
	owner  *syscall.Credential
	gentle syscall.Signal // asks for an orderly end
	hasty  syscall.Signal // ends it at once, for good; PostgreSQL buries its children before it goes
	ready  func(ctx context.Context, dead <-chan struct{}) error

	mu   sync.Mutex
	cmd  *exec.Cmd
	done chan struct{} // closed when cmd has ended and was reaped
}

// newCommand prepares a command that runs as the server's user, with nothing of the caller's environment that could
// change a server's mind (PGPORT, MYSQL_HOME), and apart from the terminal: a Ctrl-C must reach the tests first.
func newCommand(ctx context.Context, owner *syscall.Credential, dir string, argv ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir, "TMPDIR=" + dir, "LC_ALL=C"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: owner}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) } // tools have children
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

func (p *process) log() string { return filepath.Join(p.dir, "server.log") }

// Start starts the server and waits until it answers. One that was killed may find its last children still there, so
// an early end is tried again for a while.
func (p *process) Start(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	for try := 0; ; try++ {
		err := p.launch(ctx)
		if err == nil || !errors.Is(err, errDead) || try == 4 {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func (p *process) launch(ctx context.Context) error {
	p.mu.Lock()
	if p.running() {
		p.mu.Unlock()
		return errors.New("the server is running already")
	}
	out, err := os.OpenFile(p.log(), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		p.mu.Unlock()
		return err
	}
	defer out.Close()
	cmd := newCommand(context.WithoutCancel(ctx), p.owner, p.dir, p.argv...)
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		p.mu.Unlock()
		return err
	}
	done := make(chan struct{})
	p.cmd, p.done = cmd, done
	go func() {
		cmd.Wait()
		close(done)
	}()
	p.mu.Unlock()

	if err := p.ready(ctx, done); err != nil {
		p.Kill(context.WithoutCancel(ctx))
		return fmt.Errorf("%w%s", err, lastLines(p.log()))
	}
	return nil
}

// running needs mu.
func (p *process) running() bool {
	if p.cmd == nil {
		return false
	}
	select {
	case <-p.done:
		return false
	default:
		return true
	}
}

// Stop ends the server in an orderly way, and by force after half a minute.
func (p *process) Stop(ctx context.Context) error { return p.end(ctx, p.gentle, 30*time.Second) }

// Kill ends the server and all its children at once, as a crash would.
func (p *process) Kill(ctx context.Context) error { return p.end(ctx, syscall.SIGKILL, 0) }

func (p *process) end(ctx context.Context, sig syscall.Signal, patience time.Duration) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return nil
	}
	pid := p.cmd.Process.Pid
	if sig != syscall.SIGKILL {
		signalTree(pid, syscall.SIGCONT) // a paused process does not see any other signal
		syscall.Kill(pid, sig)
		select {
		case <-p.done:
			return nil
		case <-ctx.Done():
		case <-time.After(patience):
		}
	}
	signalTree(pid, syscall.SIGKILL)
	select {
	case <-p.done:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("process %d does not end, not even by SIGKILL", pid)
	}
}

// Pause stops the server and all its children in their tracks; connections stay open and are silent.
func (p *process) Pause(context.Context) error { return p.signal(syscall.SIGSTOP) }

// Resume lets a paused server go on.
func (p *process) Resume(context.Context) error { return p.signal(syscall.SIGCONT) }

func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.running() {
		return errors.New("the server is not running")
	}
	return signalTree(p.cmd.Process.Pid, sig)
}

// Remove ends the server without ceremony, since nobody needs its data any more, and removes its folder.
func (p *process) Remove(ctx context.Context) error {
	err := p.end(ctx, p.hasty, 5*time.Second)
	for range 20 { // a child that is just dying may still write into it
		if os.RemoveAll(p.dir) == nil {
			return err
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.Join(err, os.RemoveAll(p.dir))
}

// lastLines is the end of a log file, for an error.
func lastLines(file string) string {
	text, err := os.ReadFile(file)
	if err != nil || len(text) == 0 {
		return ""
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return "; the end of its log: " + strings.Join(lines[max(0, len(lines)-3):], " | ")
}
