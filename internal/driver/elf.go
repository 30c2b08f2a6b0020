package driver

import (
	"debug/elf"
	"fmt"
	"runtime"
	"slices"
)

// object is what the dynamic section of a shared object tells.
type object struct {
	soname string
	needed []string
}

func (o object) needs(name string) bool {
	return slices.Contains(o.needed, name)
}

// machines maps Go's names of processors to ELF's.
var machines = map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}

// inspect reads a shared object of this machine's kind.
func inspect(path string) (object, error) {
	f, err := elf.Open(path)
	if err != nil {
		return object{}, fmt.Errorf("read %s: %w", path, err)
	}
	defer func() { _ = f.Close() }()
	if f.Class != elf.ELFCLASS64 || f.Machine != machines[runtime.GOARCH] || f.Type != elf.ET_DYN {
		return object{}, fmt.Errorf("read %s: not a shared object of this machine", path)
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

// Ours reports whether a file is Divvy's library in the driver's place.
func Ours(path string) (bool, error) {
	o, err := inspect(path)
	if err != nil {
		return false, err
	}
	for _, library := range Libraries {
		if o.soname == string(library) && o.needs(library.Real()) {
			return true, nil
		}
	}
	return false, nil
}
