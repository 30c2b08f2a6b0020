// Package processtest gives tests processes in namespaces of their own.
package processtest

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// Start runs a shell script in new namespaces (CLONE_NEW… of clone(2)) and returns when it has come to its end. The
// shell then waits, as the same process, until the test ends. The script's positional parameters are args; it fails
// the test if a command of it fails. Where nobody may make such namespaces the test is skipped, as "users" is missing.
func Start(t testing.TB, namespaces uintptr, script string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", "set -e\n" + script + "\necho ready; exec cat", "sh"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); errors.Is(err, syscall.EPERM) {
		installtest.Missing(t, "users", err)
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = input.Close()
		_ = cmd.Wait()
	})
	said, one := "", make([]byte, 1)
	for !strings.HasSuffix(said, "ready\n") {
		if _, err := output.Read(one); err != nil {
			t.Fatalf("it ended after %q: %v", said, err)
		}
		said += string(one)
	}
	return cmd
}
