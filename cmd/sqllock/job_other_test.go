//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

// job is for systems that have run.
func job([]string) int { return 1 }
