package driver

import (
	"debug/elf"
	"fmt"
	"os"
	"runtime"
	"slices"

	"golang.org/x/sys/unix"
)

// object is the part of a shared object's dynamic section that matters here.
type object struct {
	soname string
	needed []string
}

func (o object) needs(name string) bool {
	return slices.Contains(o.needed, name)
}

// machines maps Go's names of processors to ELF's.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// open opens a regular file and nothing else. Tenants name folders to search: if
// one held a pipe, open would block until somebody writes to it, and opening a
// device may have effects.
func open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	// Another file may have this name by now, so open must not block either.
	file, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	if info, err = file.Stat(); err != nil || !info.Mode().IsRegular() {
		file.Close()
		return nil, fmt.Errorf("%s is not a regular file", path)
	}
	return file, nil
}

// inspect reads a shared object. One for another processor is an error.
func inspect(path string) (object, error) {
	file, err := open(path)
	if err != nil {
		return object{}, fmt.Errorf("read %s: %w", path, err)
	}
	defer file.Close()
	f, err := elf.NewFile(file)
	if err != nil {
		return object{}, fmt.Errorf("read %s: %w", path, err)
	}
	if f.Class != elf.ELFCLASS64 || f.Machine != machines[runtime.GOARCH] || f.Type != elf.ET_DYN {
		return object{}, fmt.Errorf("read %s: not a shared object for this processor", path)
	}
	names, err := f.DynString(elf.DT_SONAME)
	if err != nil {
		return object{}, fmt.Errorf("read %s: %w", path, err)
	}
	needed, err := f.DynString(elf.DT_NEEDED)
	if err != nil {
		return object{}, fmt.Errorf("read %s: %w", path, err)
	}
	o := object{needed: needed}
	if len(names) > 0 {
		o.soname = names[0]
	}
	return o, nil
}
