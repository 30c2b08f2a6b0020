// Package driver finds the files of the NVIDIA driver's libraries on a machine:
// all that a program could load, because each must be covered, and the one that
// the linker would choose. It only reads these files and never loads them.
package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
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

// ErrNotFound is returned where a machine has no driver.
var ErrNotFound = errors.New("no NVIDIA driver found")

// ErrNested is returned inside a share, where Divvy's own library is found in the
// driver's place.
var ErrNested = errors.New("this is already inside a share")

// Driver is what Find found.
type Driver struct {
	// Chosen is the file that the linker would load for each library.
	Chosen map[Library]string
	// Files are all files of each library. Paths are absolute and without
	// symbolic links.
	Files map[Library][]string
	// Cached tells for which libraries dlopen by name finds one of Files without
	// LD_LIBRARY_PATH.
	Cached map[Library]bool
}

// Finder looks for the driver.
type Finder struct {
	// Root is the folder in which the machine's files are mounted, for an agent in
	// a container. It is empty for this process's own machine.
	Root string
	// LibraryPath is LD_LIBRARY_PATH, split: the linker searches these folders first.
	LibraryPath []string
	// Instance is the directory of a simulated machine, or empty. With it, the
	// simulated libraries are chosen, and real ones must be covered all the same.
	Instance string
}

// simgpuTree is the name, in a simulated machine's directory, of the folder from
// which its libraries were copied (internal/simgpu: TreeLink).
const simgpuTree = "tree"

// standard are folders that may hold drivers whatever the linker's cache says: the
// linker's own, and those of container images, WSL and NixOS.
var standard = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
	"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	"/usr/lib/*-linux-gnu/nvidia/current",
	"/lib64", "/usr/lib64", "/lib", "/usr/lib",
	"/usr/lib/wsl/lib", "/run/opengl-driver/lib",
	"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib",
}

// compat folders have CUDA's forward-compatibility libraries. These are never
// chosen, because they serve some GPUs only.
var compat = []string{"/usr/local/cuda*/compat", "/usr/local/cuda*/compat/lib.real"}

// Find returns the driver's libraries. The error is ErrNotFound, with the folders
// that were searched, or ErrNested.
func (f Finder) Find() (*Driver, error) {
	d := &Driver{
		Chosen: map[Library]string{},
		Files:  map[Library][]string{},
		Cached: map[Library]bool{},
	}
	cache := f.cache()
	for _, library := range Libraries {
		if err := f.find(d, library, cache); err != nil {
			return nil, err
		}
	}
	for _, library := range Libraries {
		if d.Chosen[library] != "" {
			continue
		}
		if f.Instance != "" {
			return nil, fmt.Errorf("%w: the simulated machine at %s has no %s: start it again with `divvy simgpu start`",
				ErrNotFound, f.Instance, library)
		}
		return nil, fmt.Errorf("%w: no %s in LD_LIBRARY_PATH, %s or the usual folders: install the driver, or use a simulated GPU: divvy run --simgpu a100-80g -- COMMAND",
			ErrNotFound, library, ldcache.Path)
	}
	return d, nil
}

// cache reads the linker's cache. Where it cannot be read, it counts as empty.
func (f Finder) cache() *ldcache.Cache {
	data, err := os.ReadFile(filepath.Join(f.Root, ldcache.Path))
	if err != nil {
		return &ldcache.Cache{}
	}
	c, err := ldcache.Parse(data)
	if err != nil {
		return &ldcache.Cache{}
	}
	return c
}

// find fills in one library, in the order of preference.
func (f Finder) find(d *Driver, library Library, cache *ldcache.Cache) error {
	s := &search{driver: d, library: library, resolve: f.resolve}
	machine := f.Instance == "" // whether the machine's own files may be chosen
	if f.Instance != "" {
		s.add(filepath.Join(f.Instance, string(library)), true)
		s.add(filepath.Join(f.Instance, simgpuTree, string(library)), false)
	}
	for _, dir := range f.LibraryPath {
		s.addAll(literal(dir), machine)
	}
	for _, path := range cache.Lookup(string(library)) {
		if s.add(filepath.Join(f.Root, path), machine) {
			d.Cached[library] = true
		}
	}
	for _, pattern := range standard {
		s.addAll(filepath.Join(f.Root, pattern), machine)
	}
	for _, pattern := range compat {
		s.addAll(filepath.Join(f.Root, pattern), false)
	}
	return s.nested
}

// search collects the files of one library.
type search struct {
	driver  *Driver
	library Library
	resolve func(path string) (string, error)
	nested  error
}

// add collects a file if it is the library for this machine, and reports whether
// it is. A dangling link, a library for another processor, a linker script or any
// other file of that name is not.
func (s *search) add(path string, choose bool) bool {
	resolved, err := s.resolve(path)
	if err != nil {
		return false
	}
	if slices.Contains(s.driver.Files[s.library], resolved) {
		return true
	}
	object, err := inspect(resolved)
	if err != nil || object.soname != string(s.library) {
		return false
	}
	if object.needs(s.library.Real()) {
		s.nested = fmt.Errorf("%w: %s is Divvy's own library; run this outside the share", ErrNested, path)
		return false
	}
	s.driver.Files[s.library] = append(s.driver.Files[s.library], resolved)
	if choose && s.driver.Chosen[s.library] == "" {
		s.driver.Chosen[s.library] = resolved
	}
	return true
}

// literal returns a pattern that matches exactly that path. Tenants choose
// LibraryPath: a pattern there could make the agent search the whole machine.
func literal(path string) string {
	return strings.NewReplacer(`\`, `\\`, "*", `\*`, "?", `\?`, "[", `\[`).Replace(path)
}

// addAll adds every version of the library in the folders of a pattern. It skips
// relative folders, because the agent's working directory is not the tenant's.
func (s *search) addAll(pattern string, choose bool) {
	if !filepath.IsAbs(pattern) {
		return
	}
	paths, err := filepath.Glob(filepath.Join(pattern, s.library.Bare()+"*"))
	if err != nil {
		return // the pattern is invalid, which none of ours is
	}
	for _, path := range paths {
		s.add(path, choose)
	}
}
