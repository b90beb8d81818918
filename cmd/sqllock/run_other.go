//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

import (
	"context"
	"errors"
)

// underLock needs process groups and signals.
func (a *app) underLock(context.Context, *runOptions) (int, error) {
	return exitUsage, errors.New("run: it is not available on this system (Windows: in WSL it is), which has no process groups to end a command by: use the package joblock in a program")
}
