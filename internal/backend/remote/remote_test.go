package remote

import (
	"debug/elf"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/backendtest"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
)

var update = flag.Bool("update", false, "rewrite golden files")

func theDriver(folder string) *driver.Driver {
	d := &driver.Driver{Chosen: map[driver.Library]string{}, Files: map[driver.Library][]string{}, Cached: map[driver.Library]bool{}}
	for _, library := range driver.Libraries {
		file := filepath.Join(folder, string(library))
		d.Cached[library] = folder == "/usr/lib"
		d.Chosen[library], d.Files[library] = file, []string{file, "/usr/local/cuda/compat/" + string(library)}
	}
	return d
}

// share is the plan of an ordinary share of tenant t7.
func share(tenants string) *backend.Plan {
	dir := filepath.Join(tenants, "t7")
	return &backend.Plan{Dir: dir, Edits: edits.Edits{
		Binds: []edits.Bind{{Source: dir + "/libcuda.so.1", Target: "/usr/lib/libcuda.so.1", ReadOnly: true}},
		Env:   []edits.Env{{Name: "PATH", Value: "/simulated", Prepend: true}},
	}}
}

// The command's edits lead to the client alone, and the worker's are those of an ordinary share.
func TestPlans(t *testing.T) {
	lead := func(_ *backend.Plan, e *edits.Edits, folder string) {
		e.Binds = append(e.Binds, edits.Bind{Source: folder + ".ld.so.cache", Target: "/etc/ld.so.cache", ReadOnly: true})
	}
	nodes := []driver.Node{{Path: "/dev/nvidia-caps", Folder: true}, {Path: "/dev/nvidia0"}}
	own := machine{Tenants: "/dev/shm/divvy-1000/tenants", Tree: "/opt/divvy", Hidden: nodes, Lead: lead}
	simulated, shared := own, own
	simulated.Hidden = []driver.Node{{Path: "/dev/shm/divvy-1000/simgpu/m", Folder: true}, {Path: "/b/lib/simgpu", Folder: true}}
	shared.Tenants, shared.Shared = "/dev/shm/divvy-0/tenants", true
	for name, c := range map[string]struct {
		machine machine
		layer   backend.Layer
		driver  *driver.Driver
		worker  int
	}{
		"native-namespace": {own, backend.LayerNamespace, theDriver("/usr/lib"), 0},
		"native-env":       {own, backend.LayerEnv, theDriver("/usr/lib"), 0},
		// Of its two folders the first has no driver here.
		"simulated-namespace": {simulated, backend.LayerNamespace, theDriver("/b/lib/simgpu"), 0},
		"shared-namespace":    {shared, backend.LayerNamespace, theDriver("/usr/lib"), 0},
		// The folder is the agent's.
		"served-namespace": {shared, backend.LayerNamespace, theDriver("/usr/lib"), 60706},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := c.machine.plan(share(c.machine.Tenants), backend.Tenant{ID: "t7", UID: 1000, Worker: c.worker, Layer: c.layer}, c.driver)
			if err != nil {
				t.Fatal(err)
			}
			backendtest.Golden(t, name, plan, *update)
		})
	}
}

func TestPlanRefuses(t *testing.T) {
	long := machine{Tenants: "/" + strings.Repeat("x", socketBytes), Lead: func(*backend.Plan, *edits.Edits, string) {}}
	if _, err := long.plan(share(long.Tenants), backend.Tenant{ID: "t7"}, theDriver("/usr/lib")); !errors.Is(err, backend.ErrTenant) {
		t.Errorf("a socket whose path is too long: %v", err)
	}
	if _, err := (&Backend{}).Plan(backend.Tenant{Layer: backend.LayerContainer}); !errors.Is(err, backend.ErrTenant) {
		t.Errorf("a container: %v", err)
	}
}

