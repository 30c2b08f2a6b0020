// Package remote makes shares whose command is kept away from the driver. A worker beside the command has an ordinary
// share, as backend slice makes it, and calls the driver; the command has a library in place of the driver's that sends
// each call to a worker. It sees no file of the driver's, no device node and no page.
package remote

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/install"
)

// workerProgram calls the driver for commands.
const workerProgram = "divvy-worker"

// errContainer is returned for a tenant in a container, which has no worker.
var errContainer = fmt.Errorf("%w: backend remote makes no shares for containers", backend.ErrTenant)

// Options say where everything is.
type Options struct {
	// Tenants is the directory of tenant directories.
	Tenants string
	Tree    install.Tree
	// Shared is true for the system's agent, whose tenants are other users'.
	Shared bool
	// Finder finds the driver for the agent itself.
	Finder driver.Finder
	// CUDA is the driver's version of CUDA, 12040 for 12.4; nil where any is taken for new enough.
	CUDA func() int
}

// oldestCUDA is the first version whose driver tells the layout of a kernel's parameters (cuFuncGetParamInfo), which the
// worker needs (lib/remote/worker/driver.c).
const oldestCUDA = 12040

// Backend makes tenants as backend slice does, which finds and watches them.
type Backend struct {
	*slice.Backend
	options Options
}

var (
	_ backend.Backend   = (*Backend)(nil)
	_ backend.Extension = (*Backend)(nil)
	_ backend.Chooser   = (*Backend)(nil)
)

// New returns the backend of a machine whose tenants backend slice makes.
func New(made *slice.Backend, o Options) *Backend {
	return &Backend{Backend: made, options: o}
}

// Extends implements [backend.Extension].
func (b *Backend) Extends() backend.Backend { return b.Backend }

// Unsuited implements [backend.Chooser].
func (b *Backend) Unsuited(backend.GPU) string {
	if b.options.CUDA == nil || b.options.CUDA() >= oldestCUDA {
		return ""
	}
	return fmt.Sprintf("its driver is of CUDA %s, and programs that are kept away from the driver need one of %s or later", cuda(b.options.CUDA()), cuda(oldestCUDA))
}

// cuda is a version of CUDA as people write it.
func cuda(version int) string { return fmt.Sprintf("%d.%d", version/1000, version%1000/10) }

// Plan implements [backend.Backend].
func (b *Backend) Plan(t backend.Tenant) (*backend.Plan, error) {
	if t.Layer == backend.LayerContainer {
		return nil, errContainer
	}
	p, d, err := b.PlanOver(t)
	if err == nil && t.Worker != 0 {
		// Root starts it, and goes to no place that the tenant's user names.
		apart := t
		apart.LibraryPath = nil
		p, _, err = b.PlanOver(apart)
	}
	if err != nil {
		return nil, err
	}
	m := machine{Tenants: b.options.Tenants, Tree: b.options.Tree, Shared: b.options.Shared, Hidden: b.options.Finder.Nodes(), Lead: b.Lead}
	return m.plan(p, t, d)
}

// Health implements [backend.Backend]: it also checks that client and worker are there.
func (b *Backend) Health(ctx context.Context) error {
	paths := []string{b.options.Tree.Program(workerProgram), b.options.Tree.Client(driver.Remote)}
	for _, library := range driver.Libraries {
		paths = append(paths, b.options.Tree.Client(string(library)))
	}
	for _, path := range paths {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: %w: build or install it, or set %s", slice.ErrInstallation, err, install.Variable)
		}
	}
	return b.Backend.Health(ctx)
}

// machine is all that a plan depends on besides the tenant and its share.
type machine struct {
	Tenants string
	Tree    install.Tree
	Shared  bool
	// Hidden is what the command must not see besides the driver's libraries.
	Hidden []driver.Node
	// Lead makes programs find the driver's libraries in a folder by name.
	Lead func(p *backend.Plan, e *edits.Edits, folder string)
}

// Names in a tenant's directory.
const (
	// clientName is the folder with the client's libraries and the worker's socket.
	clientName = "client"
	socketName = "worker.sock"
	// apartName is what a command sees in place of the directory of tenants.
	apartName = "apart"
	// nothingName is an empty folder, noneName an empty file.
	nothingName = "nothing"
	noneName    = "none"
	// noMPSName is where no daemon of MPS is.
	noMPSName = "no-mps"
)

// socketBytes are those of a socket's path at most (unix(7)).
const socketBytes = 107

