package install

import (
	"path/filepath"
	"testing"
)

func TestVariableOverridesTheProgramsPlace(t *testing.T) {
	t.Setenv(Variable, "")
	beside, err := Find()
	if err != nil || !filepath.IsAbs(string(beside)) {
		t.Errorf("Find() = %q, %v", beside, err)
	}
	t.Setenv(Variable, "/opt/divvy")
	tree, err := Find()
	if err != nil {
		t.Fatal(err)
	}
	if got := tree.Library("libcuda.so.1"); got != "/opt/divvy/lib/divvy/libcuda.so.1" {
		t.Errorf("Library = %s", got)
	}
	if got := tree.Client("libcuda.so.1"); got != "/opt/divvy/lib/remote/libcuda.so.1" {
		t.Errorf("Client = %s", got)
	}
	if got := tree.Program("divvy-enter"); got != "/opt/divvy/libexec/divvy/divvy-enter" {
		t.Errorf("Program = %s", got)
	}
}

func TestProgramsKnowTheirTree(t *testing.T) {
	for program, want := range map[string]Tree{
		"/opt/divvy/bin/divvy":                   "/opt/divvy",
		"/opt/divvy/libexec/divvy/divvy-cluster": "/opt/divvy",
		"/usr/local/bin/divvy":                   "/usr/local",
	} {
		if got := treeOf(program); got != want {
			t.Errorf("%s is of %s, want %s", program, got, want)
		}
	}
}
