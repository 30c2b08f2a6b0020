package slice

import (
	"encoding/json"
	"errors"
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/backendtest"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/ldcache"
	"github.com/divvy-gpu/divvy/internal/page"
)

var update = flag.Bool("update", false, "rewrite golden files")

const uuid = "GPU-00112233-4455-6677-8899-aabbccddeeff"

func tenant(layer backend.Layer) backend.Tenant {
	return backend.Tenant{
		ID: "t7", Name: "train", UID: 1000, Layer: layer,
		Shares: []backend.Share{{
			GPU:   backend.GPU{UUID: uuid, PCI: "00000000:3B:00.0", Total: 80 << 30, ContextBytes: 400 << 20},
			Limit: 8<<30 + 700, Cores: 30, Weight: 1, Policy: v1alpha1.PolicyFixed, Class: v1alpha1.ClassOnline,
		}},
	}
}

func nativeDriver() *driver.Driver {
	return &driver.Driver{
		Chosen: map[driver.Library]string{driver.CUDA: "/usr/lib/libcuda.so.550.1", driver.NVML: "/usr/lib/libnvidia-ml.so.550.1"},
		Files: map[driver.Library][]string{
			driver.CUDA: {"/usr/lib/libcuda.so.550.1", "/usr/local/cuda-12.4/compat/libcuda.so.560.1"},
			driver.NVML: {"/usr/lib/libnvidia-ml.so.550.1"},
		},
		Cached: map[driver.Library]bool{driver.CUDA: true, driver.NVML: true},
	}
}

func simulatedDriver() *driver.Driver {
	return &driver.Driver{
		Chosen: map[driver.Library]string{driver.CUDA: "/b/lib/simgpu/libcuda.so.1", driver.NVML: "/b/lib/simgpu/libnvidia-ml.so.1"},
		Files: map[driver.Library][]string{
			driver.CUDA: {"/b/lib/simgpu/libcuda.so.1"},
			driver.NVML: {"/b/lib/simgpu/libnvidia-ml.so.1"},
		},
		Cached: map[driver.Library]bool{},
	}
}

func TestPlans(t *testing.T) {
	own := machine{Tenants: "/dev/shm/divvy-1000/tenants", Tree: "/opt/divvy", Cache: "/etc/ld.so.cache", Flags: ldcache.FlagsAMD64}
	shared, simulated, bare := own, own, own
	shared.Tenants, shared.Shared = "/dev/shm/divvy-0/tenants", true
	simulated.Instance = "/dev/shm/divvy-1000/simgpu/a100"
	bare.Instance, bare.Cache = simulated.Instance, ""
	overcommitted := tenant(backend.LayerNamespace)
	overcommitted.Overcommit = true
	for name, c := range map[string]struct {
		machine machine
		tenant  backend.Tenant
		driver  *driver.Driver
	}{
		"native-namespace":    {own, tenant(backend.LayerNamespace), nativeDriver()},
		"native-env":          {own, tenant(backend.LayerEnv), nativeDriver()},
		"shared-namespace":    {shared, overcommitted, nativeDriver()},
		"simulated-namespace": {simulated, tenant(backend.LayerNamespace), simulatedDriver()},
		"simulated-env":       {simulated, tenant(backend.LayerEnv), simulatedDriver()},
		"simulated-no-cache":  {bare, tenant(backend.LayerNamespace), simulatedDriver()},
	} {
		t.Run(name, func(t *testing.T) {
			plan, err := c.machine.plan(c.tenant, c.driver)
			if err != nil {
				t.Fatal(err)
			}
			backendtest.Golden(t, name, plan, *update)
		})
	}
}

// Whatever differs in what two tenants are granted differs in their printed plans.
func TestPlansShowAllThatIsGranted(t *testing.T) {
	printed := func(change func(*backend.Share)) string {
		t.Helper()
		wanted := tenant(backend.LayerNamespace)
		wanted.Shares[0].Policy, wanted.Shares[0].MaxCores = v1alpha1.PolicyBurst, 50
		change(&wanted.Shares[0])
		plan, err := machine{}.plan(wanted, nativeDriver())
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(plan)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	before := printed(func(*backend.Share) {})
	for name, change := range map[string]func(*backend.Share){
		"limit":     func(s *backend.Share) { s.Limit += page.Unit },
		"cores":     func(s *backend.Share) { s.Cores++ },
		"max cores": func(s *backend.Share) { s.MaxCores++ },
		"weight":    func(s *backend.Share) { s.Weight++ },
		"policy":    func(s *backend.Share) { s.Policy = v1alpha1.PolicyFixed },
		"class":     func(s *backend.Share) { s.Class = v1alpha1.ClassOffline },
	} {
		if printed(change) == before {
			t.Errorf("plans that differ in %s are printed alike", name)
		}
	}
}

func TestPlanRefuses(t *testing.T) {
	none, many, odd := tenant(backend.LayerEnv), tenant(backend.LayerEnv), tenant(backend.LayerEnv)
	none.Shares = nil
	for len(many.Shares) <= page.Devices {
		many.Shares = append(many.Shares, many.Shares[0])
	}
	odd.Shares[0].GPU.UUID = "MIG-1"
	for _, tenant := range []backend.Tenant{none, many, odd} {
		if _, err := (machine{}).plan(tenant, nativeDriver()); !errors.Is(err, backend.ErrTenant) {
			t.Errorf("%v, want ErrTenant", err)
		}
	}
}

func TestChoosePlace(t *testing.T) {
	look := func(path string) (bool, error) {
		if strings.HasPrefix(path, "/missing") {
			return false, os.ErrNotExist
		}
		return strings.HasPrefix(path, "/noexec"), nil
	}
	if got, err := choosePlace([]string{"/noexec", "/missing", "/good", "/other"}, look); err != nil || got != "/good" {
		t.Errorf("%s, %v", got, err)
	}
	if _, err := choosePlace([]string{"/noexec", "/missing"}, look); !errors.Is(err, ErrNoPlace) || !strings.Contains(err.Error(), "/noexec: mounted noexec") {
		t.Errorf("%v", err)
	}
	if _, err := ChoosePlace([]string{t.TempDir()}); err != nil {
		t.Error(err)
	}
}
