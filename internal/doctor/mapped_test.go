package doctor

import (
	"context"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	gort "runtime"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

// A sparse file whose table of names is as large as its maker likes takes no memory of who reads it, and of many libraries of
// one process the first ones are read.
func TestHostileLibraries(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "libcuda.so.1")
	if out, err := exec.Command("cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", path).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var header elf.Header64
	if _, err := binary.Decode(image, binary.LittleEndian, &header); err != nil {
		t.Fatal(err)
	}
	const large = 256 << 20
	sections := make([]elf.Section64, header.Shnum)
	if _, err := binary.Decode(image[header.Shoff:], binary.LittleEndian, sections); err != nil {
		t.Fatal(err)
	}
	names := &sections[slices.IndexFunc(sections, func(s elf.Section64) bool { return elf.SectionType(s.Type) == elf.SHT_DYNAMIC })]
	names.Off, names.Size = 1<<20, large
	if _, err := binary.Encode(image[header.Shoff:], binary.LittleEndian, sections); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.WriteFile(path, image, 0o600), os.Truncate(path, large+(2<<20))); err != nil {
		t.Fatal(err)
	}
	var before, after gort.MemStats
	gort.ReadMemStats(&before)
	LibraryAt(path)
	gort.ReadMemStats(&after)
	if taken := after.TotalAlloc - before.TotalAlloc; taken > 16<<20 {
		t.Errorf("reading it took %d bytes", taken)
	}
}

// Of many libraries that a process has mapped the first ones are looked at, and none when time is over.
func TestManyLibraries(t *testing.T) {
	dir := t.TempDir()
	for i := range 3 * mostLibraries {
		path := filepath.Join(dir, fmt.Sprintf("libcuda.so.%d", i))
		if err := os.WriteFile(path, make([]byte, 4096), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		mapped, err := unix.Mmap(int(file.Fd()), 0, 4096, unix.PROT_READ, unix.MAP_PRIVATE)
		if err := errors.Join(err, file.Close()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := unix.Munmap(mapped); err != nil {
				t.Error(err)
			}
		})
	}
	if libraries, err := Mapped(t.Context(), os.Getpid()); err != nil || len(libraries) != mostLibraries {
		t.Errorf("%d libraries, %v", len(libraries), err)
	}
	ended, end := context.WithCancel(t.Context())
	end()
	if libraries, err := Mapped(ended, os.Getpid()); err == nil {
		t.Errorf("%d libraries", len(libraries))
	}
}