// plan makes of the plan of a share, whose driver is d, one whose edits are the command's and whose worker has those of
// the share. It is pure.
func (m machine) plan(p *backend.Plan, t backend.Tenant, d *driver.Driver) (*backend.Plan, error) {
	client := filepath.Join(p.Dir, clientName)
	socket := filepath.Join(client, socketName)
	if len(socket) > socketBytes {
		return nil, fmt.Errorf("%w: the worker's socket %s has %d bytes: a socket's path has at most %d", backend.ErrTenant, socket, len(socket), socketBytes)
	}
	// A daemon of MPS is somebody else's: its clients have no limits of a share. The driver looks for one in this folder, which
	// nobody makes.
	own := p.Edits
	own.Env = append(slices.Clip(own.Env), edits.Env{Name: "CUDA_MPS_PIPE_DIRECTORY", Value: filepath.Join(p.Dir, noMPSName)})
	p.Worker = &edits.Worker{Program: m.Tree.Program(workerProgram), Socket: socket, Edits: own}
	p.Edits = edits.Edits{}
	step := makeClient{Path: client, UID: -1, Code: m.Tree.Client(driver.Remote)}
	if m.Shared && t.Worker == 0 {
		step.UID = t.UID
	}
	for _, library := range driver.Libraries {
		step.Libraries = append(step.Libraries, clientLibrary{Source: m.Tree.Client(string(library)), Name: library, Driver: d.Chosen[library]})
	}
	p.Steps = append(p.Steps, step)
	if t.Worker != 0 {
		p.Steps = append(p.Steps, makeEmpty{Path: filepath.Join(client, needsName), Mode: 0o644, UID: t.Worker})
	}
	m.apart(p, t.Layer, d, clientName)
	return p, nil
}

// apart has the plan's command see of the driver d, and of the directory of tenants, the client's folder alone and the other
// folders of its share that are named.
func (m machine) apart(p *backend.Plan, layer backend.Layer, d *driver.Driver, shown ...string) {
	client := filepath.Join(p.Dir, clientName)
	if layer == backend.LayerEnv {
		p.Edits.Env = append(p.Edits.Env, edits.Env{Name: "LD_LIBRARY_PATH", Value: client, Prepend: true})
		return
	}
	p.Edits.Contain = true
	nothing, none := filepath.Join(p.Dir, nothingName), filepath.Join(p.Dir, noneName)
	p.Steps = append(p.Steps, makeFolder{Path: nothing})
	var places []edits.Bind
	for _, name := range shown {
		place := filepath.Join(p.Dir, apartName, filepath.Base(p.Dir), name)
		p.Steps = append(p.Steps, makeFolder{Path: place})
		places = append(places, edits.Bind{Source: filepath.Join(p.Dir, name), Target: place, ReadOnly: true})
	}
	p.Steps = append(p.Steps, makeEmpty{Path: none, Mode: 0o444})
	m.cover(p, d, client)
	m.Lead(p, &p.Edits, client)
	if slices.ContainsFunc(driver.Libraries, func(l driver.Library) bool { return !d.Cached[l] }) {
		// No file where programs look is covered, and some, such as tinygrad, look through folders and ask no linker.
		p.Edits.Env = append(p.Edits.Env, edits.Env{Name: "LD_LIBRARY_PATH", Value: client, Prepend: true})
	}
	for _, hidden := range m.Hidden {
		source := none
		switch {
		case hidden.Folder && hasDriver(d, hidden):
			source = client
		case hidden.Folder:
			source = nothing
		}
		p.Edits.Binds = append(p.Edits.Binds, edits.Bind{Source: source, Target: hidden.Path, ReadOnly: true})
	}
	// The first of the last two hides the sources of all before it. The other keeps the run directory, which may be the
	// command's user's own, in its place: workers and later shares find their files by its path.
	rundir := filepath.Dir(m.Tenants)
	p.Edits.Binds = append(append(p.Edits.Binds, places...),
		edits.Bind{Source: filepath.Join(p.Dir, apartName), Target: m.Tenants, Tree: true},
		edits.Bind{Source: rundir, Target: rundir, Tree: true})
}

// cover puts the client's libraries over all files of the driver's that are not hidden with their folder.
func (m machine) cover(p *backend.Plan, d *driver.Driver, client string) {
	for _, library := range driver.Libraries {
		for _, file := range d.Files[library] {
			if !m.hides(file) {
				p.Edits.Binds = append(p.Edits.Binds, edits.Bind{Source: filepath.Join(client, string(library)), Target: file, ReadOnly: true})
			}
		}
	}
}

// hasDriver reports whether files of the driver's lie in a folder.
func hasDriver(d *driver.Driver, folder driver.Node) bool {
	for _, library := range driver.Libraries {
		if slices.ContainsFunc(d.Files[library], func(file string) bool { return within(file, folder) }) {
			return true
		}
	}
	return false
}

// hides reports whether a file is hidden with its folder.
func (m machine) hides(file string) bool {
	for _, hidden := range m.Hidden {
		if within(file, hidden) {
			return true
		}
	}
	return false
}

// within reports whether a path lies in a folder or is it.
func within(path string, folder driver.Node) bool {
	inside, err := filepath.Rel(folder.Path, path)
	return folder.Folder && err == nil && filepath.IsLocal(inside)
}
