package remote

import (
	"fmt"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/driver"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/install"
)

// Contained is a container whose worker is on another host. Its machine needs no driver.
type Contained struct {
	// Dir is the folder of the share.
	Dir  string
	Tree install.Tree
	// Cover is the program that hides driver libraries which an image brings along, where the container runtime finds it.
	Cover string
	// Lacks are the names that the other host's driver has not.
	Lacks []string
	// Name is what the container learns of its share.
	Name string
}

// Client is the folder of which the container sees everything: the libraries, and the socket in it.
func (c Contained) Client() string { return filepath.Join(c.Dir, clientName) }

// Socket is where the libraries look for a worker.
func (c Contained) Socket() string { return filepath.Join(c.Client(), socketName) }

// Check returns why there can be no such share.
func (c Contained) Check() error {
	if n := len(c.Socket()); n > socketBytes {
		return fmt.Errorf("%w: the socket %s has %d bytes: a socket's path has at most %d", backend.ErrTenant, c.Socket(), n, socketBytes)
	}
	return nil
}

// Plan is what is made for the container, which has the edits. It is pure.
//
// The libraries are files in the folders where every loader looks, and find the rest in the folder of the share. There is no
// device node, and nothing of a driver.
func (c Contained) Plan() *backend.Plan {
	step := makeClient{Path: c.Client(), UID: -1, Runpath: edits.ShareDir, Code: c.Tree.Client(driver.Remote)}
	p := &backend.Plan{Dir: c.Dir}
	p.Edits.Hooks = []edits.Hook{{Path: c.Cover, Args: []string{filepath.Base(c.Cover)}}}
	mount := func(source, target string) {
		p.Edits.Mounts = append(p.Edits.Mounts, edits.Mount{Source: source, Target: target, Options: edits.ReadOnly})
	}
	mount(c.Client(), edits.ShareDir)
	for _, library := range driver.Libraries {
		step.Libraries = append(step.Libraries, clientLibrary{Source: c.Tree.Client(string(library)), Name: library, Lacks: c.Lacks})
		for _, folder := range driver.Folders() {
			for _, name := range []string{string(library), library.Bare()} {
				mount(filepath.Join(c.Client(), string(library)), filepath.Join(folder, name))
			}
		}
	}
	p.Steps = []backend.Step{step}
	p.Edits.Env = []edits.Env{
		// A runtime of NVIDIA's that is the node's default would add GPUs of the node otherwise.
		{Name: "NVIDIA_VISIBLE_DEVICES", Value: "void"},
		// Triton asks the linker's cache alone where to link libcuda from.
		{Name: "TRITON_LIBCUDA_PATH", Value: edits.ShareDir},
		{Name: edits.ShareVariable, Value: c.Name},
	}
	return p
}
