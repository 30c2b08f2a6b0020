package slice

import (
	"path/filepath"
	"slices"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// driverView is the driver as the agent sees it.
type driverView struct {
	finder  driver.Finder
	found   *driver.Driver
	files   []edits.Mount
	devices []edits.Device
}

// container is pure.
//
// In the container our libraries are found by name, since they are files in the
// folders where every loader looks. The driver's own are in no such folder, so
// that whatever ldconfig does later, it leads to ours. Nothing depends on a
// variable: those that are set only keep others from interfering.
func (m machine) container(t backend.Tenant, d driverView) (*backend.Plan, error) {
	place := tenantdir.Containers(m.Tenants)
	inside, outside := tenantdir.Dir(edits.ShareDir), tenantdir.Of(place, t.ID)
	directory, err := m.makeTenant(outside, tenantdir.AccessContainer, t)
	if err != nil {
		return nil, err
	}
	dir := string(outside)
	p := &backend.Plan{Dir: dir}
	add := func(steps ...backend.Step) { p.Steps = append(p.Steps, steps...) }
	mount := func(source, target string, options []string) {
		p.Edits.Mounts = append(p.Edits.Mounts, edits.Mount{Source: source, Target: target, Options: options})
	}
	share := func(name string) string { return filepath.Join(edits.ShareDir, name) }

	// Beside the places for tenants, as a runtime may run it as root of a user
	// namespace alone.
	cover := filepath.Join(filepath.Dir(m.Tenants), coverProgram)
	store := filepath.Join(filepath.Dir(m.Tenants), "lib")
	p.Edits.Hooks = []edits.Hook{
		{Path: cover, Args: []string{coverProgram, outside.Cgroups()}, Outside: true},
		{Path: cover, Args: []string{coverProgram}},
	}
	add(installProgram{Source: m.Tree.Program(coverProgram), Path: cover, memory: m.memory},
		makePlace{Path: place, Mode: 0o700}, directory)
	mount(dir, edits.ShareDir, edits.ReadOnly)
	mount(outside.State(), inside.State(), edits.ReadWrite)
	for i := range t.Shares {
		mount(outside.Pulse(i), inside.Pulse(i), edits.ReadWrite)
	}
	for _, library := range driver.Libraries {
		ours, real := filepath.Join(dir, string(library)), filepath.Join(dir, library.Real())
		add(linkLibrary{Source: m.Tree.Library(string(library)), Store: store, Path: ours, Runpath: edits.ShareDir,
			Driver: d.found.Chosen[library], memory: m.memory},
			link{Path: filepath.Join(dir, library.Bare()), Target: string(library)},
			makeFile{Path: real})
		mount(d.finder.Host(d.found.Chosen[library]), share(library.Real()), edits.ReadOnly)
		for _, folder := range driver.Folders() {
			mount(ours, filepath.Join(folder, string(library)), edits.ReadOnly)
			mount(ours, filepath.Join(folder, library.Bare()), edits.ReadOnly)
		}
	}
	if m.Instance != "" {
		add(link{Path: filepath.Join(dir, simfiles.Link), Target: m.Instance},
			link{Path: filepath.Join(dir, simfiles.TenantLink), Target: t.ID})
	}
	p.Edits.Mounts = append(p.Edits.Mounts, d.files...)
	p.Edits.Devices = d.devices
	p.Edits.Env = containerEnv
	if t.Name != "" {
		p.Edits.Env = append(slices.Clip(containerEnv), edits.Env{Name: edits.ShareVariable, Value: t.Name})
	}
	return p, nil
}

// coverProgram hides driver libraries that an image brings along. Only when the
// container is made can be known where those are.
const coverProgram = "divvy-cover"

// containerEnv are the variables of containers.
var containerEnv = []edits.Env{
	// A runtime of NVIDIA's that is the node's default would add all GPUs and the
	// driver's own libraries otherwise.
	{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"},
	// Triton asks the linker's cache alone where to link libcuda from.
	{Name: "TRITON_LIBCUDA_PATH", Value: edits.ShareDir},
}

// addresses are the PCI addresses of a tenant's GPUs.
func addresses(t backend.Tenant) []string {
	var pci []string
	for _, s := range t.Shares {
		pci = append(pci, s.GPU.PCI)
	}
	return pci
}
