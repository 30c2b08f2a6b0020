// Package driver finds the files of the NVIDIA driver's libraries on a machine:
// all that a program could load, because each must be covered, and the one that
// the linker would choose. It only reads these files and never loads them.
package driver

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/divvy-gpu/divvy/internal/ldcache"
)

// Library is the name under which programs ask for one of the driver's
// libraries, its DT_SONAME.
type Library string

// The libraries that are covered.
const (
	CUDA Library = "libcuda.so.1"
	NVML Library = "libnvidia-ml.so.1"
)

// Libraries lists them in the order in which plans name them.
var Libraries = []Library{CUDA, NVML}

// Bare is the name without the version, which programs built with -lcuda or
// dlopen("libcuda.so") use.
func (l Library) Bare() string {
	return string(l[:len(l)-len(".1")])
}

// Real is the name under which our library asks for the driver's.
func (l Library) Real() string {
	return l.Bare()[:len(l.Bare())-len(".so")] + "-real.so.1"
}

// Remote is the library on which stand those that send calls to a worker, in the driver's place.
const Remote = "libdivvy-remote.so.1"

// ErrNotFound is returned where a machine has no driver.
var ErrNotFound = errors.New("no NVIDIA driver found")

// ErrNested is returned inside a share, where Divvy's own library is found in the
// driver's place.
var ErrNested = errors.New("this is already inside a share")

// Driver is what Find found.
type Driver struct {
	// Chosen is the file that the linker would load for each library, or, where several drivers lie
	// side by side, that of the driver that runs.
	Chosen map[Library]string
	// Files are all files of each library that a program could load. Paths are absolute and without
	// symbolic links.
	Files map[Library][]string
	// Cached tells for which libraries dlopen by name finds one of Files without
	// LD_LIBRARY_PATH.
	Cached map[Library]bool
	// Aside are files that were not chosen for a reason, in the order in which they were found.
	Aside []*Fault
	// Module is the release of the kernel module, "" where it is not known.
	Module string
}

// Release is that of the chosen libraries, "" where their names do not tell.
func (d *Driver) Release() string {
	return cmp.Or(Release(d.Chosen[CUDA]), Release(d.Chosen[NVML]))
}

// Finder looks for the driver.
type Finder struct {
	// Root is the folder in which the machine's files are mounted, for an agent in
	// a container. It is empty for this process's own machine.
	Root string
	// LibraryPath is LD_LIBRARY_PATH, split: the linker searches these folders first.
	LibraryPath []string
	// Others is true where LibraryPath is another user's, who may not be allowed to see what is there. Then no file
	// there is an error.
	Others bool
	// Instance is the directory of a simulated machine, or empty. With it, the
	// simulated libraries are chosen, and real ones must be covered all the same.
	Instance string
}

// Find returns the driver's libraries. The error is ErrNotFound, with the folders
// that were searched, ErrUnusable, with the file and what was expected of it, or ErrNested.
func (f Finder) Find() (*Driver, error) {
	d, searches, err := f.look()
	if err != nil {
		return nil, err
	}
	for _, library := range Libraries {
		s := searches[library]
		if s.inTheWay != nil {
			return nil, inTheWay(s.inTheWay)
		}
		if len(s.candidates) == 0 {
			return nil, f.missing(s)
		}
	}
	if err := d.choose(searches[CUDA], searches[NVML]); err != nil {
		return nil, err
	}
	for _, library := range Libraries {
		d.Aside = append(d.Aside, searches[library].aside...)
	}
	return d, nil
}

// Present returns all files of the driver's libraries that a program could load, also where they make no whole driver: none
// is chosen. The error is ErrNested.
func (f Finder) Present() (*Driver, error) {
	d, _, err := f.look()
	return d, err
}

// look collects the files of all libraries. The error is ErrNested.
func (f Finder) look() (*Driver, map[Library]*search, error) {
	d := &Driver{
		Chosen: map[Library]string{},
		Files:  map[Library][]string{},
		Cached: map[Library]bool{},
	}
	if f.Instance == "" {
		d.Module = f.Module()
	}
	cache := f.cache()
	searches, known := map[Library]*search{}, newFolders()
	for _, library := range Libraries {
		s := f.search(d, library, cache, known)
		if s.nested != nil {
			return nil, nil, s.nested
		}
		searches[library] = s
	}
	return d, searches, nil
}

// inTheWay is the error for a file at which the loader would stop.
func inTheWay(fault *Fault) error {
	if fault.Asked {
		return fmt.Errorf("%w: %w: take its folder out of LD_LIBRARY_PATH", ErrUnusable, fault)
	}
	return fmt.Errorf("%w: %w: install the driver again", ErrUnusable, fault)
}

// MissingError is returned where a machine has no driver. It is [ErrNotFound].
type MissingError struct {
	Library Library
	// Root is below what was searched, "" for this process's own machine.
	Root string
	// Aside are files of the library's name that are not the driver's.
	Aside []*Fault
}

// Error is Found and what to do who wants to run a program.
func (e *MissingError) Error() string {
	return e.Found() + ": install the driver, or use a simulated GPU: divvy run --simgpu a100-80g -- COMMAND"
}

// Found says where was searched and what is there instead.
func (e *MissingError) Found() string {
	where := fmt.Sprintf("no %s in LD_LIBRARY_PATH, %s or the usual folders", e.Library, ldcache.Path)
	if e.Root != "" {
		where = fmt.Sprintf("no %s below %s in %s or the usual folders", e.Library, e.Root, ldcache.Path)
	}
	if len(e.Aside) > 0 {
		where += " (" + Told(e.Aside) + ")"
	}
	return fmt.Sprintf("%v: %s", ErrNotFound, where)
}

// Unwrap returns ErrNotFound.
func (e *MissingError) Unwrap() error { return ErrNotFound }

// missing is the error for a library of which no file can be chosen.
func (f Finder) missing(s *search) error {
	switch {
	case f.Instance != "" && len(s.spoiled) > 0:
		return fmt.Errorf("%w: %s: stop the simulated machine and start it again", ErrUnusable, Told(s.spoiled))
	case f.Instance != "":
		return fmt.Errorf("%w: the simulated machine at %s has no %s: start it again with `divvy simgpu start`",
			ErrNotFound, f.Instance, s.library)
	case slices.ContainsFunc(s.spoiled, (*Fault).Damaged):
		return fmt.Errorf("%w: %s: install the driver again", ErrUnusable, Told(s.spoiled))
	}
	return &MissingError{Library: s.library, Root: strings.TrimSuffix(f.Root, "/"), Aside: s.aside}
}
