//go:build !unix

package locktest

// Stop skips the test: there are no signals that stop a process.
func (p *Process) Stop() { p.t.Skip("there is no SIGSTOP on this system") }

// Continue does nothing.
func (p *Process) Continue() {}
