package driver

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/ldcache"
)

// simgpuTree is the name, in a simulated machine's directory, of the folder from
// which its libraries were copied (internal/simgpu: TreeLink).
const simgpuTree = "tree"

// standard are folders that may hold drivers whatever the linker's cache says. Those of the linker
// itself come first.
var standard = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu",
	"/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	"/usr/lib/*-linux-gnu/nvidia/current", "/usr/lib/*-linux-gnu/nvidia/*", // Debian
	"/lib64", "/usr/lib64", "/lib", "/usr/lib",
	"/usr/lib/aarch64-linux-gnu/tegra", // Jetson
	"/usr/lib/nvidia-[0-9]*",           // Ubuntu up to 16.04
	"/usr/lib/wsl/lib",
	"/run/opengl-driver/lib",                           // NixOS
	"/run/current-system/profile/lib",                  // Guix
	"/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", // containers of NVIDIA's older tools, and on GKE
	"/home/kubernetes/bin/nvidia/lib64",          // Container-Optimized OS, GKE
	"/var/lib/nvidia/lib64",                      // Container-Optimized OS alone
	"/usr/lib/nvidia/tesla",                      // Bottlerocket
	"/*-bottlerocket-linux-gnu/sys-root/usr/lib", // Bottlerocket, seen from a container
	"/*-bottlerocket-linux-gnu/sys-root/usr/lib/nvidia/tesla",
	"/usr/local/glibc/usr/lib", "/usr/local/glibc/lib", "/usr/local/lib", // Talos
	"/opt/nvidia/current/usr/lib64", "/opt/nvidia/current/lib64", // Flatcar
	"/run/nvidia/driver/usr/lib/*-linux-gnu", "/run/nvidia/driver/usr/lib64", // the GPU operator's driver container
	"/.singularity.d/libs", // Apptainer
}

// compat folders have CUDA's forward-compatibility libraries. These are never
// chosen, because they serve some GPUs only.
var compat = []string{"/usr/local/cuda*/compat", "/usr/local/cuda*/compat/lib", "/usr/local/cuda*/compat/lib.real"}

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

// origin is where a file was found.
type origin struct {
	// choose is false where files are covered and never chosen.
	choose bool
	// led is true where the loader itself looks for the name, asked where LD_LIBRARY_PATH says so.
	led, asked bool
}

// search collects the files of one library.
type search struct {
	driver  *Driver
	library Library
	folders folders
	resolve func(path string) (string, error)
	// simulated is true where the driver is simulated, and the machine's own is only covered.
	simulated bool
	// candidates are those that may be chosen, in the order of preference.
	candidates []candidate
	// inTheWay is what the loader would take first and stop at.
	inTheWay *Fault
	aside    []*Fault
	// spoiled are those of aside that were where the driver is looked for.
	spoiled []*Fault
	nested  error
}

// candidate is a file that may be chosen.
type candidate struct {
	path  string
	asked bool
}

// search looks for one library, in the order of preference.
func (f Finder) search(d *Driver, library Library, cache *ldcache.Cache, known folders) *search {
	s := &search{driver: d, library: library, folders: known, resolve: f.resolve, simulated: f.Instance != ""}
	machine := f.Instance == "" // whether the machine's own files may be chosen
	if f.Instance != "" {
		s.add(filepath.Join(f.Instance, string(library)), origin{choose: true})
		s.add(filepath.Join(f.Instance, simgpuTree, string(library)), origin{})
	}
	for _, dir := range f.asked() {
		// Only who sees a file themselves is told what is wrong with it.
		s.addAsked(dir, origin{choose: machine, led: machine && !f.Others, asked: true})
	}
	for _, path := range cache.Lookup(string(library)) {
		if s.add(filepath.Join(f.Root, path), origin{choose: machine, led: machine}) {
			d.Cached[library] = true
		}
	}
	for _, pattern := range standard {
		s.addAll(filepath.Join(f.Root, pattern), origin{choose: machine})
	}
	for _, pattern := range compat {
		s.addAll(filepath.Join(f.Root, pattern), origin{})
	}
	return s
}

