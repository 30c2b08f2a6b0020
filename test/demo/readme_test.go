package main

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/docs/session"
)

var update = flag.Bool("update", false, "write into the pages what the demonstration prints")

// The demonstration passes, and prints what README shows in each language. What it needs is built already: make, which must not
// build under other tests, is told so.
func TestReadme(t *testing.T) {
	root, prefix := installtest.Root(t), string(installtest.Tree(t))
	prefix, err := filepath.Abs(prefix)
	if err != nil {
		t.Fatal(err)
	}
	const command = "make demo"
	text, err := shown(root, prefix, command)
	if err != nil {
		t.Fatalf("%s: %v\n%s", command, err, text)
	}
	for _, page := range []string{"README.md", "README.zh-CN.md"} {
		commands, book, err := session.Page(root, page, "test/demo.TestReadme")
		if err != nil {
			t.Fatal(err)
		}
		if len(commands) != 1 || commands[0].Text != command {
			t.Fatalf("%s has the commands %v for this test", page, commands)
		}
		if book.Prints(commands[0], text) {
			continue
		}
		t.Errorf("%v\nprints\n%s\nand the page has\n%s", commands[0], text, commands[0].Output)
		if *update {
			write(t, filepath.Join(root, page), commands, text)
		}
	}
}

// shown runs a command of make's, without what must be built for it.
func shown(root, prefix, command string) (string, error) {
	target, isMake := strings.CutPrefix(command, "make ")
	if !isMake {
		return "", errors.New("it is none of make's")
	}
	cmd := exec.Command("make", "--no-print-directory", "-o", "build", target, "B="+prefix)
	cmd.Dir = root
	cmd.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return strings.HasPrefix(name, "MAKE") || name == "MFLAGS" // of the make that runs the tests
	})
	text, err := cmd.CombinedOutput()
	return string(text), err
}

func write(t *testing.T, file string, commands []session.Command, output string) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(session.Rewrite(string(text), commands, map[int]string{commands[0].Line: output})), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}
