package driver

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
)

// A folder is read once, under whichever name, and paths have the name that was asked for.
func TestFoldersAreReadOnce(t *testing.T) {
	root := t.TempDir()
	dir, other := filepath.Join(root, "lib"), filepath.Join(root, "also-lib")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(dir, other); err != nil {
		t.Fatal(err)
	}
	write := func(name string) {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"libcuda.so.1", "libcuda.so.550.1", "libc.so.6", "libnvidia-ml.so.1"} {
		write(name)
	}
	known := newFolders()
	if got, want := known.versions(dir, CUDA), []string{dir + "/libcuda.so.1", dir + "/libcuda.so.550.1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	write("libnvidia-ml.so.2") // after the folder was read
	if got, want := known.versions(filepath.Join(root, "*lib"), NVML), []string{other + "/libnvidia-ml.so.1", dir + "/libnvidia-ml.so.1"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := os.Mkdir(filepath.Join(root, "third-lib"), 0o700); err != nil {
		t.Fatal(err)
	}
	if got := known.versions(filepath.Join(root, "*lib"), CUDA); len(got) != 4 {
		t.Errorf("got %q of folders that were looked for before", got)
	}
	if got := known.dirs[filepath.Join(root, "*lib")]; len(got) != 2 {
		t.Errorf("the folders of a pattern were looked for again: %q", got)
	}
	if got := known.versions(filepath.Join(root, "none"), CUDA); got != nil {
		t.Errorf("a folder that is not there has %q", got)
	}
}
