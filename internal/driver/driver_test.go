package driver

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/divvy-gpu/divvy/internal/ldcache"
)

// host is a root folder with shared objects made by the C compiler.
type host struct {
	t    *testing.T
	root string
}

func newHost(t *testing.T) host {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	return host{t, root}
}

// object makes a shared object with a SONAME and needed libraries.
func (h host) object(path, soname string, needed ...string) string {
	h.t.Helper()
	cc := func(args ...string) {
		h.t.Helper()
		if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
			h.t.Fatalf("cc %v: %v\n%s", args, err, out)
		}
	}
	full := filepath.Join(h.root, path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		h.t.Fatal(err)
	}
	args := []string{"-shared", "-nostdlib", "-x", "c", "/dev/null", "-x", "none", "-o", full, "-Wl,-soname," + soname, "-Wl,--no-as-needed"}
	for _, name := range needed {
		stub := filepath.Join(h.t.TempDir(), name)
		cc("-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", stub, "-Wl,-soname,"+name)
		args = append(args, stub)
	}
	cc(args...)
	return full
}

func (h host) link(target, path string) {
	h.t.Helper()
	if err := os.Symlink(target, filepath.Join(h.root, path)); err != nil {
		h.t.Fatal(err)
	}
}

func (h host) cache(entries ...ldcache.Entry) {
	h.t.Helper()
	path := filepath.Join(h.root, ldcache.Path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		h.t.Fatal(err)
	}
	if err := os.WriteFile(path, (&ldcache.Cache{Entries: entries}).Encode(), 0o644); err != nil {
		h.t.Fatal(err)
	}
}

func TestFindPrefersWhatTheLinkerWould(t *testing.T) {
	h := newHost(t)
	cuda := h.object("usr/lib/x86_64-linux-gnu/libcuda.so.550.1", "libcuda.so.1")
	h.link("libcuda.so.550.1", "usr/lib/x86_64-linux-gnu/libcuda.so.1")
	h.link("libcuda.so.1", "usr/lib/x86_64-linux-gnu/libcuda.so")
	nvml := h.object("opt/driver/libnvidia-ml.so.550.1", "libnvidia-ml.so.1")
	compat := h.object("usr/local/cuda-12.4/compat/libcuda.so.1", "libcuda.so.1")
	h.object("usr/lib64/libcuda.so.1", "libother.so.1")
	h.cache(ldcache.Entry{Name: "libnvidia-ml.so.1", Path: "/opt/driver/libnvidia-ml.so.550.1"})

	d, err := Finder{Root: h.root}.Find()
	if err != nil {
		t.Fatal(err)
	}
	if d.Chosen[CUDA] != cuda || d.Chosen[NVML] != nvml {
		t.Errorf("chosen %v", d.Chosen)
	}
	if want := []string{cuda, compat}; !slices.Equal(d.Files[CUDA], want) {
		t.Errorf("files %v, want %v: links are one file, other libraries none", d.Files[CUDA], want)
	}
	if d.Cached[CUDA] || !d.Cached[NVML] {
		t.Errorf("cached %v", d.Cached)
	}

	own := h.object("home/user/libcuda.so.1", "libcuda.so.1")
	d, err = Finder{Root: h.root, LibraryPath: []string{"", ".", filepath.Dir(own)}}.Find()
	if err != nil {
		t.Fatal(err)
	}
	if d.Chosen[CUDA] != own {
		t.Errorf("chosen %s, want the copy on LD_LIBRARY_PATH", d.Chosen[CUDA])
	}
}

// LD_LIBRARY_PATH is a tenant's, and the agent may be everybody's.
func TestFindIsNotLedAstrayByLibraryPath(t *testing.T) {
	h := newHost(t)
	h.object("usr/lib64/libcuda.so.1", "libcuda.so.1")
	h.object("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.1")
	odd := h.object(`opt/[a]*\?/libcuda.so.1`, "libcuda.so.1")
	h.object("opt/plain/libcuda.so.1", "libcuda.so.1")
	pipes := filepath.Join(h.root, "pipes")
	if err := errors.Join(os.Mkdir(pipes, 0o755), syscall.Mkfifo(filepath.Join(pipes, "libcuda.so.1"), 0o666)); err != nil {
		t.Fatal(err)
	}
	found := make(chan *Driver, 1)
	go func() {
		d, err := Finder{Root: h.root, LibraryPath: []string{pipes, filepath.Join(h.root, "opt", "*"), filepath.Dir(odd)}}.Find()
		if err != nil {
			t.Error(err)
			d = &Driver{}
		}
		found <- d
	}()
	select {
	case d := <-found:
		if want := []string{odd, filepath.Join(h.root, "usr/lib64/libcuda.so.1")}; !slices.Equal(d.Files[CUDA], want) {
			t.Errorf("files %q, want %q: the linker knows no patterns", d.Files[CUDA], want)
		}
	case <-time.After(5 * time.Minute):
		t.Fatal("a pipe holds the agent")
	}
}

func TestFindTakesTheSimulatedMachine(t *testing.T) {
	h := newHost(t)
	native := h.object("usr/lib64/libcuda.so.1", "libcuda.so.1")
	simulated := h.object("sim/libcuda.so.1", "libcuda.so.1")
	nvml := h.object("sim/libnvidia-ml.so.1", "libnvidia-ml.so.1")
	d, err := Finder{Root: h.root, Instance: filepath.Join(h.root, "sim")}.Find()
	if err != nil {
		t.Fatal(err)
	}
	if d.Chosen[CUDA] != simulated || d.Chosen[NVML] != nvml {
		t.Errorf("chosen %v", d.Chosen)
	}
	if !slices.Equal(d.Files[CUDA], []string{simulated, native}) {
		t.Errorf("files %v: the real driver must be covered too", d.Files[CUDA])
	}
}

func TestFindSaysWhatIsMissing(t *testing.T) {
	h := newHost(t)
	if _, err := (Finder{Root: h.root}).Find(); !errors.Is(err, ErrNotFound) {
		t.Errorf("empty machine: %v, want ErrNotFound", err)
	}
	h.object("usr/lib64/libcuda.so.1", "libcuda.so.1")
	if err := os.WriteFile(filepath.Join(h.root, "usr/lib64/libnvidia-ml.so.1"), []byte("not an object"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := (Finder{Root: h.root}).Find(); !errors.Is(err, ErrUnusable) {
		t.Errorf("broken NVML: %v, want ErrUnusable", err)
	}
}

func TestFindRefusesNesting(t *testing.T) {
	for _, needed := range []string{"libcuda-real.so.1", Remote} {
		h := newHost(t)
		h.object("usr/lib64/libcuda.so.1", "libcuda.so.1", needed)
		h.object("usr/lib64/libnvidia-ml.so.1", "libnvidia-ml.so.1")
		if _, err := (Finder{Root: h.root}).Find(); !errors.Is(err, ErrNested) {
			t.Errorf("%s: %v, want ErrNested", needed, err)
		}
	}
}

func TestNames(t *testing.T) {
	for library, want := range map[Library][2]string{
		CUDA: {"libcuda.so", "libcuda-real.so.1"},
		NVML: {"libnvidia-ml.so", "libnvidia-ml-real.so.1"},
	} {
		if library.Bare() != want[0] || library.Real() != want[1] {
			t.Errorf("%s: %s, %s", library, library.Bare(), library.Real())
		}
	}
}
