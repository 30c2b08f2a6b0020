package remote

import (
	"fmt"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/backend/slice"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/install"
)

// Away is a command whose worker is on another host. Its machine needs no driver and no agent: the user's own process makes
// what the command sees.
type Away struct {
	// Dir is the folder of the share, in the directory of all such folders of the user.
	Dir  string
	Tree install.Tree
	// Layer is what stands between the command and a driver that this machine may have, which Finder finds.
	Layer  backend.Layer
	Finder driver.Finder
	// Lacks are the names that the other host's driver has not.
	Lacks []string
	// Shown are further folders of the share that the command sees where they are.
	Shown []string
}

// Socket is where the command's library looks for a worker.
func (a Away) Socket() string { return filepath.Join(a.Dir, clientName, socketName) }

// Check returns why there can be no such share: the path of its socket is too long, or this is inside another share.
func (a Away) Check() error {
	if n := len(a.Socket()); n > socketBytes {
		return fmt.Errorf("%w: the socket %s has %d bytes: a socket's path has at most %d", backend.ErrTenant, a.Socket(), n, socketBytes)
	}
	_, err := a.Finder.Present()
	return err
}

// Plan is what is made for the command, which has the edits.
func (a Away) Plan() (*backend.Plan, error) {
	present, err := a.Finder.Present()
	if err != nil {
		return nil, err
	}
	m := machine{Tenants: filepath.Dir(a.Dir), Tree: a.Tree, Hidden: a.Finder.Nodes(), Lead: slice.Lead}
	return m.planAway(a, present), nil
}

// planAway is pure. The driver d may have no files.
func (m machine) planAway(a Away, d *driver.Driver) *backend.Plan {
	p := &backend.Plan{Dir: a.Dir}
	step := makeClient{Path: filepath.Join(a.Dir, clientName), UID: -1, Code: m.Tree.Client(driver.Remote)}
	for _, library := range driver.Libraries {
		step.Libraries = append(step.Libraries, clientLibrary{Source: m.Tree.Client(string(library)), Name: library, Lacks: a.Lacks})
	}
	p.Steps = append(p.Steps, step)
	m.apart(p, a.Layer, d, append([]string{clientName}, a.Shown...)...)
	return p
}
