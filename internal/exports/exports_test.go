package exports

import (
	"bytes"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// object is a shared object with the names a, b and c.
func object(t testing.TB) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "lib.so")
	cmd := exec.Command("cc", "-shared", "-fPIC", "-nostdlib", "-x", "c", "-", "-s", "-o", path)
	cmd.Stdin = strings.NewReader("int a; int b(void) { return a; } int c(void) { return b(); }")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return image
}

func TestKeep(t *testing.T) {
	image := object(t)
	kept, err := Keep(image, func(name string) bool { return name != "b" })
	if err != nil {
		t.Fatal(err)
	}
	file, err := elf.NewFile(bytes.NewReader(kept))
	if err != nil {
		t.Fatal(err)
	}
	symbols, err := file.DynamicSymbols()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, s := range symbols {
		if s.Section != elf.SHN_UNDEF {
			names = append(names, s.Name)
		}
	}
	slices.Sort(names)
	if !slices.Equal(names, []string{"a", "c"}) || len(kept) != len(image) {
		t.Errorf("%d bytes of %d export %v, want a and c", len(kept), len(image), names)
	}
	if !bytes.Equal(image, object(t)) {
		t.Error("the image that was given has changed")
	}
}

func FuzzKeep(f *testing.F) {
	image := object(f)
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint32(0x28))
	f.Add([]byte{0}, uint32(0))
	f.Fuzz(func(t *testing.T, change []byte, at uint32) {
		damaged := bytes.Clone(image)
		copy(damaged[int(at)%len(damaged):], change)
		if kept, err := Keep(damaged, func(name string) bool { return name == "a" }); err == nil && len(kept) != len(damaged) {
			t.Fatal("the size changed")
		}
	})
}
