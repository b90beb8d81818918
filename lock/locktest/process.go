package locktest

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// Child is a part of a test that runs in a process of its own, which [Start] has
// started with args. It talks to the test by lines: it reads stdin and writes
// stdout. What it returns is the exit code.
type Child func(args []string) int

// childEnv names the child and its arguments, as JSON.
const childEnv = "SQLLOCK_LOCKTEST_CHILD"

// Main runs the tests of m, or, in a process that [Start] has started, the child of
// that name, and then ends the process. Every package that calls Start has a
// TestMain that calls it:
//
//	func TestMain(m *testing.M) {
//		os.Exit(locktest.Main(m, map[string]locktest.Child{"hold": hold}))
//	}
func Main(m interface{ Run() int }, children map[string]Child) int {
	call := os.Getenv(childEnv)
	if call == "" {
		return m.Run()
	}
	var words []string
	if err := json.Unmarshal([]byte(call), &words); err != nil || len(words) == 0 || children[words[0]] == nil {
		fmt.Fprintf(os.Stderr, "locktest: there is no child %s\n", call)
		os.Exit(2)
	}
	go endWithParent()
	os.Exit(children[words[0]](words[1:]))
	return 2
}

// endWithParent ends a child whose parent has died, and with it the pipe between them: a
// test binary that was killed, or has panicked, cleans nothing up.
func endWithParent() {
	if parentPipe == 0 {
		return
	}
	_, _ = io.Copy(io.Discard, os.NewFile(parentPipe, "parent"))
	fmt.Fprintln(os.Stderr, "locktest: the parent has gone")
	os.Exit(1)
}

// Process is a child that runs.
type Process struct {
	t     testing.TB
	cmd   *exec.Cmd
	in    io.WriteCloser
	alive io.Closer   // the parent's end of the pipe that tells the child that it lives
	lines chan string // closed when it has closed stdout
	done  chan struct{}
	err   error
}

// Start starts a child, which [Main] knows by that name, by running the test binary
// once more. It is killed at the end of the test. What it writes to stderr is logged.
func Start(t testing.TB, child string, args ...string) *Process {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	call, err := json.Marshal(append([]string{child}, args...))
	if err != nil {
		t.Fatal(err)
	}
	p := &Process{t: t, cmd: exec.Command(exe), lines: make(chan string, 100), done: make(chan struct{})}
	p.cmd.Env = append(os.Environ(), childEnv+"="+string(call))
	var stderr strings.Builder
	p.cmd.Stderr = &stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	begin := p.cmd.Start
	if parentPipe > 0 {
		begin = p.startTied
	}
	if err := begin(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(p.done)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		close(p.lines)
		p.err = p.cmd.Wait()
	}()
	t.Cleanup(func() {
		p.Kill()
		if stderr.Len() > 0 {
			t.Logf("stderr of the child %s:\n%s", child, stderr.String())
		}
	})
	return p
}

// startTied starts it with a pipe that ends with this process.
func (p *Process) startTied() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer func() { _ = r.Close() }()
	p.cmd.ExtraFiles = []*os.File{r} // parentPipe
	p.alive = w
	p.t.Cleanup(func() { _ = w.Close() })
	return p.cmd.Start()
}

// PID is its process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Line waits for the next line that it writes.
func (p *Process) Line() string {
	p.t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			<-p.done
			p.t.Fatalf("the child has ended: %v, stderr: %s", p.err, p.cmd.Stderr)
		}
		return line
	case <-time.After(2 * patience):
		p.t.Fatal("the child says nothing")
		return ""
	}
}

// Expect waits for the next line, which has to begin with want, and returns the
// rest of it.
func (p *Process) Expect(want string) string {
	p.t.Helper()
	line := p.Line()
	rest, ok := strings.CutPrefix(line, want)
	if !ok {
		p.t.Fatalf("the child says %q instead of %q", line, want)
	}
	return strings.TrimSpace(rest)
}

// Send writes a line to its stdin.
func (p *Process) Send(line string) {
	p.t.Helper()
	if _, err := io.WriteString(p.in, line+"\n"); err != nil {
		p.t.Fatalf("the child does not listen: %v", err)
	}
}

// Kill ends it at once, as kill -9 does, and waits for its end. Safe to call twice.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	go func() {
		for range p.lines { // so that nothing keeps the reader
		}
	}()
	<-p.done
}
