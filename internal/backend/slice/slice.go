// Package slice makes shares real by putting Divvy's libraries in front of the
// driver's: it prepares tenant directories and works out which file is mounted
// over which. It starts no tenant and keeps no state of its own.
//
// A tenant directory holds the pages, copies of our libraries that look for the
// driver's in that directory, and the driver's libraries under another name.
// A tenant needs nothing else, and nothing else of the machine changes.
package slice

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"

	"golang.org/x/sys/unix"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/ldcache"
	"github.com/divvy-gpu/divvy/internal/nvml"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// ErrInstallation marks an installation of Divvy that is not complete.
var ErrInstallation = errors.New("incomplete installation of Divvy")

// Inventory is the part of NVML that the backend asks.
type Inventory interface {
	GPUs() ([]nvml.GPU, error)
	Version() nvml.Version
}

// Options say where everything is.
type Options struct {
	// Tenants is the directory for tenant directories. Programs must be
	// executable there: see [ChoosePlace].
	Tenants string
	// State is the directory of what is remembered between agents.
	State string
	Tree  install.Tree
	// Instance is the directory of a simulated machine, empty on a real one.
	Instance string
	// Shared is true for the system's agent.
	Shared    bool
	Inventory Inventory
	// Finder finds the driver for the agent itself.
	Finder driver.Finder
	// Reap frees what a tenant's dead processes held.
	Reap tenantdir.Reaper
	Log  *slog.Logger
}

// Backend implements [backend.Backend]. What its tenants use, and who runs in
// them, their directories tell.
type Backend struct {
	*tenantdir.Tenants
	options  Options
	machine  machine
	contexts *contexts
}

var (
	_ backend.Backend  = (*Backend)(nil)
	_ backend.Changer  = (*Backend)(nil)
	_ backend.Notifier = (*Backend)(nil)
)

// New returns the backend of a machine.
func New(o Options) *Backend {
	b := &Backend{options: o, contexts: newContexts(o)}
	b.Tenants = tenantdir.NewTenants(tenantdir.Config{
		Root: o.Tenants, PIDNamespace: PIDNamespace(), Reap: o.Reap, Log: o.Log,
	})
	b.machine = loading()
	b.machine.Tenants, b.machine.Tree, b.machine.Instance, b.machine.Shared = o.Tenants, o.Tree, o.Instance, o.Shared
	b.machine.PIDNamespace, b.machine.memory = PIDNamespace(), new(memory)
	return b
}

// loading is what this machine's linker has.
func loading() machine {
	m := machine{Flags: libraryFlags[runtime.GOARCH]}
	if cache, err := filepath.EvalSymlinks(ldcache.Path); err == nil {
		m.Cache = cache
	}
	return m
}

var libraryFlags = map[string]uint32{"amd64": ldcache.FlagsAMD64, "arm64": ldcache.FlagsARM64}

// PIDNamespace is the inode by which pid namespaces are told apart, 0 where
// /proc does not tell.
func PIDNamespace() uint64 {
	var stat unix.Stat_t
	if err := unix.Stat("/proc/self/ns/pid", &stat); err != nil {
		return 0
	}
	return stat.Ino
}

// Discover implements [backend.Backend]. What a context takes is measured once
// for each model of GPU and version of the driver, which takes about a second.
func (b *Backend) Discover(ctx context.Context) ([]backend.GPU, error) {
	found, err := b.options.Inventory.GPUs()
	if err != nil {
		return nil, fmt.Errorf("list GPUs: %w", err)
	}
	gpus := make([]backend.GPU, 0, len(found))
	for _, g := range found {
		context, err := b.contexts.of(ctx, g)
		if err != nil {
			return nil, fmt.Errorf("measure what a context takes: %w", err)
		}
		gpus = append(gpus, backend.GPU{
			Index: g.Index, UUID: g.UUID, Name: g.Name, PCI: g.PCI, DeviceID: g.DeviceID, Total: g.Total, Reserved: g.Reserved,
			ContextBytes: context, Unit: page.Unit,
		})
	}
	return gpus, nil
}

