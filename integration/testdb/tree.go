package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// signalTree signals a process and its children. PostgreSQL's backends leave the postmaster's process group, so a
// signal to the group would miss them. A parent that is to die or to stop is stopped first: it makes no more children
// then, and they are listed while they still are its.
func signalTree(pid int, sig syscall.Signal) error {
	if sig == syscall.SIGKILL || sig == syscall.SIGSTOP {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			return fmt.Errorf("process %d: %w", pid, err)
		}
	}
	children, listErr := childrenOf(pid)
	err := syscall.Kill(pid, sig)
	for _, child := range children {
		syscall.Kill(child, sig) // one that has just ended is no error
	}
	return errors.Join(err, listErr)
}

// childrenOf lists a process's children, from /proc where there is one: a small Debian has no ps.
func childrenOf(pid int) ([]int, error) {
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // the pattern is well-formed
	if len(stats) == 0 {
		return childrenByPS(pid)
	}
	var children []int
	for _, stat := range stats {
		text, err := os.ReadFile(stat)
		if err != nil {
			continue // it has ended meanwhile
		}
		// "123 (name) S 1 ...", where the name may hold anything, so read from its end.
		fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
		if len(fields) < 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(filepath.Base(filepath.Dir(stat))); err == nil {
			children = append(children, child)
		}
	}
	return children, nil
}

func childrenByPS(pid int) ([]int, error) {
	out, err := exec.Command("ps", "-A", "-o", "pid=,ppid=").Output()
	if err != nil {
		return nil, fmt.Errorf("cannot list processes with ps: %w", err)
	}
	var children []int
	for line := range strings.Lines(string(out)) {
		fields := strings.Fields(line)
		if len(fields) != 2 || fields[1] != strconv.Itoa(pid) {
			continue
		}
		if child, err := strconv.Atoi(fields[0]); err == nil {
			children = append(children, child)
		}
	}
	return children, nil
}
