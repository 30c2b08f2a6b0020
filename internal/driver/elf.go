package driver

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// object is the part of a shared object that matters here.
type object struct {
	soname string
	needed []string
	// stub is true for a library without a way to a device.
	stub bool
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

// inspect reads a shared object. The error is a [Fault] for one that the loader would not load here.
func inspect(path string) (object, error) {
	damaged := func(found string) error {
		return &Fault{Path: path, Found: found, Expected: "a whole shared object", kind: errDamaged}
	}
	file, err := open(path)
	if err != nil {
		return object{}, fmt.Errorf("read %s: %w", path, err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return object{}, fmt.Errorf("read %s: %w", path, err)
	}
	size := uint64(info.Size())
	if size == 0 {
		return object{}, damaged("an empty file, as a container's runtime leaves in images")
	}
	if end := announced(file); end > size {
		return object{}, damaged(partly(size, end))
	}
	if !plain(file) {
		return object{}, damaged(fmt.Sprintf("%d bytes that are no shared object", size))
	}
	if header := first(file); elf.Class(header.Ident[elf.EI_CLASS]) != elf.ELFCLASS64 || elf.Machine(header.Machine) != machines[runtime.GOARCH] {
		return object{}, &Fault{Path: path, Found: processor(elf.Machine(header.Machine)), Expected: processor(machines[runtime.GOARCH]), kind: errForeign}
	}
	if fault := tablesFault(file); fault != "" {
		return object{}, damaged("a shared object " + fault)
	}
	f, err := elf.NewFile(file)
	if err != nil {
		return object{}, damaged(fmt.Sprintf("%d bytes that are no shared object", size))
	}
	if end := reach(f); end > size {
		return object{}, damaged(partly(size, end))
	}
	if fault := layoutFault(f); fault != "" {
		return object{}, damaged("a shared object whose headers are wrong: " + fault)
	}
	o := object{stub: isStub(f)}
	names, err := f.DynString(elf.DT_SONAME)
	if err == nil {
		o.needed, err = f.DynString(elf.DT_NEEDED)
	}
	if err != nil {
		return object{}, damaged("a shared object whose table of names is wrong")
	}
	if len(names) > 0 {
		o.soname = names[0]
	}
	return o, nil
}

func partly(size, end uint64) string {
	return fmt.Sprintf("%d bytes of %d or more, so part of it is missing", size, end)
}

// processor is what people call a processor.
func processor(m elf.Machine) string {
	switch m {
	case elf.EM_X86_64:
		return "a library for x86-64"
	case elf.EM_AARCH64:
		return "a library for arm64"
	case elf.EM_386:
		return "a library for 32-bit x86"
	}
	return "a library for another processor, " + strings.TrimPrefix(m.String(), "EM_")
}

// waysOut are functions of the C library without one of which nobody reaches a driver.
var waysOut = []string{"ioctl", "open", "open64", "openat", "dlopen", "syscall"}

// isStub recognises NVIDIA's libraries for linking: they answer CUDA's or NVML's first call and import
// nothing with which they could ask anybody. Their folder's name, stubs, is lost where images copy
// them or link to them as libcuda.so.1.
func isStub(f *elf.File) bool {
	symbols, err := f.DynamicSymbols()
	if err != nil {
		return false
	}
	answers := false
	for _, s := range symbols {
		switch {
		case s.Section != elf.SHN_UNDEF:
			answers = answers || s.Name == "cuInit" || s.Name == "nvmlInit_v2"
		case slices.Contains(waysOut, s.Name):
			return false
		}
	}
	return answers
}

// inStubs reports whether a file lies in a toolkit's folder of libraries for linking.
func inStubs(path string) bool {
	return filepath.Base(filepath.Dir(path)) == "stubs"
}
