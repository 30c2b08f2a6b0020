package driver

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/ldcache"
)

// library has all kinds of parts that the loader maps, and a way to a device.
const library = `
int open(const char *, int, ...);
static int zeros[5000];
int table[3000] = {40};
__thread int own = 1;
int cuInit(unsigned flags) { return open("/dev/nvidiactl", 2) + zeros[flags]; }
int answer(void) { return table[0] + zeros[17] + own + 1; }
`

// stub is NVIDIA's for linking: it answers, and asks nobody.
const stub = "int cuInit(unsigned flags) { return 34; }\nint nvmlInit_v2(void) { return 9; }\n"

// compile makes a shared object of a source below the root.
func (h host) compile(source, path, soname string) string {
	h.t.Helper()
	full := filepath.Join(h.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		h.t.Fatal(err)
	}
	cc := exec.Command("cc", "-shared", "-fPIC", "-nostdlib", "-s", "-x", "c", "-", "-o", full, "-Wl,-soname,"+soname)
	cc.Stdin = strings.NewReader(source)
	if out, err := cc.CombinedOutput(); err != nil {
		h.t.Fatalf("cc: %v\n%s", err, out)
	}
	return full
}

// sound are the libraries of one driver in a folder, and links to them as packages make them.
func (h host) sound(folder, release string) (cuda, nvml string) {
	h.t.Helper()
	for _, library := range Libraries {
		name := library.Bare() + "." + release
		h.object(filepath.Join(folder, name), string(library))
		h.link(name, filepath.Join(folder, string(library)))
	}
	return filepath.Join(h.root, folder, CUDA.Bare()+"."+release), filepath.Join(h.root, folder, NVML.Bare()+"."+release)
}

const moduleText = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  %s  Release Build  (dvs@builder)\nGCC version:  gcc version 12.2.0\n"

// loaded has the kernel run a module of a release.
func (h host) loaded(release string) {
	h.write("proc/driver/nvidia/version", fmt.Sprintf(moduleText, release))
}

// refused wants an error that says the parts.
func (h host) refused(kind error, parts ...string) {
	h.t.Helper()
	d, err := Finder{Root: h.root}.Find()
	if !errors.Is(err, kind) {
		h.t.Errorf("%+v, %v; want %v", d, err, kind)
		return
	}
	for _, part := range parts {
		if !strings.Contains(err.Error(), part) {
			h.t.Errorf("%q does not say %q", err, part)
		}
	}
}

func TestLibrariesOfOneRelease(t *testing.T) {
	h := newHost(t)
	cuda, nvml := h.sound("usr/lib64", "550.54.15")
	h.loaded("550.54.15")
	d, err := Finder{Root: h.root}.Find()
	if err != nil || d.Chosen[CUDA] != cuda || d.Chosen[NVML] != nvml || len(d.Aside) > 0 || d.Release() != "550.54.15" || d.Module != "550.54.15" {
		t.Errorf("%+v, %v", d, err)
	}
	h.loaded("560.35.03")
	h.refused(ErrUnusable, cuda, "550.54.15", "expected 560.35.03", "reload the module")

	h = newHost(t)
	cuda = h.object("usr/lib64/libcuda.so.550.54.15", "libcuda.so.1")
	nvml = h.object("usr/lib64/libnvidia-ml.so.535.161.08", "libnvidia-ml.so.1")
	h.refused(ErrUnusable, cuda, nvml, "different releases")
	h.loaded("550.54.15")
	h.refused(ErrUnusable, nvml, "expected 550.54.15")
}

