package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/plaintext"
)

func TestCommand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got := Command(os.Getpid()); got != plaintext.Line(filepath.Base(self), maxCommand) {
		t.Errorf("this program is called %q", got)
	}
	cmd := start(t)
	if got := Command(cmd.Process.Pid); strings.ContainsAny(got, "/ ") || got == "" {
		t.Errorf("another program is called %q", got)
	}
	ended := exec.Command("true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	if got := Command(ended.Process.Pid); got != "" {
		t.Errorf("a program that has ended is called %q", got)
	}
}

// A user names programs as they like: other users read the name in one line, cut, as letters.
func TestCommandOfAnyName(t *testing.T) {
	program, err := exec.LookPath("sleep")
	if err != nil {
		t.Fatal(err)
	}
	if program, err = filepath.EvalSymlinks(program); err != nil {
		t.Fatal(err)
	}
	if filepath.Base(program) != "sleep" {
		t.Skipf("%s does what its name says", program)
	}
	bytes, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"a\x1b[31mb\n": `a\x1b[31mb\n`, "\xff": `\xff`, strings.Repeat("ä", 40): strings.Repeat("ä", 32) + "…",
	} {
		copied := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(copied, bytes, 0o700); err != nil {
			t.Fatal(err)
		}
		cmd := exec.CommandContext(t.Context(), copied, "1000")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if got := Command(cmd.Process.Pid); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
}
