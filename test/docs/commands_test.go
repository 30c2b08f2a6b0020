package docs

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/test/docs/session"
)

var update = flag.Bool("update", false, "write into the pages what their commands print")

// Each page's commands print what the page says, one after the other on one machine.
func TestCommands(t *testing.T) {
	all, err := session.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	book, err := session.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	for here := book.Of("", all); len(here) > 0; {
		page := here[0].Page
		end := slices.IndexFunc(here, func(c session.Command) bool { return c.Page != page })
		if end < 0 {
			end = len(here)
		}
		of := here[:end]
		here = here[end:]
		t.Run(page, func(t *testing.T) {
			machine := book.Machines[page]
			if machine == "" {
				machine = usualMachine
			}
			user := "ada"
			if of[0].User == "root" {
				user = "root"
			}
			runPage(t, open(t, machine, user), of, book)
		})
	}
}

// runPage runs the commands of a page, and writes what differs into it if it is told so.
func runPage(t *testing.T, s *shell, commands []session.Command, book *session.Book) {
	t.Helper()
	outputs := map[int]string{}
	for _, c := range commands {
		output, err := s.try(t.Context(), c, book)
		if err != nil {
			outputs[c.Line] = output
			t.Error(err)
		}
	}
	if !*update || len(outputs) == 0 {
		return
	}
	file := filepath.Join(root, commands[0].Page)
	text, err := os.ReadFile(file)
	if err == nil {
		err = os.WriteFile(file, []byte(session.Rewrite(string(text), commands, outputs)), 0o644)
	}
	if err != nil {
		t.Error(err)
	}
}

// The book names commands that pages have and tests that there are, and most commands are run.
func TestBook(t *testing.T) {
	all, err := session.Pages(root)
	if err != nil {
		t.Fatal(err)
	}
	book, err := session.Open(root)
	if err != nil {
		t.Fatal(err)
	}
	for _, fault := range book.Check(root, all) {
		t.Error(fault)
	}
}

// A page that says something untrue is found: another output, none, one too many, a command that fails without a word.
func TestUntruePage(t *testing.T) {
	book, err := session.Parse([]byte(`repeated: ['^cat ']`))
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, usualMachine, "ada")
	for text, want := range map[string]bool{
		"    $ echo a\n    a\n":                        true,
		"    $ echo a\n    b\n":                        false,
		"    $ echo a\n":                               false,
		"    $ true\n    a\n":                          false,
		"    $ false\n":                                false,
		"    $ echo no; false\n    no\n":               true,
		"    $ (sleep 0.1; echo x >f) &\n":             false, // it starts neither a share nor an agent
		"    $ divvy run --memory 4Gi -- ./server &\n": true,
	} {
		commands, err := session.Read("page", text)
		if err != nil {
			t.Fatal(err)
		}
		s.settle = settles
		if !want {
			s.settle = time.Second // for what does not come
		}
		if _, err := s.try(t.Context(), commands[0], book); (err == nil) != want {
			t.Errorf("%s: %v", text, err)
		}
	}
}
