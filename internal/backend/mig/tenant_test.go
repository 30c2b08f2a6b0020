package mig

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install/installtest"
	"github.com/divvy-gpu/divvy/internal/launch"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

// maker is backend slice on a machine.
func (b *bench) maker(inventory slice.Inventory) *slice.Backend {
	b.t.Helper()
	dir := b.t.TempDir()
	tenants := filepath.Join(dir, "tenants")
	if err := os.Mkdir(tenants, 0o755); err != nil {
		b.t.Fatal(err)
	}
	return slice.New(slice.Options{
		Tenants: tenants, State: dir, Tree: installtest.Tree(b.t), Instance: b.instance.Dir, Shared: os.Getuid() == 0,
		Inventory: inventory, Finder: driver.Finder{Instance: b.instance.Dir}, Log: slog.New(slog.DiscardHandler),
	})
}

// tenantOn is a tenant that has an instance alone.
func (b *bench) tenantOn(i backend.Instance, layer backend.Layer) backend.Tenant {
	gpu := b.gpu
	gpu.UUID, gpu.Total, gpu.Instance = i.UUID, i.Bytes, i
	return backend.Tenant{
		ID: "t1", Name: "t1", UID: os.Getuid(), Layer: layer, Backend: v1alpha1.BackendMIG,
		Shares: []backend.Share{{GPU: gpu, Limit: i.Bytes, Weight: 1, Policy: v1alpha1.PolicyWeighted, Class: v1alpha1.ClassOffline}},
	}
}