func TestTwoDriversSideBySide(t *testing.T) {
	h := newHost(t)
	first, _ := h.sound("usr/lib/x86_64-linux-gnu", "535.161.08")
	second, nvml := h.sound("usr/lib/x86_64-linux-gnu/nvidia/tesla-550", "550.54.15")
	for _, c := range []struct{ module, cuda, told, why string }{
		{"", first, second, first + " has"},
		{"535.161.08", first, second, "the kernel module has"},
		{"550.54.15", second, first, "the kernel module has"},
	} {
		if c.module != "" {
			h.loaded(c.module)
		}
		d, err := Finder{Root: h.root}.Find()
		if err != nil || d.Chosen[CUDA] != c.cuda || !slices.Equal(d.Files[CUDA], []string{first, second}) {
			t.Fatalf("module %s: %+v, %v", c.module, d, err)
		}
		if len(d.Aside) != 2 || d.Aside[0].Path != c.told || !strings.Contains(d.Aside[0].Error(), c.why) {
			t.Errorf("module %s: %v", c.module, d.Aside)
		}
	}
	// The one that runs is taken whole.
	if err := os.Remove(nvml); err != nil {
		t.Fatal(err)
	}
	h.refused(ErrUnusable, first, "expected 550.54.15")
}

func TestStubs(t *testing.T) {
	h := newHost(t)
	for _, library := range Libraries {
		h.compile(stub, filepath.Join("usr/lib64", string(library)), string(library))
	}
	h.refused(ErrNotFound, "usr/lib64/libcuda.so.1 is a stub", "expected the library of the driver itself")
	cuda, nvml := h.sound("opt/nvidia/current/usr/lib64", "550.54.15")
	d, err := Finder{Root: h.root}.Find()
	if err != nil || d.Chosen[CUDA] != cuda || d.Chosen[NVML] != nvml || len(d.Aside) != 2 || len(d.Files[CUDA]) != 2 {
		t.Fatalf("%+v, %v: a stub is covered and never chosen", d, err)
	}
	// A toolkit's folder, whatever its library imports.
	dir := filepath.Dir(h.compile(library, "cuda/lib64/stubs/libcuda.so", "libcuda.so.1"))
	d, err = Finder{Root: h.root, LibraryPath: []string{dir}}.Find()
	if err != nil || d.Chosen[CUDA] != cuda || !d.Aside[0].Asked || d.Aside[1].Asked {
		t.Errorf("%+v, %v", d, err)
	}
	if o, err := inspect(h.compile(library, "libcuda.so", "libcuda.so.1")); err != nil || o.stub {
		t.Errorf("a library with a way to a device: %+v, %v", o, err)
	}
}

func TestForwardCompatibilityIsNeverChosen(t *testing.T) {
	h := newHost(t)
	cuda, _ := h.sound("usr/lib64", "535.161.08")
	for _, folder := range []string{"usr/local/cuda-12.5/compat", "opt/conda/cuda-compat", "usr/local/cuda/compat"} {
		newer := h.object(filepath.Join(folder, "libcuda.so.555.42.06"), "libcuda.so.1")
		d, err := Finder{Root: h.root, LibraryPath: []string{filepath.Dir(newer)}}.Find()
		if err != nil || d.Chosen[CUDA] != cuda || !slices.Contains(d.Files[CUDA], newer) {
			t.Fatalf("%s: %+v, %v", folder, d, err)
		}
		// A copy whose name tells nothing.
		bare := filepath.Dir(h.object(filepath.Join(folder, "lib/libcuda.so.1"), "libcuda.so.1"))
		if d, err := (Finder{Root: h.root, LibraryPath: []string{bare}}).Find(); err != nil || d.Chosen[CUDA] != cuda || !d.Aside[0].Rival() {
			t.Errorf("%s: %+v, %v", bare, d, err)
		}
		if a := d.Aside[0]; a.Path != newer || !a.Asked || !strings.Contains(a.Found, "555.42.06") {
			t.Errorf("%s: %v", folder, a)
		}
	}
}

