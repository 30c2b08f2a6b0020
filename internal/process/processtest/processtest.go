// Package processtest gives tests processes in namespaces of their own.
package processtest

import (
	"errors"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// Start runs a shell script in new namespaces (CLONE_NEW… of clone(2)) and returns when it has come to its end. The
// shell then waits, as the same process, until the test ends. The script's positional parameters are args; it fails
// the test if a command of it fails. Where nobody may make such namespaces the test is skipped, as "users" is missing.
func Start(t testing.TB, namespaces uintptr, script string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sh", append([]string{"-c", "set -e\n" + script + "\necho ready; exec cat", "sh"}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces, Pdeathsig: syscall.SIGKILL}
	begin(t, cmd)
	return cmd
}

// Again runs a test of this program again, in a user and a network namespace of its own and with variables added, and
// returns when it has printed [Ready]. It should then read its input, which ends with the test or with the returned
// function; that waits for it. Where nobody may make such namespaces the test is skipped, as "users" is missing.
func Again(t testing.TB, test string, variables ...string) (cmd *exec.Cmd, end func()) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^"+test+"$")
	cmd.Env = append(os.Environ(), variables...)
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWUSER | unix.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}},
	}
	return cmd, begin(t, cmd)
}

// Ready is what a process prints that has come to where its test waits for it.
const Ready = "ready\n"

// begin starts a process and returns when it is ready.
func begin(t testing.TB, cmd *exec.Cmd) (end func()) {
	t.Helper()
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
	end = sync.OnceFunc(func() {
		_ = input.Close()
		_ = cmd.Wait()
	})
	t.Cleanup(end)
	said, one := "", make([]byte, 1)
	for !strings.HasSuffix(said, Ready) {
		if _, err := output.Read(one); err != nil {
			t.Fatalf("it ended after %q: %v", said, err)
		}
		said += string(one)
	}
	return end
}
