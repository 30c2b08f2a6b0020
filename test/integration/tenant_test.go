package integration

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// tenant makes the directory of a tenant that may hold limit bytes of each of
// the GPUs, given by their numbers on the machine. First on LD_LIBRARY_PATH it
// puts Divvy's libraries before the simulated driver's: the place inside the
// share.
func (m *machine) tenant(t *testing.T, limit uint64, gpus ...int) place {
	t.Helper()
	dir := t.TempDir()
	m.writePages(t, dir, limit, gpus)
	must(t, os.Symlink(m.instance.Dir, filepath.Join(dir, "simgpu")))
	for _, library := range []string{"libcuda", "libnvidia-ml"} {
		m.placeLibrary(t, dir, library)
	}
	return in(dir)
}

func (m *machine) writePages(t *testing.T, dir string, limit uint64, gpus []int) {
	t.Helper()
	truth := m.report(t)
	tenant := backend.Tenant{ID: "test", Name: t.Name(), Layer: backend.LayerNamespace}
	for _, number := range gpus {
		gpu := truth.GPUs[number]
		tenant.Shares = append(tenant.Shares, backend.Share{
			GPU:   backend.GPU{UUID: gpu.UUID, PCI: gpu.PCI, Total: gpu.Total, ContextBytes: m.contextBytes},
			Limit: limit, Weight: 1, Policy: v1alpha1.PolicyWeighted, Class: v1alpha1.ClassOffline,
		})
	}
	config, err := tenantdir.Encode(tenant, 0)
	must(t, err)
	must(t, tenantdir.Dir(dir).Make(&config, nil, tenantdir.AccessOwner, -1))
}

// placeLibrary copies one of our libraries, with the directory as its search
// path, and links the driver's file under the name on which ours depends.
func (m *machine) placeLibrary(t *testing.T, dir, library string) {
	t.Helper()
	image, err := os.ReadFile(filepath.Join(prefix(t), "lib", "divvy", library+".so.1"))
	must(t, err)
	real := filepath.Join(m.instance.Dir, library+".so.1")
	image, err = slice.ForDriver(image, dir, real)
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, library+".so.1"), image, 0o700))
	must(t, os.Symlink(library+".so.1", filepath.Join(dir, library+".so")))
	must(t, os.Symlink(real, filepath.Join(dir, library+"-real.so.1")))
}

// heldBy is what a process truly holds on a GPU.
func heldBy(report *simgpu.Report, pid, gpu int) uint64 {
	for _, process := range report.Processes {
		for _, part := range process.GPUs {
			if process.PID == pid && part.Index == gpu {
				return part.Used
			}
		}
	}
	return 0
}

// peak is the most that the one tenant of the machine ever held on GPU 0.
func (m *machine) peak(t *testing.T) uint64 {
	t.Helper()
	for _, tenant := range m.report(t).Tenants {
		for _, part := range tenant.GPUs {
			if tenant.Tenant != "" && part.Index == 0 {
				return part.Peak
			}
		}
	}
	return 0
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
