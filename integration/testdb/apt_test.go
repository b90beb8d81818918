package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeApt is an installer that would be allowed to do everything, on a machine that is a temporary folder.
func fakeApt(t *testing.T, known ...string) (*installer, *[]string) {
	t.Helper()
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "debian_version"), []byte("12.5\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	var calls []string
	teller, _ := quiet()
	i := &installer{allowed: true, root: true, etc: dir, policy: filepath.Join(dir, "policy-rc.d"), tell: teller}
	i.run = func(ctx context.Context, name string, args ...string) (string, error) {
		if name == i.policy {
			out, err := exec.Command(name, args...).CombinedOutput()
			return string(out), err
		}
		call := name + " " + strings.Join(args, " ")
		if name == "apt-cache" {
			if slices.Contains(known, args[1]) {
				return "  Candidate: 1.2-3\n", nil
			}
			return args[1] + ":\n  Candidate: (none)\n", nil
		}
		if slices.Contains(args, "install") {
			if err := exec.Command(i.policy, "postgresql", "start").Run(); err == nil || err.Error() != "exit status 101" {
				t.Errorf("while packages are installed, policy-rc.d says %v, want 101", err)
			}
		}
		calls = append(calls, call)
		return "", nil
	}
	return i, &calls
}

func TestAptIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		change func(i *installer)
		want   string
	}{
		"switched off": {func(i *installer) { i.allowed = false }, "SQLLOCK_TEST_APT=0"},
		"not root":     {func(i *installer) { i.root = false }, "needs root"},
		"not Debian":   {func(i *installer) { i.etc = filepath.Join(i.etc, "none") }, "Debian and Ubuntu only"},
	} {
		i, calls := fakeApt(t, "postgresql")
		test.change(i)
		err := i.install(context.Background(), kindNamed(t, "postgres"))
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
		if len(*calls) > 0 {
			t.Errorf("%s: it ran %q all the same", name, *calls)
		}
	}
}

func TestAptHoldsServicesAndPushesNothingOut(t *testing.T) {
	i, calls := fakeApt(t, "mysql-server-core-8.0")
	if err := i.install(context.Background(), kindNamed(t, "mysql")); err != nil {
		t.Fatal(err)
	}
	if len(*calls) != 2 || (*calls)[0] != "apt-get -q update" || !strings.HasSuffix((*calls)[1], " install mysql-server-core-8.0") ||
		!strings.Contains((*calls)[1], "--no-remove") {
		t.Errorf("ran %q", *calls)
	}
	if _, err := os.Stat(i.policy); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("policy-rc.d is left: %v", err)
	}
	err := i.install(context.Background(), kindNamed(t, "mariadb"))
	if err == nil || !strings.Contains(err.Error(), "apt has no package mariadb-server-core") {
		t.Errorf("a package that apt does not know: %v", err)
	}
}

func TestAptLeavesSomebodysPolicyAlone(t *testing.T) {
	i, calls := fakeApt(t, "postgresql")
	script(t, i.policy, "exit 0")
	if err := i.install(context.Background(), kindNamed(t, "postgres")); err == nil || !strings.Contains(err.Error(), "lets packages start") {
		t.Errorf("a policy that allows services: %v", err)
	}
	if slices.ContainsFunc(*calls, func(c string) bool { return strings.Contains(c, "install") }) {
		t.Errorf("ran %q", *calls)
	}
	script(t, i.policy, "exit 101")
	if err := i.install(context.Background(), kindNamed(t, "postgres")); err != nil {
		t.Errorf("a policy that forbids services: %v", err)
	}
	if _, err := os.Stat(i.policy); err != nil {
		t.Errorf("the policy is gone: %v", err)
	}
}
