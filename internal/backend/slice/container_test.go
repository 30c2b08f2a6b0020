package slice

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/backendtest"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/edits/cdi"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// seen is a driver as an agent sees it, with one library and the nodes of one GPU
// besides.
func seen(finder driver.Finder, d *driver.Driver) driverView {
	return driverView{
		finder: finder, found: d,
		files: []edits.Mount{{
			Source: "/usr/lib/libnvidia-ptxjitcompiler.so.550.1", Target: "/usr/lib64/libnvidia-ptxjitcompiler.so.1", Options: edits.ReadOnly,
		}},
		devices: []edits.Device{
			{Path: "/dev/nvidiactl", Source: "/dev/nvidiactl", Major: 195, Minor: 255},
			{Path: "/dev/nvidia3", Source: "/dev/nvidia3", Major: 195, Minor: 3},
		},
	}
}

func TestContainerPlans(t *testing.T) {
	native := machine{Tenants: "/dev/shm/divvy-0/tenants", Tree: "/usr/local", Shared: true}
	simulated := native
	simulated.Instance = "/dev/shm/divvy-0/simgpu/m"
	state := filepath.Join(simulated.Instance, "state")
	hosts := &driver.Driver{Chosen: map[driver.Library]string{driver.CUDA: "/host/usr/lib/libcuda.so.550.1", driver.NVML: "/host/usr/lib/libnvidia-ml.so.550.1"}}
	for name, c := range map[string]struct {
		machine machine
		driver  driverView
	}{
		"native-container":    {native, seen(driver.Finder{Root: "/host"}, hosts)},
		"simulated-container": {simulated, driverView{found: simulatedDriver(), files: []edits.Mount{{Source: state, Target: state, Options: edits.ReadWrite}}}},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := c.machine.container(tenant(backend.LayerContainer), c.driver)
			if err != nil {
				t.Fatal(err)
			}
			backendtest.Golden(t, name, plan, *update)
			if _, err := cdi.Spec(v1alpha1.CDIKind, map[string]edits.Edits{"t7": plan.Edits}); err != nil {
				t.Error(err)
			}
		})
	}
}

// Nothing under a name that a loader or ldconfig looks for is the driver's.
func TestNoContainerGetsTheDriversOwn(t *testing.T) {
	plan, err := machine{Tenants: "/t"}.container(tenant(backend.LayerContainer), seen(driver.Finder{}, nativeDriver()))
	if err != nil {
		t.Fatal(err)
	}
	var covered int
	for _, m := range plan.Edits.Mounts {
		name := filepath.Base(m.Target)
		if !strings.HasPrefix(name, "libcuda.so") && !strings.HasPrefix(name, "libnvidia-ml.so") {
			continue
		}
		covered++
		if !strings.HasPrefix(m.Source, plan.Dir+"/") {
			t.Errorf("%s is the driver's %s", m.Target, m.Source)
		}
	}
	if want := 2 * 2 * len(driver.Folders()); covered != want {
		t.Errorf("%d names are covered, want %d", covered, want)
	}
	for _, m := range plan.Edits.Mounts {
		name, below := strings.CutPrefix(m.Target, edits.ShareDir+"/")
		writable := slices.Contains(m.Options, "rw")
		if below && writable != (name == "state" || name == "pulse.0") {
			t.Errorf("%s: writable is %v", m.Target, writable)
		}
	}
}

func TestContainerApplyAndUndo(t *testing.T) {
	tenants := filepath.Join(t.TempDir(), "tenants")
	if err := os.Mkdir(tenants, 0o755); err != nil {
		t.Fatal(err)
	}
	m := machine{Tenants: tenants, Tree: tree(t), Instance: t.TempDir()}
	plan, err := m.container(tenant(backend.LayerContainer), driverView{found: builtDriver(t)})
	if err != nil {
		t.Fatal(err)
	}
	inodes := map[string]os.FileInfo{}
	for range 2 {
		if err := plan.Apply(t.Context()); err != nil {
			t.Fatal(err)
		}
		// A container runs between the two: what is mounted over in it must stay.
		for _, name := range []string{"state", "pulse.0", driver.CUDA.Real(), driver.NVML.Real()} {
			info, err := os.Lstat(filepath.Join(plan.Dir, name))
			if err != nil || inodes[name] != nil && !os.SameFile(info, inodes[name]) {
				t.Errorf("%s was replaced: %v", name, err)
			}
			inodes[name] = info
		}
	}
	for _, want := range []struct {
		path string
		mode os.FileMode
	}{
		{filepath.Dir(plan.Dir), 0o700}, {plan.Dir, 0o755}, {tenantdir.Dir(plan.Dir).Config(), 0o644},
		{tenantdir.Dir(plan.Dir).State(), 0o666}, {tenantdir.Dir(plan.Dir).Pulse(0), 0o666},
	} {
		if info, err := os.Stat(want.path); err != nil || info.Mode().Perm() != want.mode {
			t.Errorf("%s: %v, %v; want %v", want.path, info, err, want.mode)
		}
	}
	for _, hook := range plan.Edits.Hooks {
		if info, err := os.Stat(hook.Path); err != nil || info.Mode().Perm() != 0o755 {
			t.Errorf("hook: %v, %v", info, err)
		}
	}
	for _, mount := range plan.Edits.Mounts {
		// What is mounted into the read-only directory has its place there already.
		if name, below := strings.CutPrefix(mount.Target, edits.ShareDir+"/"); below {
			if _, err := os.Lstat(filepath.Join(plan.Dir, name)); err != nil {
				t.Error(err)
			}
		}
		if strings.HasPrefix(mount.Source, tenants) {
			if _, err := os.Lstat(mount.Source); err != nil {
				t.Error(err)
			}
		}
	}
	b := &Backend{options: Options{Tenants: tenants}}
	for range 2 {
		if err := b.Undo(t.Context(), backend.Tenant{Dir: plan.Dir}); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(plan.Dir); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("after undo: %v", err)
	}
	for _, dir := range []string{tenants, filepath.Dir(tenants), filepath.Join(tenantdir.Containers(tenants), "a", "b"), "/"} {
		if err := b.Undo(t.Context(), backend.Tenant{Dir: dir}); !errors.Is(err, backend.ErrTenant) {
			t.Errorf("undo %s: %v", dir, err)
		}
	}
}