// A command sees the nodes of its own instance alone, also when others are made after it began.
func TestNodesThatACommandSees(t *testing.T) {
	b := newBench(t, "h100x8", "gpus[0].migMode=true")
	a := b.agent()
	other := b.create(a, "1g.10gb", 0)
	mine := b.create(a, "1g.10gb", 3)
	enter := launch.Enter(installtest.Tree(t).Program("divvy-enter"))
	if err := enter.Probe(t.Context()); err != nil {
		installtest.Missing(t, "userns", err)
	}
	tenant := b.tenantOn(mine, backend.LayerNamespace)
	p, err := a.Plan(tenant)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // to carry it out again changes nothing
		if err := a.Apply(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	finder, folder := driver.Finder{Instance: b.instance.Dir}, filepath.Join(simfiles.Devices(b.instance.Dir), "nvidia-caps")
	nodes, err := finder.Capabilities(b.gpu.PCI, mine.GPUInstance, mine.ComputeInstance)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{filepath.Base(nodes[0].Source), filepath.Base(nodes[1].Source)}
	run := enter.Plan(p.Edits, os.Environ(), []string{"sh", "-c", "ls " + folder + " && read line && ls " + folder})
	cmd := exec.Command(run.Program, run.Args[1:]...)
	cmd.Env = run.Env
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b.create(a, "1g.10gb", 1)
	if _, err := input.Write([]byte("\n")); err != nil {
		t.Error(err)
	}
	input.Close()
	if err := cmd.Wait(); err != nil {
		t.Fatalf("%v: %s", err, said.String())
	}
	if got := strings.Fields(said.String()); !slices.Equal(got, append(slices.Clone(want), want...)) {
		t.Errorf("it sees %q, want %q twice", got, want)
	}
	outside, err := os.ReadDir(folder)
	if err != nil || len(outside) < 6 {
		t.Errorf("outside there are %d nodes, %v", len(outside), err)
	}
	if _, err := finder.Capabilities(b.gpu.PCI, other.GPUInstance, other.ComputeInstance); err != nil {
		t.Errorf("the other instance: %v", err)
	}
	tenant.Dir = p.Dir
	if err := a.Undo(context.Background(), tenant); err != nil {
		t.Error(err)
	}
}

// Where a command gets no mount namespace nothing is hidden, and nothing is made for it.
func TestNodesWithoutANamespace(t *testing.T) {
	b := newBench(t, "h100x8", "gpus[0].migMode=true")
	a := b.agent()
	mine := b.create(a, "1g.10gb", 0)
	p, err := a.Plan(b.tenantOn(mine, backend.LayerEnv))
	if err != nil || len(p.Edits.Binds) != 0 {
		t.Errorf("binds %+v, %v", p.Edits.Binds, err)
	}
}

// An instance whose capability files are missing is given to nobody.
func TestInstanceWithoutCapabilities(t *testing.T) {
	b := newBench(t, "h100x8", "gpus[0].migMode=true")
	a := b.agent()
	mine := b.create(a, "1g.10gb", 0)
	if err := os.RemoveAll(filepath.Join(simfiles.Proc(b.instance.Dir), "driver/nvidia/capabilities/gpu0")); err != nil {
		t.Fatal(err)
	}
	for _, layer := range []backend.Layer{backend.LayerNamespace, backend.LayerContainer} {
		_, err := a.Plan(b.tenantOn(mine, layer))
		if err == nil || !strings.Contains(err.Error(), mine.UUID) || !strings.Contains(err.Error(), "capabilities/gpu0/mig/gi") {
			t.Errorf("layer %s: %v", layer, err)
		}
	}
}

// What the driver keeps of an instance's memory is learnt with the first of its profile, by the next agent too: what is left is
// what the simulated machine says that processes can have.
func TestCapacityOfInstances(t *testing.T) {
	b := newBench(t, "h100x8", "gpus[0].migMode=true")
	a := b.agent()
	first := b.create(a, "1g.10gb", 0)
	if err := a.Destroy(t.Context(), b.gpu, first.UUID); err != nil {
		t.Fatal(err)
	}
	made := []backend.Instance{first, b.create(a, "1g.10gb", 3), b.create(a, "3g.40gb", 4)}
	report, err := b.store.Report(t.Context(), b.instance)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range made {
		for _, real := range report.GPUs[0].MIG.Instances {
			if strings.HasSuffix(real.Profile, i.Profile) && i.Capacity() != real.Capacity {
				t.Errorf("%s at %d has %d bytes for shares, want %d", i.Profile, i.Start, i.Capacity(), real.Capacity)
			}
		}
	}
	if made[1].Reserved == 0 || made[1].Bytes == made[1].Capacity() {
		t.Errorf("the driver keeps nothing of %+v", made[1])
	}
	for name, d := range map[string]backend.Division{"this agent": b.divide(a), "the next one": b.divide(b.agent())} {
		for _, s := range d.Sizes {
			if (s.Reserved != 0) != (s.Profile == "1g.10gb" || s.Profile == "3g.40gb") {
				t.Errorf("%s knows that the driver keeps %d bytes of a %s", name, s.Reserved, s.Profile)
			}
		}
		for _, p := range d.Parts {
			if p.Reserved == 0 {
				t.Errorf("%s knows nothing of %+v", name, p)
			}
		}
	}
}

// What a context takes on an instance is measured with the first of its profile, and known of the others.
func TestContextsOnInstances(t *testing.T) {
	b := newBench(t, "h100x8", "gpus[0].migMode=true")
	a := b.agent()
	first := b.create(a, "1g.10gb", 0)
	if first.ContextBytes == 0 || first.ContextBytes == 512<<20 { // which is assumed where nothing can be measured
		t.Errorf("a context takes %d bytes", first.ContextBytes)
	}
	b.foreign(a, "1g.10gb", 1)
	for _, p := range b.divide(a).Parts {
		if p.ContextBytes != first.ContextBytes {
			t.Errorf("on %+v it takes %d bytes, want %d", p, p.ContextBytes, first.ContextBytes)
		}
	}
	for _, s := range b.divide(a).Sizes {
		if (s.ContextBytes != 0) != (s.Profile == "1g.10gb") {
			t.Errorf("on a %s it takes %d bytes", s.Profile, s.ContextBytes)
		}
	}
}
