package guardian

import (
	"syscall"
	"time"
	"unsafe"
)

// A deadline goes from one process to the other as a reading of the clock that all
// processes share and nobody sets (CLOCK_MONOTONIC): a sender that is stopped between
// working it out and sending it delays nothing.

// EncodeDeadline is a deadline as the guardian reads it.
func EncodeDeadline(t time.Time) int64 {
	now := monotonic() // before the other clock is read: a pause in between makes it earlier
	return now + int64(time.Until(t))
}

func decodeDeadline(at int64) time.Time {
	return time.Now().Add(time.Duration(at - monotonic()))
}

func monotonic() int64 {
	const clockMonotonic = 1
	var ts syscall.Timespec
	if _, _, errno := syscall.Syscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&ts)), 0); errno != 0 {
		panic("sqllock: clock_gettime: " + errno.Error()) // Linux has had it since 2.6
	}
	return ts.Nano()
}
