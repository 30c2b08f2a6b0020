package hostfile

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/divvy-gpu/divvy/internal/rdma"
	"github.com/divvy-gpu/divvy/internal/topology"
	"github.com/divvy-gpu/divvy/internal/vm/facts"
)

// Root is the recorded machine from its root: /sys, and what was recorded of other folders.
func (h *Host) Root() fs.FS { return root{h.Sysfs, h.Outside} }

// Facts are those of the recorded machine. Of a recording of the first version, which has the topology alone, they say so, and of one
// that nobody with root's rights made, that holders may be unseen.
func (h *Host) Facts() (*facts.Host, error) {
	told, err := facts.Read(h.Root())
	if err != nil {
		return nil, err
	}
	told.TopologyOnly = h.version() == firstLine
	status, err := fs.ReadFile(h.Root(), "proc/self/status")
	if sees, known := facts.Traces(string(status)); err == nil && known && !sees {
		told.Blind = append(told.Blind, "the recording was made without the rights to see what other users' processes have open")
	}
	return told, nil
}

// root has the recorded /sys below sys.
type root struct{ sys, outside *Sysfs }

var (
	_ fs.ReadLinkFS = root{}
	_ fs.ReadDirFS  = root{}
)

// in is the tree that has a path, and its name there.
func (r root) in(name string) (*Sysfs, string) {
	if rest, found := strings.CutPrefix(name, "sys/"); found {
		return r.sys, rest
	}
	if name == "sys" {
		return r.sys, "."
	}
	return r.outside, name
}

func (r root) Open(name string) (fs.File, error) {
	tree, rest := r.in(name)
	return tree.Open(rest)
}

func (r root) ReadLink(name string) (string, error) {
	tree, rest := r.in(name)
	return tree.ReadLink(rest)
}

func (r root) Lstat(name string) (fs.FileInfo, error) {
	tree, rest := r.in(name)
	return tree.Lstat(rest)
}

func (r root) ReadDir(name string) ([]fs.DirEntry, error) {
	tree, rest := r.in(name)
	return tree.ReadDir(rest)
}

// CaptureMachine records a machine from its root: what [Capture] does, what its devices are to virtual machines, and its RDMA adapters. Of who
// holds a device it records number, name and container, and of the kernel's command line the parameters that concern devices.
func CaptureMachine(machine fs.FS, gpus []topology.GPUInfo) (*Host, error) {
	sys, err := fs.Sub(machine, "sys")
	if err != nil {
		return nil, fmt.Errorf("record a machine: %w", err)
	}
	host, err := Capture(sys, gpus)
	if err != nil {
		return nil, err
	}
	r := recorder{machine, host}
	told, err := facts.Read(r)
	if err != nil {
		return nil, fmt.Errorf("record a machine's devices: %w", err)
	}
	rdma.Read(r, told)
	host.Sysfs.drop()
	host.Outside.drop()
	return host, nil
}

// recorder is a file system that records what is read of it. A name that a recording cannot hold is not recorded.
type recorder struct {
	fs.FS
	into *Host
}

var (
	_ fs.ReadLinkFS = recorder{}
	_ fs.ReadDirFS  = recorder{}
	_ fs.ReadFileFS = recorder{}
)

func (r recorder) tree(name string) (*Sysfs, string) {
	return root{r.into.Sysfs, r.into.Outside}.in(name)
}

// ReadFile reads a file, and records of it what is to be kept.
func (r recorder) ReadFile(name string) ([]byte, error) {
	content, err := fs.ReadFile(r.FS, name)
	if err != nil {
		return nil, err
	}
	if kept, wanted := facts.Keep(name, string(content)); wanted {
		tree, rest := r.tree(name)
		if tree.files[rest] == "" {
			delete(tree.files, rest) // only that it exists is recorded so far
			_ = tree.addFile(rest, kept)
		}
	}
	return content, nil
}

// ReadLink reads and records a link.
func (r recorder) ReadLink(name string) (string, error) {
	target, err := fs.ReadLink(r.FS, name)
	if err != nil {
		return "", err
	}
	if facts.KeepLink(name, target) {
		tree, rest := r.tree(name)
		_ = tree.addLink(rest, target)
	}
	return target, nil
}

// ReadDir is not recorded: what is read of a folder's entries is.
func (r recorder) ReadDir(name string) ([]fs.DirEntry, error) { return fs.ReadDir(r.FS, name) }

// Lstat records that something exists, a link with where it leads.
func (r recorder) Lstat(name string) (fs.FileInfo, error) {
	info, err := fs.Lstat(r.FS, name)
	if err != nil {
		return nil, err
	}
	if info.Mode()&fs.ModeSymlink != 0 {
		_, err := r.ReadLink(name)
		return info, err
	}
	tree, rest := r.tree(name)
	_ = tree.addFile(rest, "")
	return info, nil
}

// Openers asks the machine who has device nodes open, and records them as links that name the nodes.
func (r recorder) Openers(nodes []string) ([]facts.Opener, []string, error) {
	w, is := r.FS.(interface {
		Openers(nodes []string) ([]facts.Opener, []string, error)
	})
	if !is {
		return nil, nil, errors.ErrUnsupported
	}
	found, unseen, err := w.Openers(nodes)
	for i, o := range found {
		name, target := fmt.Sprintf("proc/%d/fd/%d", o.PID, i), "/dev/"+o.Node
		if facts.KeepLink(name, target) {
			tree, rest := r.tree(name)
			_ = tree.addLink(rest, target)
		}
	}
	return found, unseen, err
}
