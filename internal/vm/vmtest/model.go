package vmtest

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Model is a modelled host by its name; root is the repository's.
func Model(t testing.TB, root, name string) *facts.Host {
	t.Helper()
	file, err := os.Open(filepath.Join(root, "testdata/hosts/vm", name+".host"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	recorded, err := hostfile.Parse(file, name)
	if err != nil {
		t.Fatal(err)
	}
	host, err := facts.Read(recorded.Root())
	if err != nil {
		t.Fatal(err)
	}
	return host
}
