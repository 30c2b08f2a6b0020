package kube

import (
	"context"
	"errors"
	"os"

	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agent/health"
	"github.com/divvy-gpu/divvy/internal/agent/nodelabels"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
)

// offer is what the node has, in the words of those who are told.
type offer struct {
	daemon.Node
	gpus   []backend.GPU
	places map[string]pool.Place
	// architectures are by UUID: a GPU that is lost would not tell.
	architectures map[string]string
}

func newOffer(ctx context.Context, n daemon.Node) *offer {
	o := &offer{Node: n, gpus: n.Agent.GPUs(), architectures: map[string]string{}}
	for _, gpu := range o.gpus {
		o.architectures[gpu.UUID] = n.Library.Architecture(gpu.Index)
	}
	host, err := hostOf(ctx, n)
	if err != nil {
		n.Log.WarnContext(ctx, "cannot tell where GPUs are in the machine", "error", err)
		return o
	}
	o.places = host
	return o
}

// hostOf reads the machine's /sys, or what a simulated machine has in its place.
func hostOf(ctx context.Context, n daemon.Node) (map[string]pool.Place, error) {
	listed, err := n.Agent.Listing(ctx)
	if err != nil {
		return nil, err
	}
	sys := "/sys"
	if dir := listed.Info.Simgpu; dir != "" {
		sys = simfiles.Sysfs(dir)
	}
	infos, err := hostfile.Linked(n.Library)
	if err != nil {
		return nil, err
	}
	recorded, err := hostfile.Capture(os.DirFS(sys), infos)
	if err != nil {
		return nil, err
	}
	model, err := recorded.Topology()
	if err != nil {
		return nil, err
	}
	return pool.Places(model), nil
}

// badLabels is the reason of the taint on shares while the node's labels say nothing possible.
const badLabels = "node-labels"

// claims is the node's pool in mode claims; there is none yet while the node's labels are not known.
func (o *offer) claims(ctx context.Context, node string, d *defaults) (resourceslice.DriverResources, <-chan struct{}, error) {
	faults, sick := o.Health.Faults()
	now, relabelled, err := d.get()
	changed := either(ctx, sick, relabelled)
	if errors.Is(err, errUnlabelled) {
		return resourceslice.DriverResources{}, changed, nil
	}
	gpus := o.devices(faults)
	if held, released := o.Agent.Absent(); len(held) > 0 {
		gpus, changed = append(gpus, o.absent(held)...), either(ctx, changed, released)
	}
	for i := range gpus {
		gpus[i].DefaultCores = now.Cores
		if err != nil {
			gpus[i].SharesFault = &pool.Fault{Reason: badLabels}
		}
	}
	resources, err := pool.Resources(node, gpus)
	return resources, changed, err
}

// devices are the GPUs of the node's pool.
func (o *offer) devices(faults map[string]health.Fault) []pool.GPU {
	version := o.Library.Version()
	var gpus []pool.GPU
	for _, gpu := range o.gpus {
		g := pool.GPU{
			UUID: gpu.UUID, Index: gpu.Index, Model: gpu.Name, Architecture: o.architectures[gpu.UUID],
			Memory: gpu.Capacity(), DriverVersion: version.Driver, CUDA: version.CUDA,
		}
		if place, ok := o.places[gpu.UUID]; ok {
			g.Place = &place
		}
		if fault, ok := faults[gpu.UUID]; ok {
			g.Fault = &pool.Fault{Reason: fault.Reason, Lost: fault.Lost}
		}
		gpus = append(gpus, g)
	}
	return gpus
}

// absent are GPUs that were lost before the agent started and of which tenants hold so many bytes: as long as they are
// published, and tainted, the pods that use them are evicted. They have what every GPU has for selectors to compare with,
// as one that names a missing attribute is an error to the scheduler.
func (o *offer) absent(held map[string]uint64) []pool.GPU {
	version := o.Library.Version()
	var gpus []pool.GPU
	for uuid, bytes := range held {
		gpus = append(gpus, pool.GPU{
			UUID: uuid, Index: -1, Model: "unknown", DriverVersion: version.Driver, CUDA: version.CUDA,
			Memory: max(bytes, pool.LeastMemory), Fault: &pool.Fault{Reason: "lost", Lost: true},
		})
	}
	return gpus
}

// labels are the GPUs for the node's labels.
func (o *offer) labels() ([]nodelabels.GPU, <-chan struct{}) {
	_, changed := o.Health.Faults()
	var gpus []nodelabels.GPU
	for _, gpu := range o.gpus {
		gpus = append(gpus, nodelabels.GPU{Model: gpu.Name, Memory: gpu.Capacity()})
	}
	return gpus, changed
}

// slots are the GPUs for who binds pods to slots.
func (o *offer) slots() ([]v1alpha1.NodeGPU, <-chan struct{}) {
	faults, changed := o.Health.Faults()
	var gpus []v1alpha1.NodeGPU
	for _, gpu := range o.gpus {
		g := v1alpha1.NodeGPU{
			UUID: gpu.UUID, Index: gpu.Index, Model: gpu.Name, Memory: gpu.Capacity(), ContextBytes: gpu.ContextBytes,
			NUMANode: -1, Fault: faults[gpu.UUID].Text,
		}
		if place, ok := o.places[gpu.UUID]; ok && place.NUMANode >= 0 {
			g.NUMANode = place.NUMANode
		}
		gpus = append(gpus, g)
	}
	return gpus, changed
}