// Containers share one copy of our libraries; what no container has any more goes
// with the next version.
func TestContainersShareTheirLibraries(t *testing.T) {
	dir := t.TempDir()
	step := func(source, tenant string) linkLibrary {
		place := filepath.Join(dir, tenant)
		if err := os.MkdirAll(place, 0o755); err != nil {
			t.Fatal(err)
		}
		return linkLibrary{Source: source, Store: filepath.Join(dir, "lib"), Path: filepath.Join(place, "libcuda.so.1"), Runpath: edits.ShareDir, Driver: source}
	}
	apply := func(s linkLibrary) os.FileInfo {
		t.Helper()
		if err := s.Apply(); err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(s.Path)
		if err != nil {
			t.Fatal(err)
		}
		return info
	}
	stored := func() int {
		t.Helper()
		entries, err := os.ReadDir(filepath.Join(dir, "lib"))
		if err != nil {
			t.Fatal(err)
		}
		return len(entries)
	}
	old, next := tree(t).Library("libcuda.so.1"), filepath.Join(t.TempDir(), "libnew.so.1")
	object(t, next, mark)
	first, second := step(old, "a"), step(old, "b")
	info := apply(first)
	if !os.SameFile(info, apply(second)) || !os.SameFile(info, apply(first)) || stored() != 1 {
		t.Errorf("two tenants have two libraries, or the store has %d", stored())
	}
	later := step(next, "c")
	if os.SameFile(info, apply(later)) || stored() != 2 {
		t.Errorf("the store has %d libraries, want the old one and the new", stored())
	}
	if !os.SameFile(info, apply(first)) {
		t.Error("a stored library was replaced")
	}
	if err := errors.Join(first.Undo(), second.Undo(), later.Undo(), later.Undo()); err != nil {
		t.Error(err)
	}
	if err := os.RemoveAll(filepath.Join(dir, "lib")); err != nil {
		t.Fatal(err)
	}
	apply(first)
	if err := first.Undo(); err != nil {
		t.Error(err)
	}
	if apply(later); stored() != 1 {
		t.Errorf("the store keeps %d libraries, want only the one in use", stored())
	}
	remembering := first
	remembering.memory = new(memory)
	apply(remembering)
	path, ok := remembering.memory.of(old, first.purpose())
	if !ok || filepath.Dir(path) != first.Store {
		t.Errorf("it remembers %q", path)
	}
	apply(second) // a further link changes nothing
	if again, ok := remembering.memory.of(old, first.purpose()); !ok || again != path {
		t.Errorf("it remembers %q no longer", path)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if apply(remembering); stored() != 2 {
		t.Error("what was taken from the store is not made again")
	}
	first = remembering
	if err := os.WriteFile(old, []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := first.Apply(); !errors.Is(err, errRunpath) {
		t.Errorf("%v, want errRunpath", err)
	}
}

func TestContainerNeedsADriver(t *testing.T) {
	b := New(Options{Tenants: t.TempDir(), Tree: install.Tree(t.TempDir()), Inventory: two{"550.1"}, Finder: driver.Finder{Root: t.TempDir()}})
	if _, err := b.Plan(tenant(backend.LayerContainer)); !errors.Is(err, driver.ErrNotFound) {
		t.Errorf("%v, want ErrNotFound", err)
	}
	if _, err := (machine{}).container(backend.Tenant{}, seen(driver.Finder{}, nativeDriver())); !errors.Is(err, backend.ErrTenant) {
		t.Errorf("%v, want backend.ErrTenant", err)
	}
}
