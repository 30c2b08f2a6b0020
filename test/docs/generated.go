package docs

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// Generated holds what a page has between the marks of a source, both by their paths: the page's from the test's folder, the
// source's from the root. With update it is written into the page.
func Generated(t testing.TB, page, source, want string, update bool) {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	whole, err := generated(string(text), source, want)
	switch {
	case err != nil:
		t.Fatalf("%s: %v", page, err)
	case update:
		if err := os.WriteFile(page, []byte(whole), 0o644); err != nil {
			t.Fatal(err)
		}
	case whole != string(text):
		t.Errorf("%s differs from %s: go test -run %s -update", page, source, t.Name())
	}
}

// generated is a page with what it should have between the marks.
func generated(text, source, want string) (string, error) {
	begin, end := "<!-- generated from "+source+" -->\n", "<!-- end of what is generated -->"
	before, rest, found := strings.Cut(text, begin)
	_, after, ended := strings.Cut(rest, end)
	if !found || !ended {
		return "", fmt.Errorf("there is no place for what is generated from %s", source)
	}
	return before + begin + "\n" + want + "\n" + end + after, nil
}
