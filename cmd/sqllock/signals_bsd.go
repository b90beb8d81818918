//go:build darwin || freebsd || netbsd || openbsd || dragonfly

package main

// lastSignal is SIGUSR2.
const lastSignal = 31
