package main

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// asCommand makes the test binary the command under test.
const asCommand = "DIVVY_TEST_AS_LEFTOVER"

func TestMain(m *testing.M) {
	if os.Getenv(asCommand) != "" {
		main()
	}
	os.Exit(m.Run())
}

func leftover(t *testing.T, args ...string) (status int, said string) {
	t.Helper()
	var out bytes.Buffer
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), asCommand+"=1")
	cmd.Stderr = &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String()
}

func TestStatusIsTheCommands(t *testing.T) {
	if status, said := leftover(t, "sh", "-c", "exit 7"); status != 7 || said != "" {
		t.Errorf("exit status %d, said %q", status, said)
	}
}

// A process that ends shortly after the command is not left.
func TestLateEndIsAwaited(t *testing.T) {
	if status, said := leftover(t, "-grace", "10m", "sh", "-c", "sleep 0.2 &"); status != 0 || said != "" {
		t.Errorf("exit status %d, said %q", status, said)
	}
}

// The orphan has a session and an environment of its own.
func TestOrphansAreNamedAndKilled(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	status, said := leftover(t, "-grace", "0s", "sh", "-c", `setsid env -i /bin/sh -c 'echo $$ >"$0"; exec sleep 1000' "$0" >/dev/null 2>&1 &
until [ -s "$0" ]; do :; done`, file)
	if status == 0 || !strings.Contains(said, "sleep 1000") {
		t.Errorf("exit status %d, said %q", status, said)
	}
	pid, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + strings.TrimSpace(string(pid))); err == nil {
		t.Errorf("process %s still runs", pid)
	}
}
