package process

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestCommand(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if got := Command(os.Getpid()); got != plain(filepath.Base(self)) {
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

func TestPlain(t *testing.T) {
	for name, want := range map[string]string{
		"python3": "python3", "a\x1b[31mb": "a?[31mb", "a\nb": "a?b", "\xff": "?",
		strings.Repeat("ä", 40): strings.Repeat("ä", 32) + "…",
	} {
		if got := plain(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
