package guardian

import "syscall"

// adopt makes the guardian the parent of what the command orphans (Linux 3.4). By a bare
// system call: another package is more that every guardian has to initialise.
func adopt() {
	const setChildSubreaper = 36 // PR_SET_CHILD_SUBREAPER, prctl(2)
	_, _, _ = syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0)
}
