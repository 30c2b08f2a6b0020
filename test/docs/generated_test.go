package docs

import "testing"

// Only what stands between the marks of a source is replaced.
func TestGenerated(t *testing.T) {
	const page = "# A page\n<!-- generated from a.go -->\nold\n<!-- end of what is generated -->\nthe rest\n"
	whole, err := generated(page, "a.go", "| new |")
	if want := "# A page\n<!-- generated from a.go -->\n\n| new |\n<!-- end of what is generated -->\nthe rest\n"; err != nil || whole != want {
		t.Errorf("%q, %v", whole, err)
	}
	if again, err := generated(whole, "a.go", "| new |"); err != nil || again != whole {
		t.Errorf("again: %q, %v", again, err)
	}
	for _, source := range []string{"b.go", ""} {
		if _, err := generated(page, source, ""); err == nil {
			t.Errorf("%q has a place", source)
		}
	}
	if _, err := generated("<!-- generated from a.go -->\n", "a.go", ""); err == nil {
		t.Error("the end of it may be missing")
	}
}