func TestDamagedLibraries(t *testing.T) {
	foreign := map[string]byte{"amd64": 183, "arm64": 62}[runtime.GOARCH] // e_machine of the other
	for _, c := range []struct {
		name, says string
		kind       error
		spoil      func([]byte) []byte
	}{
		{"half", "so part of it is missing", ErrUnusable, func(b []byte) []byte { return b[:len(b)/2] }},
		{"header alone", "so part of it is missing", ErrUnusable, func(b []byte) []byte { return b[:64] }},
		{"nothing", "an empty file", ErrUnusable, func([]byte) []byte { return nil }},
		{"a page of the web", "no shared object", ErrUnusable, func([]byte) []byte { return []byte("<html><title>404</title></html>") }},
		{"another processor", "expected a library for", ErrNotFound, func(b []byte) []byte { b[18] = foreign; return b }},
		{"another system", "another system", ErrUnusable, func(b []byte) []byte { b[7] = 9; return b }},
		{"a program", "not a shared object", ErrUnusable, func(b []byte) []byte { b[16] = 2; return b }},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := newHost(t)
			path := h.compile(library, "usr/lib64/libcuda.so.1", "libcuda.so.1")
			h.object("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.1")
			if _, err := (Finder{Root: h.root}).Find(); err != nil {
				t.Fatal(err)
			}
			image, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(path, c.spoil(image), 0o644); err != nil {
				t.Fatal(err)
			}
			h.refused(c.kind, path, c.says)
		})
	}
}

// A file may stand there that is sound and something else, such as a program.
func TestOtherLibraries(t *testing.T) {
	h := newHost(t)
	for soname, says := range map[string]string{"libz.so.1": "is the library libz.so.1", "": "is a shared object without a name"} {
		path := h.compile(library, "usr/lib64/libcuda.so.1", soname)
		if _, err := (&search{library: CUDA}).read(path); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v does not say %q", err, says)
		}
	}
}

// The loader stops at what it finds first. What is in nobody's way is only told.
func TestDamagedLibraryInTheWay(t *testing.T) {
	h := newHost(t)
	cuda, _ := h.sound("usr/lib64", "550.54.15")
	h.write("usr/lib64/libcuda.so.535.161.08", "") // as an image that was saved from a container has
	h.write("opt/cached/libcuda.so.1", "\x7fELF")
	d, err := Finder{Root: h.root}.Find()
	if err != nil || d.Chosen[CUDA] != cuda || len(d.Aside) != 1 || !d.Aside[0].Damaged() {
		t.Fatalf("%+v, %v", d, err)
	}
	broken := filepath.Join(h.root, "opt/cached")
	if _, err := (Finder{Root: h.root, LibraryPath: []string{broken}}).Find(); !errors.Is(err, ErrUnusable) || !strings.Contains(err.Error(), broken) {
		t.Errorf("on LD_LIBRARY_PATH: %v", err)
	}
	if d, err := (Finder{Root: h.root, LibraryPath: []string{broken}, Others: true}).Find(); err != nil || d.Chosen[CUDA] != cuda {
		t.Errorf("on another user's LD_LIBRARY_PATH: %+v, %v: that says what root sees", d, err)
	}
	h.cache(ldcache.Entry{Name: "libcuda.so.1", Path: "/opt/cached/libcuda.so.1"})
	h.refused(ErrUnusable, broken)
}

func FuzzModule(f *testing.F) {
	f.Add(fmt.Sprintf(moduleText, "550.54.15"))
	f.Add("NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.157  Wed Oct 12 09:19:07 UTC 2022\r\n")
	f.Add("GCC version: 12.2.0\nNVRM version:")
	f.Fuzz(func(t *testing.T, text string) {
		release := moduleRelease(text)
		if release != "" && (Release("libcuda.so."+release) != release || !strings.Contains(text, release)) {
			t.Errorf("%q is no release of %q", release, text)
		}
	})
}

func TestReleases(t *testing.T) {
	for text, want := range map[string]string{
		fmt.Sprintf(moduleText, "550.54.15"): "550.54.15",
		"NVRM version: NVIDIA UNIX x86_64 Kernel Module  390.157  Wed Oct 12 09:19:07 UTC 2022\nGCC version: 11.3.0": "390.157",
		"GCC version: 550.54.15": "", "NVRM version: NVIDIA": "", "": "",
	} {
		if got := moduleRelease(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
	for path, want := range map[string]string{
		"/usr/lib64/libcuda.so.550.54.15": "550.54.15", "libnvidia-ml.so.390.157": "390.157",
		"libcuda.so": "", "libcuda.so.1": "", "libcuda.so.1.1": "", "libcuda.so.550": "", "libcuda.so.550.54.15.bak": "", "550.54.15": "",
	} {
		if got := Release(path); got != want {
			t.Errorf("%s: %q, want %q", path, got, want)
		}
	}
}
