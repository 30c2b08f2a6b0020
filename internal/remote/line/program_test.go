package line_test

import (
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/remote/line"
)

const role = "DIVVY_TEST_UPGRADED"

func TestMain(m *testing.M) {
	switch os.Getenv(role) {
	case "server":
		os.Exit(upgraded())
	case "process":
		if _, err := os.Stdout.WriteString("of the server's version"); err != nil {
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// upgraded has another file take the place of its own, and starts a process.
func upgraded() int {
	self, err := os.Executable()
	if err == nil {
		err = os.WriteFile(self+".new", []byte("#!/bin/sh\nprintf 'of the next version'\n"), 0o755)
	}
	if err == nil {
		err = os.Rename(self+".new", self)
	}
	cmd := exec.Command(self)
	cmd.Path = line.Program(self)
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{role + "=process"}, os.Stdout, os.Stderr
	if err == nil {
		err = cmd.Run()
	}
	if err != nil {
		return 1
	}
	return 0
}

// TestProcessesAreOfTheServersVersion replaces a server's file and then has it start a process.
func TestProcessesAreOfTheServersVersion(t *testing.T) {
	path := filepath.Join(t.TempDir(), "divvy")
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer from.Close()
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(to, from); err != nil {
		t.Fatal(err)
	}
	if err := to.Close(); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), path)
	cmd.Env = []string{role + "=server"}
	text, err := cmd.CombinedOutput()
	if err != nil || string(text) != "of the server's version" {
		t.Errorf("the process is %s, %v", text, err)
	}
}

func TestProgramsOfOthersKeepTheirPath(t *testing.T) {
	if got := line.Program("/bin/true"); got != "/bin/true" {
		t.Errorf("it is %s", got)
	}
}