// library compiles a library with these functions.
func library(t *testing.T, path string, functions ...string) {
	t.Helper()
	source := ""
	for _, f := range functions {
		source += "int " + f + "(void) { return 1; }\n"
	}
	runpath := "-Wl,--enable-new-dtags,-rpath,/divvy-runpath-" + strings.Repeat("-", 200)
	cmd := exec.Command("cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path, runpath)
	cmd.Stdin = strings.NewReader(source)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
}

// The client's folder has libraries with the names of the driver's alone, and goes with all that is in it.
func TestClientIsMadeAndGoes(t *testing.T) {
	dir := t.TempDir()
	ours, theirs, place := filepath.Join(dir, "ours.so"), filepath.Join(dir, "theirs.so"), filepath.Join(dir, "t7", clientName)
	library(t, ours, "cuInit", "cuNewer")
	library(t, theirs, "cuInit", "cuTheirs")
	s := makeClient{Path: place, UID: os.Getuid(), Code: ours}
	for _, name := range driver.Libraries {
		s.Libraries = append(s.Libraries, clientLibrary{Source: ours, Name: name, Driver: theirs})
	}
	for range 2 { // a plan that was carried out is left as it is
		if err := s.Apply(); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range driver.Libraries {
		names, err := driver.Names(filepath.Join(place, name.Bare()))
		if err != nil || !names["cuInit"] || names["cuNewer"] || names["cuTheirs"] {
			t.Errorf("%s has the names %v, %v", name.Bare(), names, err)
		}
	}
	if runpath, err := elf.Open(filepath.Join(place, string(driver.CUDA))); err != nil {
		t.Error(err)
	} else if found, err := runpath.DynString(elf.DT_RUNPATH); err != nil || !slices.Equal(found, []string{place}) {
		t.Errorf("it looks for its code in %v, %v", found, err)
	}
	if _, err := os.Stat(filepath.Join(place, driver.Remote)); err != nil {
		t.Error(err)
	}
	if err := os.WriteFile(filepath.Join(place, socketName), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Undo(); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Lstat(place); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("after Undo: %v", err)
	}
}

// What the tenant's user puts into the folder leads the agent nowhere, also when a plan is carried out again.
func TestClientOfAnotherUser(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("only root makes shares for others")
	}
	dir := t.TempDir()
	ours, place, precious := filepath.Join(dir, "ours.so"), filepath.Join(dir, clientName), filepath.Join(dir, "precious")
	library(t, ours, "cuInit")
	s := makeClient{Path: place, UID: 54321, Code: ours, Libraries: []clientLibrary{{Source: ours, Name: driver.CUDA, Driver: ours}}}
	if err := s.Apply(); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(precious, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{driver.Remote, string(driver.CUDA)} {
		if err := os.Symlink(precious, filepath.Join(place, name+".new")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Apply(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(precious); string(text) != "precious" {
		t.Errorf("the agent wrote where the user led it, %d bytes, %v", len(text), err)
	}
	if err := s.Undo(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(precious); err != nil {
		t.Error(err)
	}
}

func TestPlacesOfCovers(t *testing.T) {
	dir := t.TempDir()
	folder, empty := makeFolder{Path: filepath.Join(dir, "a", "b")}, makeEmpty{Path: filepath.Join(dir, "none"), Mode: 0o444}
	for range 2 {
		if err := errors.Join(folder.Apply(), empty.Apply()); err != nil {
			t.Fatal(err)
		}
	}
	if info, err := os.Stat(empty.Path); err != nil || info.Size() != 0 || info.Mode().Perm() != 0o444 {
		t.Errorf("%v, %v", info, err)
	}
	for range 2 {
		if err := errors.Join(empty.Undo(), folder.Undo()); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOldDriver(t *testing.T) {
	for version, want := range map[int]string{12020: "CUDA 12.2, and programs that are kept away from the driver need one of 12.4", 12040: "", 13000: ""} {
		b := New(nil, Options{CUDA: func() int { return version }})
		if got := b.Unsuited(backend.GPU{}); !strings.Contains(got, want) || want == "" && got != "" {
			t.Errorf("%d: %q, want %q", version, got, want)
		}
	}
}

func TestClientOfAWorker(t *testing.T) {
	for line, want := range map[string]int{
		"divvy-worker\x00--socket\x003\x00--client\x004711\x00": 4711,
		"divvy-worker\x00--socket\x003\x00":                     0,
		"divvy-worker\x00--client\x00-1\x00":                    0,
		"divvy-worker\x00--client\x001x\x00":                    0,
		"divvy-worker\x00--client\x00":                          0,
		"":                                                      0,
	} {
		if got := clientIn([]byte(line)); got != want {
			t.Errorf("%q: %d, want %d", line, got, want)
		}
	}
	if got := (&Backend{}).Client(backend.Tenant{UID: os.Getuid()}, os.Getpid()); got != 0 {
		t.Errorf("the test works for process %d", got)
	}
}
