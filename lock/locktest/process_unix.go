//go:build unix

package locktest

import "syscall"

// Stop stops it where it is, as kill -STOP does, until [Process.Continue].
func (p *Process) Stop() { p.signal(syscall.SIGSTOP) }

// Continue has it go on.
func (p *Process) Continue() { p.signal(syscall.SIGCONT) }

func (p *Process) signal(s syscall.Signal) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.t.Fatalf("%v: %v", s, err)
	}
}