// Known are the GPUs of an inventory, with what an agent whose state is in a directory has
// measured: nothing is measured, and what a context takes is 0 where that is not known.
func Known(state string, inventory Inventory) ([]backend.GPU, error) {
	found, err := inventory.GPUs()
	if err != nil {
		return nil, fmt.Errorf("list GPUs: %w", err)
	}
	measured, _ := contextsFile(state).Load() // what cannot be read is not known
	gpus := make([]backend.GPU, 0, len(found))
	for _, g := range found {
		gpus = append(gpus, backend.GPU{
			Index: g.Index, UUID: g.UUID, Name: g.Name, PCI: g.PCI, DeviceID: g.DeviceID, Total: g.Total, Reserved: g.Reserved,
			ContextBytes: measured[contextKey(g, inventory)], Unit: page.Unit,
		})
	}
	return gpus, nil
}

// Plan implements [backend.Backend]. It looks for the driver's files as the
// tenant's LD_LIBRARY_PATH would find them, so that those are covered too.
func (b *Backend) Plan(t backend.Tenant) (*backend.Plan, error) {
	p, _, err := b.PlanOver(t)
	return p, err
}

// PlanOver is Plan that also returns the driver as the tenant would find it, nil for a container.
func (b *Backend) PlanOver(t backend.Tenant) (*backend.Plan, *driver.Driver, error) {
	if t.Layer == backend.LayerContainer {
		p, err := b.planContainer(t)
		return p, nil, err
	}
	nodes, err := b.capabilities(t)
	if err != nil {
		return nil, nil, err
	}
	d, err := b.options.Finder.Find()
	if err != nil {
		return nil, nil, err
	}
	if len(t.LibraryPath) > 0 {
		finder := b.options.Finder
		finder.LibraryPath, finder.Others = t.LibraryPath, true
		theirs, err := finder.Find()
		if err != nil {
			return nil, nil, err
		}
		// The driver is the agent's: a tenant cannot choose another.
		theirs.Chosen = d.Chosen
		theirs.Cached = d.Cached
		d = theirs
	}
	p, err := b.machine.plan(t, d)
	if err != nil {
		return nil, nil, err
	}
	return confine(p, t, nodes), d, nil
}

func (b *Backend) planContainer(t backend.Tenant) (*backend.Plan, error) {
	d := driverView{finder: b.options.Finder}
	var err error
	if d.found, d.files, err = b.machine.memory.files(d.finder, b.options.Inventory.Version().Driver); err != nil {
		return nil, err
	}
	if d.devices, err = d.finder.Devices(addresses(t)); err != nil {
		return nil, err
	}
	nodes, err := b.capabilities(t)
	if err != nil {
		return nil, err
	}
	if b.options.Instance == "" { // whose nodes are no devices
		d.devices = append(d.devices, nodes...)
	}
	return b.machine.container(t, d)
}

// Apply implements [backend.Backend].
func (b *Backend) Apply(ctx context.Context, p *backend.Plan) error {
	return p.Apply(ctx)
}

// Undo implements [backend.Backend].
func (b *Backend) Undo(_ context.Context, t backend.Tenant) error {
	if place := filepath.Dir(t.Dir); place != b.options.Tenants && place != tenantdir.Containers(b.options.Tenants) {
		return fmt.Errorf("%w: %s is not below %s", backend.ErrTenant, t.Dir, b.options.Tenants)
	}
	return tenantdir.Dir(t.Dir).Remove()
}

// Health implements [backend.Backend]: it checks that our libraries are as they
// were built, and that the driver is there.
func (b *Backend) Health(context.Context) error {
	for _, library := range driver.Libraries {
		path := b.options.Tree.Library(string(library))
		if _, ok := b.machine.memory.of(path, "sound"); ok {
			continue
		}
		image, err := os.ReadFile(path)
		if err != nil {
			return fmt.Errorf("%w: %w: build or install it, or set %s", ErrInstallation, err, install.Variable)
		}
		if _, _, err := findRunpath(image); err != nil {
			return fmt.Errorf("%w: %s: %w", ErrInstallation, path, err)
		}
		b.machine.memory.note(path, "sound", path)
	}
	if _, err := os.Stat(b.options.Tree.Program(coverProgram)); err != nil {
		return fmt.Errorf("%w: %w: build or install it, or set %s", ErrInstallation, err, install.Variable)
	}
	_, err := b.machine.memory.find(b.options.Finder)
	return err
}
