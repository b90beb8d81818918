//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package guardian

import (
	"os"
	"os/signal"
	"slices"
	"syscall"
)

// kept are the signals that are not forwarded: those that cannot be caught, those that
// tell of an error in the process itself, and those that are about its own children,
// streams and terminal, or are Go's own.
var kept = []syscall.Signal{
	syscall.SIGKILL, syscall.SIGSTOP,
	syscall.SIGILL, syscall.SIGTRAP, syscall.SIGBUS, syscall.SIGFPE, syscall.SIGSEGV, syscall.SIGSYS,
	syscall.SIGPIPE, syscall.SIGCHLD, syscall.SIGTTIN, syscall.SIGTTOU, syscall.SIGURG, syscall.SIGPROF,
}

// Forwarded are the signals that go to the command. One that is ignored, as SIGHUP is
// under nohup, stays so, for the command too.
func Forwarded() []os.Signal {
	var all []os.Signal
	for n := 1; n <= lastSignal; n++ {
		sig := syscall.Signal(n)
		if slices.Contains(kept, sig) || n == 32 || n == 33 || signal.Ignored(sig) { // 32 and 33 are those of threads, on Linux
			continue
		}
		all = append(all, sig)
	}
	return all
}

// Harmless reports whether a signal does not end a process that does nothing about it.
func Harmless(sig syscall.Signal) bool {
	return sig == syscall.SIGCONT || sig == syscall.SIGWINCH || sig == syscall.SIGTSTP || sig == syscall.SIGIO
}
