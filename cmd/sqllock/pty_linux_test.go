package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// pty opens a pseudo-terminal: what a terminal emulator sees of it, and what a shell
// does.
func pty(t *testing.T) (emulator, shell *os.File) {
	t.Helper()
	emulator, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Skipf("there are no pseudo-terminals here: %v", err)
	}
	t.Cleanup(func() { _ = emulator.Close() })
	var n, unlocked int32
	for request, arg := range map[uintptr]*int32{syscall.TIOCGPTN: &n, syscall.TIOCSPTLCK: &unlocked} {
		if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, emulator.Fd(), request, uintptr(unsafe.Pointer(arg))); errno != 0 {
			t.Fatal(errno)
		}
	}
	shell, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = shell.Close() })
	return emulator, shell
}

// onTerminal starts a run in a session of its own, whose terminal it has: as stdin,
// and if all is set as stdout and stderr, too.
func onTerminal(t *testing.T, all bool, script string) (p *process, keys *os.File, screen <-chan string) {
	t.Helper()
	emulator, shell := pty(t)
	p = sqllockProcess(t, "sqlite:"+t.TempDir()+"/a.db", "run", "--migrate", "x", "--", "sh", "-c", script)
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	p.cmd.Stdin = shell
	if all {
		p.cmd.Stdout, p.cmd.Stderr = shell, shell
		if err := p.cmd.Start(); err != nil {
			t.Fatal(err)
		}
		go func() {
			defer close(p.ended)
			_ = p.cmd.Wait()
		}()
		t.Cleanup(func() {
			_ = p.cmd.Process.Kill()
			<-p.ended
		})
	} else {
		p.begin()
	}
	lines := make(chan string, 1000)
	go func() {
		defer close(lines)
		for s := bufio.NewScanner(emulator); s.Scan(); {
			lines <- strings.TrimSpace(s.Text())
		}
	}()
	return p, emulator, lines
}

func shows(t *testing.T, screen <-chan string, text string) {
	t.Helper()
	timeout := time.After(patience)
	for {
		select {
		case line := <-screen:
			if strings.Contains(line, text) {
				return
			}
		case <-timeout:
			t.Fatalf("%q is not shown", text)
		}
	}
}

// TestTerminal: with all its streams on the terminal, the command is in its
// foreground: it reads, Ctrl-C is its own, and Ctrl-Z does not stop it.
func TestTerminal(t *testing.T) {
	// No process is being made while Ctrl-Z comes: one that it stops before it has become
	// another program (vfork) would keep the shell from stopping, too.
	p, keys, screen := onTerminal(t, true, `trap 'echo interrupted; exit 5' INT; echo ready; read x; echo "read <$x>"; read y; read z`)
	shows(t, screen, "ready")
	fmt.Fprintln(keys, "word")
	shows(t, screen, "read <word>")
	fmt.Fprint(keys, "\x1a")
	shows(t, screen, "goes on")
	fmt.Fprint(keys, "\x03")
	shows(t, screen, "interrupted")
	p.ends(5)
}

// TestTerminalOnDemand: with its output in a pipe, to a pager, the command is in the
// background, and gets the terminal when it reads from it. Ctrl-C is forwarded before.
func TestTerminalOnDemand(t *testing.T) {
	p, keys, _ := onTerminal(t, false, `trap 'echo interrupted; go=1' INT; echo ready; while [ -z "$go" ]; do sleep 0.02; done; read x; echo "read <$x>"`)
	p.sees("ready")
	fmt.Fprint(keys, "\x03")
	p.sees("interrupted")
	fmt.Fprintln(keys, "word")
	p.sees("read <word>")
	p.ends(0)
}
