package session

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// File is the book's place, relative to the root of the repository.
const File = "test/docs/commands.yaml"

// A Book says what becomes of the commands of pages. What it does not name, test/docs runs.
type Book struct {
	// Elsewhere are commands that another suite runs and compares.
	Elsewhere []Elsewhere `yaml:"elsewhere"`
	// Unrun are commands that no test runs, with the reasons.
	Unrun []Unrun `yaml:"unrun"`
	// Machines are the simulated machines of pages that need another than the usual one.
	Machines map[string]string `yaml:"machines"`
	// Repeated are patterns of commands that may be run again, until they print what the page says.
	Repeated []string `yaml:"repeated"`
	// Varies are patterns of what differs each time a command is run.
	Varies []string `yaml:"varies"`

	repeated, varies []*regexp.Regexp
}

// Elsewhere are commands of a page, all that no other part of the book names if it lists none.
type Elsewhere struct {
	Page string `yaml:"page"`
	// Test is the folder and the name of the function, such as test/containers.TestPage.
	Test     string   `yaml:"test"`
	Commands []string `yaml:"commands"`
}

// Unrun are commands, by page, that are not run for one reason.
type Unrun struct {
	Reason   string              `yaml:"reason"`
	Commands map[string][]string `yaml:"commands"`
}

// ErrBook is the error of a book that does not fit the pages.
var ErrBook = errors.New("the book of commands does not fit the pages")

// Open reads the book of a repository.
func Open(root string) (*Book, error) {
	text, err := os.ReadFile(filepath.Join(root, File))
	if err != nil {
		return nil, fmt.Errorf("read the book of commands: %w", err)
	}
	return Parse(text)
}

// Parse reads a book. Unknown fields are errors.
func Parse(text []byte) (*Book, error) {
	b := &Book{}
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(b); err != nil {
		return nil, fmt.Errorf("read the book of commands: %w", err)
	}
	var err error
	if b.repeated, err = compile(b.Repeated); err != nil {
		return nil, err
	}
	b.varies, err = compile(b.Varies)
	return b, err
}

// compile makes expressions of patterns.
func compile(patterns []string) ([]*regexp.Regexp, error) {
	var all []*regexp.Regexp
	for _, text := range patterns {
		p, err := regexp.Compile(text)
		if err != nil {
			return nil, fmt.Errorf("read the book of commands: %w", err)
		}
		all = append(all, p)
	}
	return all, nil
}

// Repeats reports whether a command may be run again.
func (b *Book) Repeats(c Command) bool {
	return slices.ContainsFunc(b.repeated, func(p *regexp.Regexp) bool { return p.MatchString(c.Text) })
}

// Prints reports whether what a command printed is the page's output.
func (b *Book) Prints(c Command, got string) bool { return c.prints(got, b.varies) }

// Fate is what becomes of a command: the reason why no test runs it, or the suite that does, or nothing for test/docs.
func (b *Book) Fate(c Command) (reason, test string) {
	for _, u := range b.Unrun {
		if slices.Contains(u.Commands[c.Page], c.Text) {
			return u.Reason, ""
		}
	}
	for _, e := range b.Elsewhere {
		if e.Page == c.Page && (len(e.Commands) == 0 || slices.Contains(e.Commands, c.Text)) {
			return "", e.Test
		}
	}
	return "", ""
}

// Of returns the commands that a suite runs, in order: those of test/docs if test is empty.
func (b *Book) Of(test string, commands []Command) []Command {
	var all []Command
	for _, c := range commands {
		if reason, by := b.Fate(c); reason == "" && by == test {
			all = append(all, c)
		}
	}
	return all
}

// Check lists what the book says of commands that pages do not have, reasons that say nothing, and suites that root does not have.
func (b *Book) Check(root string, commands []Command) []error {
	var faults []error
	fault := func(format string, args ...any) {
		faults = append(faults, fmt.Errorf("%w: "+format, append([]any{ErrBook}, args...)...))
	}
	has := func(page string, text ...string) bool {
		return slices.ContainsFunc(commands, func(c Command) bool { return c.Page == page && (len(text) == 0 || c.Text == text[0]) })
	}
	for _, u := range b.Unrun {
		if len(strings.Fields(u.Reason)) < 3 {
			fault("%q is no reason", u.Reason)
		}
		for page, texts := range u.Commands {
			for _, text := range texts {
				if !has(page, text) {
					fault("%s has no command %q, which the book lists as not run", page, text)
				}
			}
		}
	}
	for _, e := range b.Elsewhere {
		if !has(e.Page) {
			fault("%s has no command for %s", e.Page, e.Test)
		}
		for _, text := range e.Commands {
			if !has(e.Page, text) {
				fault("%s has no command %q, which %s should run", e.Page, text, e.Test)
			}
		}
		if !exists(root, e) {
			fault("there is no test %s that reads %s", e.Test, e.Page)
		}
	}
	for page := range b.Machines {
		if !has(page) {
			fault("%s has no command for a machine", page)
		}
	}
	return faults
}

// followers are what reads a page for a test and has it run all that the book gives to it.
var followers = [][]byte{[]byte("test/docs/session\""), []byte("test/e2e/desk\"")}

// exists reports whether a suite has the test, in a file that names the page and a follower.
func exists(root string, e Elsewhere) bool {
	folder, name, _ := strings.Cut(e.Test, ".")
	files, _ := filepath.Glob(filepath.Join(root, folder, "*_test.go"))
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err == nil && bytes.Contains(text, []byte("\nfunc "+name+"(")) && bytes.Contains(text, []byte(`"`+e.Page+`"`)) &&
			slices.ContainsFunc(followers, func(f []byte) bool { return bytes.Contains(text, f) }) {
			return true
		}
	}
	return false
}