// add collects a file if it is the library for this machine, and reports whether
// it is. A dangling link is no file.
func (s *search) add(path string, at origin) bool {
	resolved, err := s.resolve(path)
	if err != nil {
		return false
	}
	if slices.Contains(s.driver.Files[s.library], resolved) {
		return true
	}
	object, err := s.read(resolved)
	fault := (*Fault)(nil)
	switch {
	case errors.As(err, &fault):
		s.refuse(path, fault, at)
		return false
	case err != nil:
		return false
	case object.needs(s.library.Real()), object.needs(Remote):
		s.nested = fmt.Errorf("%w: %s is Divvy's own library; run this outside the share", ErrNested, path)
		return false
	}
	s.driver.Files[s.library] = append(s.driver.Files[s.library], resolved)
	if fault := s.unfit(resolved, object); fault != nil {
		s.refuse(path, fault, at)
	} else if at.choose {
		s.candidates = append(s.candidates, candidate{resolved, at.asked})
	}
	return true
}

// read reads a file as the library.
func (s *search) read(path string) (object, error) {
	object, err := inspect(path)
	if err == nil && object.soname != string(s.library) {
		found := "the library " + object.soname
		if object.soname == "" {
			found = "a shared object without a name"
		}
		return object, &Fault{Path: path, Found: found, Expected: string(s.library), kind: errOther}
	}
	return object, err
}

// unfit says why a sound library can be covered, and not be chosen.
func (s *search) unfit(path string, o object) *Fault {
	expected := "the library of the driver itself"
	switch {
	case s.simulated:
		return nil
	case o.stub || inStubs(path):
		return &Fault{Path: path, Found: "a stub, with which programs are linked and none can run", Expected: expected, kind: errStub}
	case inCompat(path):
		return &Fault{Path: path, Found: forward(path), Expected: expected, kind: errCompat}
	}
	return nil
}

// inCompat reports whether a file lies in a folder of forward-compatibility libraries. Where these
// are, NVIDIA's packages decide: compat, or in Conda cuda-compat.
func inCompat(path string) bool {
	dir := filepath.Base(filepath.Dir(path))
	if dir == "lib" || dir == "lib.real" {
		dir = filepath.Base(filepath.Dir(filepath.Dir(path)))
	}
	return dir == "compat" || dir == "cuda-compat"
}

func forward(path string) string {
	release := Release(path)
	if release != "" {
		release = ", of release " + release
	}
	return "CUDA's forward-compatibility library for hosts with an older driver" + release
}

// refuse notes a file that is not chosen.
func (s *search) refuse(path string, fault *Fault, at origin) {
	fault.Asked = at.asked
	if !slices.ContainsFunc(s.aside, func(f *Fault) bool { return f.Path == fault.Path }) {
		s.aside = append(s.aside, fault)
		if at.choose {
			s.spoiled = append(s.spoiled, fault)
		}
	}
	if fault.Damaged() && at.led && filepath.Base(path) == string(s.library) && len(s.candidates) == 0 && s.inTheWay == nil {
		s.inTheWay = fault
	}
}

// What is read of folders that a tenant names, who may have any number of folders and files. The linker opens
// the library's own name alone; other names are versions of the driver beside it.
const (
	mostFolders = 256
	mostNames   = 1 << 14
	mostAsked   = 64
)

// asked are the different folders of LibraryPath.
func (f Finder) asked() []string {
	var folders []string
	for _, dir := range f.LibraryPath {
		if len(folders) == mostFolders {
			break
		}
		if !slices.Contains(folders, dir) {
			folders = append(folders, dir)
		}
	}
	return folders
}

// addAsked adds the versions of the library in a folder of LibraryPath.
func (s *search) addAsked(dir string, at origin) {
	if !filepath.IsAbs(dir) {
		return
	}
	folder, err := os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		return
	}
	names, _ := folder.Readdirnames(mostNames)
	folder.Close()
	names = slices.DeleteFunc(names, func(name string) bool { return !strings.HasPrefix(name, s.library.Bare()) })
	slices.Sort(names)
	for _, name := range slices.Concat([]string{string(s.library)}, names[:min(len(names), mostAsked)]) {
		s.add(filepath.Join(dir, name), at)
	}
}

// addAll adds every version of the library in the folders of a pattern. It skips
// relative folders, because the agent's working directory is not the tenant's.
func (s *search) addAll(pattern string, at origin) {
	if !filepath.IsAbs(pattern) {
		return
	}
	for _, path := range s.folders.versions(pattern, s.library) {
		s.add(path, at)
	}
}
