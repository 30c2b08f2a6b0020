package remote

import (
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
)

// A container finds the client's libraries wherever programs look for the driver's, and in them the folder as it sees it. It gets no
// device, and no name that the other host's driver lacks.
func TestContained(t *testing.T) {
	dir := t.TempDir()
	c := Contained{Dir: dir, Tree: installtest.Tree(t), Cover: "/run/divvy/divvy-cover", Lacks: []string{"cuMemAlloc_v2"}, Name: "team/a"}
	p := c.Plan()
	for range 2 { // it may be made again
		if err := p.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if len(p.Edits.Devices)+len(p.Edits.Binds) > 0 || len(p.Edits.Hooks) != 1 || p.Edits.Hooks[0].Outside {
		t.Errorf("the container gets %+v", p.Edits)
	}
	targets := map[string]string{}
	for _, m := range p.Edits.Mounts {
		targets[m.Target] = m.Source
		if _, err := os.Stat(m.Source); err != nil || !slices.Equal(m.Options, edits.ReadOnly) || !strings.HasPrefix(m.Source, dir) {
			t.Errorf("mount %+v: %v", m, err)
		}
	}
	if targets[edits.ShareDir] != c.Client() || filepath.Dir(c.Socket()) != c.Client() {
		t.Errorf("the container sees %s of %s", targets[edits.ShareDir], c.Socket())
	}
	for _, folder := range driver.Folders() {
		for _, name := range []string{"libcuda.so.1", "libcuda.so", "libnvidia-ml.so.1", "libnvidia-ml.so"} {
			if targets[filepath.Join(folder, name)] == "" {
				t.Errorf("nothing is at %s in %s", name, folder)
			}
		}
	}
	file, err := elf.Open(filepath.Join(c.Client(), "libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if runpath, err := file.DynString(elf.DT_RUNPATH); err != nil || !slices.Equal(runpath, []string{edits.ShareDir}) {
		t.Errorf("it looks for its code in %v, %v", runpath, err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	has := func(name string) bool {
		return slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == name && s.Value != 0 })
	}
	if has("cuMemAlloc_v2") || !has("cuMemFree_v2") {
		t.Errorf("it has cuMemAlloc_v2: %v, and cuMemFree_v2: %v", has("cuMemAlloc_v2"), has("cuMemFree_v2"))
	}
	c.Dir = "/" + strings.Repeat("x", 90)
	if c.Check() == nil {
		t.Error("a path that is too long passes")
	}
}
