package slice

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/edits"
	"github.com/divvy-gpu/divvy/internal/nvml"
)

// ContextOn measures what the first context of a process takes on a MIG instance, once for each profile of a model of GPU
// and version of the driver, which takes about a second. It is 0 where that cannot be measured.
func (b *Backend) ContextOn(ctx context.Context, gpu backend.GPU, i backend.Instance) uint64 {
	n, err := b.contexts.of(ctx, instanceModel(gpu, i))
	if err != nil {
		return 0
	}
	return n
}

// KnownContextOn is what was measured for the profile of an instance, 0 if nothing was.
func (b *Backend) KnownContextOn(gpu backend.GPU, i backend.Instance) uint64 {
	n, _ := b.contexts.recall(instanceModel(gpu, i))
	return n
}

// NoteReserved remembers what the driver keeps of an instance's memory, for the profile on GPUs of this model and version of
// the driver. It tells that of instances that are there alone.
func (b *Backend) NoteReserved(ctx context.Context, gpu backend.GPU, i backend.Instance) {
	if i.Reserved > 0 && i.Reserved != b.KnownReservedOn(gpu, i) {
		b.contexts.note(ctx, b.reservedKey(gpu, i), i.Reserved, true)
	}
}

// KnownReservedOn is what the driver was seen to keep of an instance of a profile, 0 if none was seen.
func (b *Backend) KnownReservedOn(gpu backend.GPU, i backend.Instance) uint64 {
	_, _ = b.contexts.recall(instanceModel(gpu, i)) // which reads the file
	b.contexts.mu.Lock()
	defer b.contexts.mu.Unlock()
	return b.contexts.known[b.reservedKey(gpu, i)]
}

func (b *Backend) reservedKey(gpu backend.GPU, i backend.Instance) string {
	return "reserved on " + contextKey(instanceModel(gpu, i), b.options.Inventory)
}

// instanceModel is an instance as a GPU of a model of its own.
func instanceModel(gpu backend.GPU, i backend.Instance) nvml.GPU {
	return nvml.GPU{Name: gpu.Name + " MIG " + i.Profile, UUID: i.UUID}
}

// capabilities are the device nodes that a tenant needs to use its MIG instances.
func (b *Backend) capabilities(t backend.Tenant) ([]edits.Device, error) {
	var all []edits.Device
	for _, s := range t.Shares {
		i := s.GPU.Instance
		if i.UUID == "" {
			continue
		}
		nodes, err := b.options.Finder.Capabilities(s.GPU.PCI, i.GPUInstance, i.ComputeInstance)
		if err != nil {
			return nil, fmt.Errorf("give MIG instance %s: %w", i.UUID, err)
		}
		all = append(all, nodes...)
	}
	return all, nil
}

// capsName is the directory that a tenant sees in place of that of all capabilities.
const capsName = "caps"

// confine lets the command of a tenant with MIG instances see the nodes of its own instances alone, also of instances
// that are made later. It does nothing where the command gets no mount namespace. It is pure.
//
// The nodes are bound to other places first, then an empty directory hides all of them, and then they are bound back: a
// bind does not take along what is mounted below its source.
func confine(p *backend.Plan, t backend.Tenant, nodes []edits.Device) *backend.Plan {
	if len(nodes) == 0 || t.Layer != backend.LayerNamespace {
		return p
	}
	empty := filepath.Join(p.Dir, capsName)
	p.Steps = append(p.Steps, makeDir{Path: empty})
	var aside, back []edits.Bind
	for _, node := range nodes {
		name := filepath.Base(node.Source)
		kept := filepath.Join(p.Dir, name)
		p.Steps = append(p.Steps, makeFile{Path: kept}, makeFile{Path: filepath.Join(empty, name)})
		aside = append(aside, edits.Bind{Source: node.Source, Target: kept})
		back = append(back, edits.Bind{Source: kept, Target: node.Source})
	}
	p.Edits.Binds = append(p.Edits.Binds, aside...)
	p.Edits.Binds = append(p.Edits.Binds, edits.Bind{Source: empty, Target: filepath.Dir(nodes[0].Source), ReadOnly: true})
	p.Edits.Binds = append(p.Edits.Binds, back...)
	return p
}

// makeDir makes a directory in that of the tenant.
type makeDir struct {
	Path string `json:"makeDir"`
}

// Apply implements [backend.Step].
func (s makeDir) Apply() error {
	err := os.Mkdir(s.Path, 0o755)
	if err == nil {
		err = os.Chmod(s.Path, 0o755) // whatever the umask
	}
	if err != nil && !errors.Is(err, os.ErrExist) {
		return fmt.Errorf("make directory: %w", err)
	}
	return nil
}

// Undo implements [backend.Step].
func (s makeDir) Undo() error {
	if err := os.RemoveAll(s.Path); err != nil {
		return fmt.Errorf("remove directory: %w", err)
	}
	return nil
}
