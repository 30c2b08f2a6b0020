package slice

import (
	"encoding/hex"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/install"
	"github.com/divvy-gpu/divvy/internal/ldcache"
	"github.com/divvy-gpu/divvy/internal/page"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
	"github.com/divvy-gpu/divvy/internal/tenantdir"
)

// machine is all that a plan depends on besides the tenant.
type machine struct {
	// Tenants is the directory of tenant directories.
	Tenants string
	// Tree is where our own libraries are.
	Tree install.Tree
	// Instance is the directory of a simulated machine, empty on a real one.
	Instance string
	// Cache is the linker's cache, empty where there is none.
	Cache string
	// Flags tell the linker's cache of which kind this machine's libraries are.
	Flags uint32
	// PIDNamespace is the inode of the agent's pid namespace.
	PIDNamespace uint64
	// Shared is true for the system's agent, whose tenants are other users:
	// they may read all, and write the state page alone.
	Shared bool
	// memory is the backend's, nil for none.
	memory *memory
}

// plan is pure. d is the driver as the tenant would find it. Containers have a
// plan of their own.
func (m machine) plan(t backend.Tenant, d *driver.Driver) (*backend.Plan, error) {
	dir := string(tenantdir.Of(m.Tenants, t.ID))
	p := &backend.Plan{Dir: dir}
	add := func(steps ...backend.Step) { p.Steps = append(p.Steps, steps...) }

	access := tenantdir.AccessOwner
	if m.Shared {
		access = tenantdir.AccessUsers
	}
	directory, err := m.makeTenant(tenantdir.Dir(dir), access, t)
	if err != nil {
		return nil, err
	}
	add(directory)
	for _, library := range driver.Libraries {
		ours := filepath.Join(dir, string(library))
		add(copyLibrary{Source: m.Tree.Library(string(library)), Path: ours, Runpath: dir, Driver: d.Chosen[library]},
			link{Path: filepath.Join(dir, library.Bare()), Target: string(library)})
		if t.Layer == backend.LayerEnv {
			add(link{Path: filepath.Join(dir, library.Real()), Target: d.Chosen[library]})
		}
	}
	if m.Instance != "" {
		add(link{Path: filepath.Join(dir, simfiles.Link), Target: m.Instance})
		// The driver's programs, which a real machine has where everybody's PATH leads.
		p.Edits.Env = []edits.Env{{Name: "PATH", Value: m.Instance, Prepend: true}}
	}
	if t.Layer == backend.LayerEnv {
		p.Edits.Env = append(p.Edits.Env, edits.Env{Name: "LD_LIBRARY_PATH", Value: dir, Prepend: true})
		return p, nil
	}
	for _, library := range driver.Libraries {
		// A file to bind over, not a link: mount(2) would follow a link and
		// cover what it points to.
		add(makeFile{Path: filepath.Join(dir, library.Real())})
	}
	p.Edits.Binds = covers(dir, d)
	m.lead(p, d)
	return p, nil
}

// covers binds the driver's originals into the tenant directory and then ours
// over every file of the driver. The order matters: the second hides the
// sources of the first.
func covers(dir string, d *driver.Driver) []edits.Bind {
	var binds []edits.Bind
	for _, library := range driver.Libraries {
		binds = append(binds, edits.Bind{
			Source: d.Chosen[library], Target: filepath.Join(dir, library.Real()), ReadOnly: true,
		})
	}
	for _, library := range driver.Libraries {
		for _, file := range d.Files[library] {
			binds = append(binds, edits.Bind{
				Source: filepath.Join(dir, string(library)), Target: file, ReadOnly: true,
			})
		}
	}
	return binds
}

// lead makes programs find our libraries by name alone where the linker's cache
// knows no driver's file that ours could cover: a simulated machine, or a
// driver that is only on LD_LIBRARY_PATH.
func (m machine) lead(p *backend.Plan, d *driver.Driver) {
	var entries []ldcache.Entry
	for _, library := range driver.Libraries {
		if d.Cached[library] {
			continue
		}
		entries = append(entries, m.entries(p.Dir, library)...)
	}
	if len(entries) > 0 {
		lead(p, &p.Edits, m.Cache, filepath.Join(p.Dir, cacheName), entries)
	}
}

// cacheName is the linker's cache that a tenant sees.
const cacheName = "ld.so.cache"

// lead makes programs with the edits find libraries by name in entries, which are of one folder, before all others.
func lead(p *backend.Plan, e *edits.Edits, cache, path string, entries []ldcache.Entry) {
	if cache == "" {
		e.Env = append(e.Env, edits.Env{Name: "LD_LIBRARY_PATH", Value: filepath.Dir(entries[0].Path), Prepend: true})
		return
	}
	p.Steps = append(p.Steps, writeCache{Source: cache, Path: path, Entries: entries})
	e.Binds = append(e.Binds, edits.Bind{Source: path, Target: cache, ReadOnly: true})
}

// Lead makes programs with the edits find the driver's libraries by name in a folder before all others. What that needs
// is made in the plan's directory, under names that begin as the folder's.
func (b *Backend) Lead(p *backend.Plan, e *edits.Edits, folder string) {
	b.machine.leadTo(p, e, folder)
}

// Lead is [Backend.Lead] on a machine that may have no driver.
func Lead(p *backend.Plan, e *edits.Edits, folder string) { loading().leadTo(p, e, folder) }

func (m machine) leadTo(p *backend.Plan, e *edits.Edits, folder string) {
	lead(p, e, m.Cache, folder+"."+cacheName, m.named(folder))
}

// named are the driver's libraries in a folder, by all their names.
func (m machine) named(folder string) (entries []ldcache.Entry) {
	for _, library := range driver.Libraries {
		entries = append(entries, m.entries(folder, library)...)
	}
	return entries
}

// entries are a library in a folder, by both its names.
func (m machine) entries(folder string, library driver.Library) (entries []ldcache.Entry) {
	for _, name := range []string{string(library), library.Bare()} {
		entries = append(entries, ldcache.Entry{Name: name, Path: filepath.Join(folder, name), Flags: m.Flags})
	}
	return entries
}

// makeTenant is the step that makes a tenant's directory and pages.
func (m machine) makeTenant(dir tenantdir.Dir, access tenantdir.Access, t backend.Tenant) (makeTenant, error) {
	config, err := tenantdir.Encode(t, m.PIDNamespace)
	if err != nil {
		return makeTenant{}, err
	}
	step := makeTenant{
		Dir: dir, Access: access, UID: t.User(), Flags: config.Flags, Shares: shown(&config), config: config, shares: t.Shares, record: t.Record,
	}
	if t.Worker != 0 {
		step.Asker = new(t.UID)
	}
	return step, nil
}

func shown(c *page.Config) []shownShare {
	shares := make([]shownShare, 0, c.DeviceCount)
	for _, d := range c.Device[:c.DeviceCount] {
		shares = append(shares, shownShare{
			UUID: hex.EncodeToString(d.UUID[:]), Limit: d.Limit, ContextBytes: d.ContextBytes,
			Cores: d.Cores, MaxCores: d.MaxCores, Policy: d.Policy, Weight: d.Weight, Class: d.Class,
		})
	}
	return shares
}
