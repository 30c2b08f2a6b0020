package kit

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
)

// system are the host's own folders of libraries: its C library stands behind the kit's.
var system = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64"}

// loader is where programs for x86-64 name their dynamic linker.
const loader = "/lib64/ld-linux-x86-64.so.2"

// closure returns the libraries that programs need, by their names, with the files that have them. A program that needs
// none adds none. It returns an error that names a library that is in no folder.
func closure(folders []string, programs ...string) (map[string]string, error) {
	found := map[string]string{}
	for waiting := programs; len(waiting) > 0; waiting = waiting[1:] {
		file, err := elf.Open(waiting[0])
		if err != nil {
			return nil, fmt.Errorf("read what %s needs: %w", waiting[0], err)
		}
		names, err := file.ImportedLibraries()
		_ = file.Close()
		if err != nil {
			return nil, fmt.Errorf("read what %s needs: %w", waiting[0], err)
		}
		for _, name := range names {
			if found[name] != "" {
				continue
			}
			at, err := find(folders, name)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", waiting[0], err)
			}
			found[name] = at
			waiting = append(waiting, at)
		}
	}
	return found, nil
}

func find(folders []string, name string) (string, error) {
	for _, folder := range folders {
		if at := filepath.Join(folder, name); exists(at) {
			return at, nil
		}
	}
	return "", fmt.Errorf("the library %s is nowhere in %v", name, folders)
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

// Program adds a program of the host to a disk, with its libraries and their linker where it is linked with any.
func (k Kit) Program(disk *Archive, name, from string) error {
	needed, err := closure(append(k.libraries(), system...), from)
	if err != nil {
		return err
	}
	disk.Copy(name, from)
	for library, at := range needed {
		disk.Copy("usr/lib/x86_64-linux-gnu/"+library, at)
	}
	if len(needed) > 0 {
		disk.Copy(loader, loader)
	}
	return nil
}
