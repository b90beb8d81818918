//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package guardian

import (
	"os"
	"os/signal"
	"syscall"
	"unsafe"
)

// terminal is the controlling terminal of the session, as the guardian sees it.
//
// The command is in a process group of its own, which the terminal knows nothing of:
// its read would be one in the background, and SIGTTIN would stop it. So the group is
// made the foreground group, at once where the command has all its streams on the
// terminal, and else at the moment that it is stopped for wanting it: in
// "sqllock run x -- producer | less" it is less that needs the terminal.
type terminal struct {
	file  *os.File
	group int // sqllock's process group: where it came from
}

// openTerminal is nil where there is none, as under cron.
func openTerminal(group int) *terminal {
	f, err := os.OpenFile("/dev/tty", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		return nil
	}
	return &terminal{f, group}
}

// interactive reports whether all streams are on the terminal.
func (t *terminal) interactive() bool {
	for fd := range 3 {
		if _, err := foreground(uintptr(fd)); err != nil {
			return false
		}
	}
	return true
}

// ours reports whether the terminal is the command's or sqllock's: if it is
// another's, the job is in the background, and stays there.
func (t *terminal) ours(group int) bool {
	if t == nil {
		return false
	}
	fg, err := foreground(t.file.Fd())
	return err == nil && (fg == group || fg == t.group)
}

// give makes a group the foreground group, if the terminal is ours to give.
func (t *terminal) give(group int) bool {
	if !t.ours(group) {
		return false
	}
	return setForeground(t.file.Fd(), group) == nil
}

// takeBack undoes give.
func (t *terminal) takeBack(group int) {
	if t == nil {
		return
	}
	if fg, err := foreground(t.file.Fd()); err == nil && fg == group {
		_ = setForeground(t.file.Fd(), t.group)
	}
	_ = t.file.Close()
}

func foreground(fd uintptr) (group int, err error) {
	var g int32
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&g))); errno != 0 {
		return 0, errno
	}
	return int(g), nil
}

// setForeground is called by a process in the background, which SIGTTOU would stop.
// It is ignored from here on, and the command, which must not inherit that, has been
// started before.
func setForeground(fd uintptr, group int) error {
	signal.Ignore(syscall.SIGTTOU)
	g := int32(group)
	if _, _, errno := syscall.Syscall(syscall.SYS_IOCTL, fd, syscall.TIOCSPGRP, uintptr(unsafe.Pointer(&g))); errno != 0 {
		return errno
	}
	return nil
}
