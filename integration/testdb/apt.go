package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"
)

// An installer puts packages on Debian or Ubuntu. Its fields are what tests replace.
type installer struct {
	allowed bool   // SQLLOCK_TEST_APT is not 0
	root    bool   // testdb runs as root
	etc     string // "/etc": debian_version lies there
	policy  string // "/usr/sbin/policy-rc.d"
	run     func(ctx context.Context, name string, args ...string) (string, error)
	tell    *teller
	updated bool
}

func newInstaller(allowed bool, t *teller) *installer {
	return &installer{
		allowed: allowed, root: isRoot(), etc: "/etc", policy: "/usr/sbin/policy-rc.d", run: runApt, tell: t,
	}
}

// refused is the reason why apt-get cannot be used here, or nil.
func (i *installer) refused() error {
	if _, err := os.Stat(filepath.Join(i.etc, "debian_version")); err != nil {
		return errors.New("apt-get is for Debian and Ubuntu only")
	}
	switch {
	case !i.allowed:
		return errors.New("apt-get is switched off by SQLLOCK_TEST_APT=0")
	case !i.root:
		return errors.New("apt-get needs root")
	}
	return nil
}

// install installs the first set of packages that apt knows and that goes in without pushing another package out:
// MySQL's and MariaDB's servers exclude each other on Debian. It announces itself, since it changes the machine.
func (i *installer) install(ctx context.Context, k *kind) error {
	if err := i.refused(); err != nil {
		return err
	}
	// Two testdbs at once would take the policy file from under each other. The lock is on a file that is there
	// anyway, so that none is left.
	unlock, err := lockFile(filepath.Join(i.etc, "debian_version"))
	if err != nil {
		return err
	}
	defer unlock()
	if !i.updated {
		i.tell.say("apt-get update, to look for database servers (SQLLOCK_TEST_APT=0 refuses this)")
		if out, err := i.run(ctx, "apt-get", "-q", "update"); err != nil {
			i.tell.say("apt-get update failed, going on with the lists that are there: %v: %s", err, tail(out))
		}
		i.updated = true
	}
	var why error
	for _, set := range k.packages {
		if err := i.known(ctx, set); err != nil {
			why = errors.Join(why, err)
			continue
		}
		i.tell.say("apt-get install %s for %s; their own services are not started (SQLLOCK_TEST_APT=0 refuses this)",
			strings.Join(set, " "), k.title)
		if err := i.installSet(ctx, set); err != nil {
			why = errors.Join(why, err)
			continue
		}
		return nil
	}
	return why
}

// known asks apt's cache whether all packages of a set can be had.
func (i *installer) known(ctx context.Context, set []string) error {
	for _, name := range set {
		out, err := i.run(ctx, "apt-cache", "policy", name)
		if err != nil {
			return fmt.Errorf("apt-cache policy %s: %w", name, err)
		}
		if !strings.Contains(out, "Candidate:") || strings.Contains(out, "Candidate: (none)") {
			return fmt.Errorf("apt has no package %s", name)
		}
	}
	return nil
}

func (i *installer) installSet(ctx context.Context, set []string) (err error) {
	restore, err := i.holdServices(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, restore()) }()
	args := append([]string{"-q", "-y", "--no-install-recommends", "--no-remove", "-o", "DPkg::Lock::Timeout=120", "install"}, set...)
	if out, err := i.run(ctx, "apt-get", args...); err != nil {
		return fmt.Errorf("apt-get install %s: %w: %s", strings.Join(set, " "), err, tail(out))
	}
	return nil
}

// holdServices makes sure that no package starts its service: Debian asks policy-rc.d, where 101 means no. One that
// is there already is somebody's own, and is left alone if it says no as well.
func (i *installer) holdServices(ctx context.Context) (restore func() error, err error) {
	f, err := os.OpenFile(i.policy, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o755)
	if errors.Is(err, os.ErrExist) {
		_, err := i.run(ctx, i.policy, "postgresql", "start")
		if exit := (*exec.ExitError)(nil); errors.As(err, &exit) && exit.ExitCode() == 101 {
			return func() error { return nil }, nil
		}
		return nil, fmt.Errorf("%s is there and lets packages start their services, so nothing is installed; move it away, or install the servers yourself", i.policy)
	}
	if err != nil {
		return nil, err
	}
	_, err = f.WriteString("#!/bin/sh\n# Put here by sqllock's testdb while it installs packages; safe to remove.\nexit 101\n")
	if err = errors.Join(err, f.Close(), os.Chmod(i.policy, 0o755)); err != nil {
		return nil, errors.Join(err, os.Remove(i.policy))
	}
	return func() error { return os.Remove(i.policy) }, nil
}

// runApt runs a tool to its end even if testdb is told to stop meanwhile: a dpkg cut short leaves a machine that has to
// be repaired by hand. It is bounded all the same.
func runApt(ctx context.Context, name string, args ...string) (string, error) {
	if ctx.Err() != nil {
		return "", ctx.Err()
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive", "NEEDRESTART_SUSPEND=1", "LC_ALL=C.UTF-8")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a Ctrl-C on the terminal is not for dpkg
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM) }
	cmd.WaitDelay = 30 * time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// lockFile waits until no other testdb holds the lock.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { f.Close() }, nil
}

func tail(out string) string {
	lines := strings.Split(strings.TrimSpace(out), "\n")
	return strings.Join(lines[max(0, len(lines)-3):], " | ")
}
