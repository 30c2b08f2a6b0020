package slice

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/ldcache"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

var mark = runpathMark + strings.Repeat(".", 512-len(runpathMark))

// object makes a shared object with that search path, none if it is empty.
func object(t *testing.T, path, runpath string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	args := []string{"-shared", "-nostdlib", "-x", "c", "/dev/null", "-o", path, "-Wl,-soname," + filepath.Base(path)}
	if runpath != "" {
		args = append(args, "-Wl,--enable-new-dtags", "-Wl,-rpath,"+runpath)
	}
	if out, err := exec.Command("cc", args...).CombinedOutput(); err != nil {
		t.Fatalf("cc: %v\n%s", err, out)
	}
}

// tree is an installation with libraries that are linked like ours.
func tree(t *testing.T) install.Tree {
	t.Helper()
	tree := install.Tree(t.TempDir())
	for _, library := range driver.Libraries {
		object(t, tree.Library(string(library)), mark)
	}
	program := tree.Program(coverProgram)
	if err := os.MkdirAll(filepath.Dir(program), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(program, []byte("program"), 0o755); err != nil {
		t.Fatal(err)
	}
	return tree
}

// builtDriver is a driver whose libraries exist.
func builtDriver(t *testing.T) *driver.Driver {
	t.Helper()
	d := simulatedDriver()
	for _, library := range driver.Libraries {
		path := filepath.Join(t.TempDir(), string(library))
		object(t, path, "")
		d.Chosen[library], d.Files[library] = path, []string{path}
	}
	return d
}

func TestWithRunpath(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lib.so")
	object(t, path, mark)
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{"/", "/dev/shm/divvy-1000/tenants/t7", "/" + strings.Repeat("x", 511)} {
		patched, err := withRunpath(image, dir)
		if err != nil {
			t.Fatal(err)
		}
		file, err := elf.NewFile(bytes.NewReader(patched))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := file.DynString(elf.DT_RUNPATH); err != nil || !slices.Equal(got, []string{dir}) {
			t.Errorf("DT_RUNPATH is %q, %v; want %q", got, err, dir)
		}
		if soname, err := file.DynString(elf.DT_SONAME); err != nil || soname[0] != "lib.so" {
			t.Errorf("DT_SONAME became %q, %v", soname, err)
		}
		if len(patched) != len(image) || strings.Contains(string(patched), "runpath-..") {
			t.Error("something of the mark is left, or the size changed")
		}
		if _, err := withRunpath(patched, "/again"); !errors.Is(err, errRunpath) {
			t.Errorf("patched twice: %v", err)
		}
	}
	if _, err := withRunpath(image, "/"+strings.Repeat("x", 512)); !errors.Is(err, errRunpath) {
		t.Errorf("too long: %v", err)
	}
}

func TestWithRunpathRefusesOthers(t *testing.T) {
	dir := t.TempDir()
	for name, runpath := range map[string]string{"none": "", "foreign": "/opt/lib"} {
		path := filepath.Join(dir, name)
		object(t, path, runpath)
		image, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := withRunpath(image, "/x"); !errors.Is(err, errRunpath) {
			t.Errorf("%s: %v, want errRunpath", name, err)
		}
	}
	for _, image := range [][]byte{nil, []byte("text"), []byte("\x7fELF\x02\x01\x01")} {
		if _, err := withRunpath(image, "/x"); !errors.Is(err, errRunpath) {
			t.Errorf("%q: %v, want errRunpath", image, err)
		}
	}
}

func FuzzWithRunpath(f *testing.F) {
	path := filepath.Join(f.TempDir(), "lib.so")
	if out, err := exec.Command("cc", "-shared", "-nostdlib", "-x", "c", "/dev/null", "-s", "-o", path, "-Wl,-rpath,"+mark).CombinedOutput(); err != nil {
		f.Fatalf("cc: %v\n%s", err, out)
	}
	image, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint32(0x28))
	f.Add([]byte{0}, uint32(0))
	f.Fuzz(func(t *testing.T, change []byte, at uint32) {
		damaged := bytes.Clone(image)
		copy(damaged[int(at)%len(damaged):], change)
		if patched, err := withRunpath(damaged, "/dev/shm/t"); err == nil && len(patched) != len(damaged) {
			t.Fatal("the size changed")
		}
	})
}

// applied is a machine with a plan for it.
func applied(t *testing.T, layer backend.Layer) (machine, *backend.Plan) {
	t.Helper()
	cache := filepath.Join(t.TempDir(), "ld.so.cache")
	if err := os.WriteFile(cache, (&ldcache.Cache{}).Encode(), 0o644); err != nil {
		t.Fatal(err)
	}
	m := machine{
		Tenants: filepath.Join(t.TempDir(), "tenants"), Tree: tree(t), Instance: t.TempDir(), Cache: cache,
	}
	tenant := tenant(layer)
	tenant.UID = os.Getuid()
	plan, err := m.plan(tenant, builtDriver(t))
	if err != nil {
		t.Fatal(err)
	}
	return m, plan
}

func TestApplyAndUndo(t *testing.T) {
	for _, layer := range []backend.Layer{backend.LayerNamespace, backend.LayerEnv} {
		m, plan := applied(t, layer)
		for range 2 {
			if err := plan.Apply(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := page.ReadConfig(tenantdir.Dir(plan.Dir).Config()); err != nil {
			t.Error(err)
		}
		if _, err := page.ReadState(tenantdir.Dir(plan.Dir).State(), 1); err != nil {
			t.Error(err)
		}
		for _, bind := range plan.Edits.Binds {
			inTenant := strings.HasPrefix(bind.Target, plan.Dir)
			info, err := os.Lstat(bind.Target)
			if inTenant && (err != nil || !info.Mode().IsRegular()) {
				t.Errorf("%s cannot be bound over: %v, %v", bind.Target, info, err)
			}
		}
		if leftovers, err := filepath.Glob(filepath.Join(plan.Dir, "*.new")); err != nil || len(leftovers) > 0 {
			t.Errorf("left behind: %v, %v", leftovers, err)
		}
		for range 2 {
			if err := plan.Undo(); err != nil {
				t.Error(err)
			}
		}
		if left, err := os.ReadDir(m.Tenants); err != nil || len(left) > 0 {
			t.Errorf("after undo: %v, %v", left, err)
		}
	}
}

// A tenant whose limit was changed keeps the change when the plan is applied
// again, as after a restart of the agent.
func TestApplyAgainKeepsTheLimit(t *testing.T) {
	_, plan := applied(t, backend.LayerNamespace)
	if err := plan.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	path := tenantdir.Dir(plan.Dir).Config()
	if err := page.UpdateConfig(path, func(c *page.Config) { c.Device[0].Limit = 1 << 30 }); err != nil {
		t.Fatal(err)
	}
	if err := plan.Apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c, err := page.ReadConfig(path); err != nil || c.Device[0].Limit != 1<<30 {
		t.Errorf("limit %d, %v", c.Device[0].Limit, err)
	}
}

func TestFailedApplyLeavesNothing(t *testing.T) {
	m, plan := applied(t, backend.LayerNamespace)
	if err := os.WriteFile(m.Tree.Library(string(driver.NVML)), []byte("damaged"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := plan.Apply(t.Context()); !errors.Is(err, errRunpath) {
		t.Errorf("%v, want errRunpath", err)
	}
	if left, err := os.ReadDir(m.Tenants); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := plan.Apply(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("%v, want context.Canceled", err)
	}
}
