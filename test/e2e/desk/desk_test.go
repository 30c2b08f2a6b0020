package desk

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/test/docs/session"
)

// What the pages install looks for the simulated machine, and nothing else of it differs from what is shipped.
func TestFurnish(t *testing.T) {
	dir, root := t.TempDir(), installtest.Root(t)
	if err := furnish(dir, root, "/run/machine"); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]int{"deploy/chart/values.yaml": 1, "deploy/manifests/divvy.yaml": 3, "deploy/chart/templates/agent.yaml": 0} {
		shipped, furnished := lines(t, filepath.Join(root, name)), lines(t, filepath.Join(dir, name))
		if len(shipped) != len(furnished) {
			t.Fatalf("%s has %d lines, and %d are shipped", name, len(furnished), len(shipped))
		}
		differ := 0
		for i := range shipped {
			if shipped[i] == furnished[i] {
				continue
			}
			if differ++; !strings.Contains(furnished[i], "/run/machine") {
				t.Errorf("%s: %q is now %q", name, shipped[i], furnished[i])
			}
		}
		if differ != want {
			t.Errorf("%s differs in %d lines, want %d", name, differ, want)
		}
	}
}

func lines(t *testing.T, file string) []string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(string(text), "\n")
}

// Commands that a page offers in the place of others come last, and one that a test has not run is found.
func TestLast(t *testing.T) {
	d := &Desk{t: t}
	for _, text := range []string{"a", "b", "c", "b"} {
		d.left = append(d.left, session.Command{Page: "page", Line: len(d.left) + 1, Text: text})
	}
	d.Last("b", "a")
	var got []string
	for _, c := range d.left {
		got = append(got, c.Text)
	}
	if want := []string{"c", "b", "b", "a"}; !slices.Equal(got, want) {
		t.Errorf("the order is %v, want %v", got, want)
	}
	if faults := d.unrun(); len(faults) != 4 || faults[1] != "page:4: b: the test has not run it" {
		t.Errorf("not run are %q", faults)
	}
}
