package slice

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"

	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/exports"
)

// runpathMark begins the search path that our libraries are linked with. It is
// long enough for every tenant directory and is overwritten in each tenant's
// copy: where the copy is bound over the driver's file, $ORIGIN would mean the
// driver's folder, in which nothing can be added.
const runpathMark = "/divvy-runpath-"

// errRunpath marks a file that is not a library of ours as it was built.
var errRunpath = errors.New("not an unchanged library of Divvy")

// ForDriver returns a copy of a library of ours that looks for the driver's in dir, and has the names of
// the driver's file alone: a program that looks for a name to learn what the driver can do finds ours
// otherwise, on drivers that are older than our description, and calls it.
func ForDriver(image []byte, dir, file string) ([]byte, error) {
	if _, _, err := findRunpath(image); err != nil {
		return nil, fmt.Errorf("%w: reinstall Divvy", err)
	}
	names, err := driver.Names(file)
	if err != nil {
		return nil, err
	}
	return ForNames(image, dir, func(name string) bool { return names[name] })
}

// ForNames is [ForDriver] for a driver whose names are known otherwise.
func ForNames(image []byte, dir string, has func(name string) bool) ([]byte, error) {
	patched, err := withRunpath(image, dir)
	if err != nil {
		return nil, fmt.Errorf("%w: reinstall Divvy", err)
	}
	return exports.Keep(patched, has)
}

// withRunpath returns a copy of a shared object whose DT_RUNPATH is dir. It is
// pure and reads nothing outside image.
func withRunpath(image []byte, dir string) ([]byte, error) {
	at, size, err := findRunpath(image)
	if err != nil {
		return nil, err
	}
	if len(dir) > size {
		return nil, fmt.Errorf("%w: the tenant directory %s is longer than %d bytes", errRunpath, dir, size)
	}
	patched := bytes.Clone(image)
	clear(patched[at : at+size])
	copy(patched[at:], dir)
	return patched, nil
}

// findRunpath returns where the mark's string lies in the file, and its length
// without the final zero.
func findRunpath(image []byte) (at, size int, err error) {
	file, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", errRunpath, err)
	}
	values, err := file.DynValue(elf.DT_RUNPATH)
	if err != nil {
		return 0, 0, fmt.Errorf("%w: %w", errRunpath, err)
	}
	dynamic := file.SectionByType(elf.SHT_DYNAMIC)
	if len(values) != 1 || dynamic == nil || int(dynamic.Link) >= len(file.Sections) {
		return 0, 0, fmt.Errorf("%w: it has %d search paths", errRunpath, len(values))
	}
	table := file.Sections[dynamic.Link]
	if table.Type != elf.SHT_STRTAB || values[0] >= table.Size {
		return 0, 0, fmt.Errorf("%w: its search path lies outside its strings", errRunpath)
	}
	start := table.Offset + values[0]
	end := table.Offset + table.Size
	if start > uint64(len(image)) || end > uint64(len(image)) || start > end {
		return 0, 0, fmt.Errorf("%w: its strings lie outside the file", errRunpath)
	}
	text := image[start:end]
	length := bytes.IndexByte(text, 0)
	if length < 0 || !bytes.HasPrefix(text, []byte(runpathMark)) {
		return 0, 0, fmt.Errorf("%w: its search path is not the mark", errRunpath)
	}
	return int(start), length, nil
}
