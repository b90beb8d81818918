//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package guardian

// lastSignal is SIGUSR2.
const lastSignal = 31
