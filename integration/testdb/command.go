package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// runCommand runs the command to its end and returns its exit code, 128 + N if signal N ended it.
//
// On a terminal the command stays in testdb's process group, so that it can read the keyboard; a Ctrl-C reaches it
// from the terminal then, and the first one is not sent a second time. Elsewhere it gets a group of its own, and a
// signal goes to the whole group: `go test` alone would not hand it to the test binaries.
func runCommand(argv, env []string, signals <-chan os.Signal) (int, error) {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Env = env
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	terminal := inForeground()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: !terminal}
	if err := cmd.Start(); err != nil {
		return 127, fmt.Errorf("cannot run %s: %w", argv[0], err)
	}
	target := cmd.Process.Pid
	if !terminal {
		target = -target
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	seen := 0
	var patience <-chan time.Time
	for {
		select {
		case err := <-done:
			return exitCode(err)
		case sig := <-signals:
			seen++
			if number, ok := sig.(syscall.Signal); ok && (!terminal || number != syscall.SIGINT || seen > 1) {
				syscall.Kill(target, number)
			}
			if patience == nil {
				patience = time.After(stopPatience)
			}
		case <-patience:
			syscall.Kill(target, syscall.SIGKILL)
		}
	}
}

// stopPatience is how long a command that was told to stop may go on.
const stopPatience = time.Minute

func exitCode(err error) (int, error) {
	exit := (*exec.ExitError)(nil)
	if err == nil || !errors.As(err, &exit) {
		return 0, err
	}
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal()), nil
	}
	return exit.ExitCode(), nil
}

// inForeground is whether a Ctrl-C on the terminal reaches this process.
func inForeground() bool {
	terminal, err := os.Open("/dev/tty")
	if err != nil {
		return false
	}
	defer terminal.Close()
	group, err := unix.IoctlGetInt(int(terminal.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
