package integration

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// missing ends a test that needs a feature which is not here. It fails where the
// feature was promised, so that a green run means that the test ran.
func missing(t *testing.T, feature, format string, args ...any) {
	t.Helper()
	promised := strings.Split(os.Getenv("DIVVY_REQUIRE"), ",")
	if os.Getenv("CI") == "true" || slices.Contains(promised, feature) {
		t.Fatalf(format+" (CI or DIVVY_REQUIRE promises "+feature+")", args...)
	}
	t.Skipf(format, args...)
}

// without ends a test that needs somebody else's program.
func without(t *testing.T, format string, args ...any) {
	t.Helper()
	missing(t, "third-party", format+": `make test-deps` installs what it can", args...)
}

// output runs a program of the test's own set-up and returns what it says.
func output(ctx context.Context, name string, args ...string) (string, error) {
	text, err := exec.CommandContext(ctx, name, args...).CombinedOutput()
	return string(text), err
}

// python returns an interpreter that has the packages of requirements.txt. They
// are installed once, below .cache of the repository.
func python(t *testing.T) string {
	t.Helper()
	wanted, err := os.ReadFile("testdata/requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	dir, err := filepath.Abs("../../.cache/third-party")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	lock, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	venv := filepath.Join(dir, "python")
	interpreter := filepath.Join(venv, "bin", "python")
	// The list inside the environment is written last: it marks what is whole.
	if have, err := os.ReadFile(filepath.Join(venv, "requirements.txt")); err == nil && string(have) == string(wanted) {
		return interpreter
	}
	ctx, cancel := context.WithTimeout(t.Context(), longest)
	defer cancel()
	if said, err := output(ctx, "python3", "-m", "venv", "--clear", venv); err != nil {
		without(t, "make a Python environment: %v: %s", err, said)
	}
	if said, err := output(ctx, interpreter, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
		"-r", "testdata/requirements.txt"); err != nil {
		without(t, "install %q: %v: %s", strings.Fields(string(wanted)), err, said)
	}
	if err := os.WriteFile(filepath.Join(venv, "requirements.txt"), wanted, 0o600); err != nil {
		t.Fatal(err)
	}
	return interpreter
}

// program returns the path of a program that the distribution provides.
func program(t *testing.T, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		without(t, "find %s: %v", name, err)
	}
	return path
}
