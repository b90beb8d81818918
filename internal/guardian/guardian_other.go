//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package guardian

import "os"

func init() {
	if len(os.Args) > 1 && os.Args[1] == Arg {
		_, _ = os.Stderr.WriteString("sqllock: " + Arg + " is not for this system\n")
		os.Exit(exitInternal)
	}
}
