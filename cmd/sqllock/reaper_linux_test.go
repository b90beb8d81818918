package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// reaperEnv has the test binary be what process 1 of a container is: it runs sqllock, and
// is the parent of every orphan.
const reaperEnv = "SQLLOCK_TEST_REAPER"

func init() {
	if os.Getenv(reaperEnv) == "" {
		return
	}
	const setChildSubreaper = 36 // PR_SET_CHILD_SUBREAPER
	if _, _, errno := syscall.RawSyscall(syscall.SYS_PRCTL, setChildSubreaper, 1, 0); errno != 0 {
		fmt.Println("prctl:", errno)
		os.Exit(1)
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Env = append(os.Environ(), childEnv+"=1", reaperEnv+"=")
	out, err := cmd.CombinedOutput()
	fmt.Printf("%s%v\n", out, err)
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		fmt.Printf("left: %d, %v\n", pid, err)
		os.Exit(0)
	}
}

// TestOrphansAreReaped: what a command leaves behind is the guardian's child, and no
// zombie that keeps its group alive where nobody else reaps it.
func TestOrphansAreReaped(t *testing.T) {
	cmd := exec.Command("/proc/self/exe", "run", "x", "--migrate", "--dsn", "sqlite:"+filepath.Join(t.TempDir(), "a.db"), "--",
		"sh", "-c", "sleep 1000 >/dev/null 2>&1 & exit 0")
	cmd.Env = append(os.Environ(), reaperEnv+"=1")
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "<nil>\nleft: -1, "+syscall.ECHILD.Error()) {
		t.Errorf("%s%v", out, err)
	}
}
