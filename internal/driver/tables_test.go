package driver

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
)

// A file of a few KiB on disk, whose tables are as large as its maker likes, takes no memory of who reads it.
func TestLargeTablesAreNotRead(t *testing.T) {
	const large = 512 << 20
	image, err := os.ReadFile(newHost(t).compile(library, "libcuda.so.1", "libcuda.so.1"))
	if err != nil {
		t.Fatal(err)
	}
	of := func(kind elf.SectionType) func(elf.Section64) bool {
		return func(s elf.Section64) bool { return elf.SectionType(s.Type) == kind }
	}
	notLoaded := func(s elf.Section64) bool {
		return elf.SectionType(s.Type) == elf.SHT_PROGBITS && elf.SectionFlag(s.Flags)&elf.SHF_ALLOC == 0
	}
	grow := func(s *elf.Section64) { s.Off, s.Size = 1<<20, large }
	for name, change := range map[string]func(h *elf.Header64, s []elf.Section64){
		"symbols": func(_ *elf.Header64, s []elf.Section64) {
			symbols, other := &s[slices.IndexFunc(s, of(elf.SHT_DYNSYM))], &s[slices.IndexFunc(s, notLoaded)]
			symbols.Type, other.Type, other.Link = uint32(elf.SHT_NOTE), uint32(elf.SHT_DYNSYM), symbols.Link
			grow(other)
		},
		"strings of symbols": func(_ *elf.Header64, s []elf.Section64) {
			other := slices.IndexFunc(s, notLoaded)
			s[slices.IndexFunc(s, of(elf.SHT_DYNSYM))].Link = uint32(other)
			grow(&s[other])
		},
		"names": func(_ *elf.Header64, s []elf.Section64) {
			grow(&s[slices.IndexFunc(s, of(elf.SHT_DYNAMIC))])
		},
		"sections": func(h *elf.Header64, s []elf.Section64) {
			h.Shnum, s[0].Size = 0, large/uint64(h.Shentsize)
		},
	} {
		t.Run(name, func(t *testing.T) {
			changed := bytes.Clone(image)
			header := first(bytes.NewReader(image))
			sections := make([]elf.Section64, header.Shnum)
			if _, err := binary.Decode(image[header.Shoff:], binary.LittleEndian, sections); err != nil {
				t.Fatal(err)
			}
			at := header.Shoff
			change(&header, sections)
			if _, err := binary.Encode(changed, binary.LittleEndian, header); err != nil {
				t.Fatal(err)
			}
			if _, err := binary.Encode(changed[at:], binary.LittleEndian, sections); err != nil {
				t.Fatal(err)
			}
			path := filepath.Join(t.TempDir(), "libcuda.so.1")
			if err := errors.Join(os.WriteFile(path, changed, 0o600), os.Truncate(path, large+(2<<20))); err != nil {
				t.Fatal(err)
			}
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := inspect(path)
			runtime.ReadMemStats(&after)
			if fault := (*Fault)(nil); !errors.As(err, &fault) {
				t.Errorf("it is taken: %v", err)
			}
			if taken := after.TotalAlloc - before.TotalAlloc; taken > 16<<20 {
				t.Errorf("reading it took %d bytes", taken)
			}
		})
	}
}

// Of any number of folders and files that a tenant names so many are read, and the linker's own name among them.
func TestCrowdedLibraryPath(t *testing.T) {
	h := newHost(t)
	h.sound("usr/lib64", "550.54.15")
	own := h.object("home/many/libcuda.so.1", "libcuda.so.1")
	many := filepath.Dir(own)
	for i := range 2 * mostAsked {
		if err := os.Link(own, fmt.Sprint(own, ".", i)); err != nil {
			t.Fatal(err)
		}
	}
	path := []string{many, many}
	for i := range 2 * mostFolders {
		dir := filepath.Join(h.root, "home", fmt.Sprint(i))
		if err := errors.Join(os.Mkdir(dir, 0o755), os.Link(own, filepath.Join(dir, "libcuda.so.1"))); err != nil {
			t.Fatal(err)
		}
		path = append(path, dir)
	}
	d, err := Finder{Root: h.root, LibraryPath: path}.Find()
	if err != nil || d.Files[CUDA][0] != own {
		t.Fatalf("%v, %v", d, err)
	}
	if files := len(d.Files[CUDA]); files != mostFolders-1+mostAsked+1 {
		t.Errorf("%d files are read", files)
	}
}
