package kube

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"time"

	"k8s.io/dynamic-resource-allocation/resourceslice"

	"github.com/divvy-gpu/divvy/internal/agent"
	"github.com/divvy-gpu/divvy/internal/agent/daemon"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/agent/health"
	"github.com/divvy-gpu/divvy/internal/agent/nodelabels"
	"github.com/divvy-gpu/divvy/internal/backend"
	"github.com/divvy-gpu/divvy/internal/hostfile"
	"github.com/divvy-gpu/divvy/internal/simgpu/simfiles"
	"github.com/divvy-gpu/divvy/internal/topology"
	"github.com/divvy-gpu/divvy/internal/vm/vfio"
)

// publisher describes the node's GPUs to the kubelet, the scheduler and the node's labels.
type publisher struct {
	daemon.Node
	gpus      []backend.GPU
	locations map[string]pool.Location
	// cards are the RDMA cards in mode claims, nil where they are left to others, and root and nodes where they are.
	cards *cards
	root  fs.FS
	nodes []topology.Node
	// classes are PCI classes by UUID, and product is the machine's name; both are empty where they are unknown.
	classes map[string]uint32
	product string
	// kinds are kept by UUID, because the driver does not tell that of a GPU that is lost.
	kinds map[string]kind
	// forms says in which form each GPU is published, in mode claims; divider how those in MIG mode are divided, and order
	// in which order the scheduler finds their places.
	forms   *forms
	divider dividers
	order   order
	// machines offers devices to virtual machines, nil where it offers none.
	machines *machines
	// pooled publishes the GPUs that other nodes reach, in mode claims.
	pooled *pooled
	// nvidiaNames has devices bear the attributes of NVIDIA's DRA driver as well.
	nvidiaNames bool
}

// kind is what sort of GPU one is.
type kind struct{ architecture, brand, capability string }

func newPublisher(ctx context.Context, n daemon.Node, nvidiaNames bool) *publisher {
	p := &publisher{Node: n, gpus: n.Agent.GPUs(), kinds: map[string]kind{}, nvidiaNames: nvidiaNames, divider: n.Agent, order: order{now: time.Now}}
	for _, gpu := range p.gpus {
		p.kinds[gpu.UUID] = kind{n.Library.Architecture(gpu.Index), n.Library.Brand(gpu.Index), n.Library.Capability(gpu.Index)}
	}
	if err := p.locate(ctx); err != nil {
		n.Log.WarnContext(ctx, "cannot read where the GPUs are in the machine", "error", err)
	}
	return p
}

// locate reads the machine's /sys, or what a simulated machine has in its place.
func (p *publisher) locate(ctx context.Context) error {
	listed, err := p.Agent.Listing(ctx)
	if err != nil {
		return err
	}
	p.root = vfio.Files("/")
	if dir := listed.Info.Simgpu; dir != "" {
		p.root = os.DirFS(filepath.Dir(simfiles.Sysfs(dir)))
	}
	sys, err := fs.Sub(p.root, "sys")
	if err != nil {
		return err
	}
	p.product = productOf(sys)
	infos, err := hostfile.Linked(p.Library)
	if err != nil {
		return err
	}
	recorded, err := hostfile.Capture(sys, infos)
	if err != nil {
		return err
	}
	model, err := recorded.Topology()
	if err != nil {
		return err
	}
	p.nodes = model.Nodes
	p.locations, p.classes = pool.Locations(model), map[string]uint32{}
	for i := range model.GPUs {
		p.classes[model.GPUs[i].UUID] = model.GPUs[i].Device.Class
	}
	return nil
}

// badLabels is the reason of the taint while the node's labels are invalid.
const badLabels = "node-labels"

// claims returns the node's pool for mode claims, which is empty until the node's labels are known, and what is
// published.
func (p *publisher) claims(ctx context.Context, node string, d *defaults) (resourceslice.DriverResources, <-chan struct{}, error) {
	faults, sick := p.Health.Faults()
	now, relabelled, err := d.get()
	changed := either(ctx, sick, relabelled)
	shapes, reshaped := p.forms.get()
	changed = either(ctx, changed, reshaped)
	if errors.Is(err, errUnlabelled) || shapes == nil {
		return resourceslice.DriverResources{}, changed, nil
	}
	unswappable, learned := untilOther(ctx, p.Agent.Unswappable)
	changed = either(ctx, changed, learned)
	gpus := forgiven(shape(p.devices(faults, unswappable), shapes))
	if divided := p.divide(ctx, gpus, shapes); divided != nil {
		changed = either(ctx, changed, divided)
	}
	if held, released := p.Agent.Absent(); len(held) > 0 {
		gpus, changed = append(gpus, p.absent(held)...), either(ctx, changed, released)
	}
	wholes, rearranged := untilOther(ctx, p.Agent.Wholes)
	for i := range gpus {
		gpus[i].DefaultCores = now.Cores
		if err != nil && gpus[i].Fault == nil {
			gpus[i].Fault = &pool.Fault{Reason: badLabels}
		}
		if bytes, ok := wholes[gpus[i].UUID]; ok {
			gpus[i].Held = &bytes
		}
	}
	changed = either(ctx, changed, rearranged)
	if p.pooled != nil {
		own, readdressed, faulty := p.pooled.publish(gpus)
		if faulty != nil {
			return resourceslice.DriverResources{}, changed, faulty
		}
		gpus, changed = own, either(ctx, changed, readdressed)
	}
	pool.Divide(gpus, p.SwapMemory, p.Rules.TurnMemory())
	functions, reoffered := p.offered(shapes)
	more, faulty := pool.Functions(functions)
	if faulty != nil {
		return resourceslice.DriverResources{}, changed, faulty
	}
	if reoffered != nil {
		changed = either(ctx, changed, reoffered)
	}
	resources, err := pool.Resources(node, gpus, more...)
	if err == nil && p.cards != nil {
		var others <-chan struct{}
		others, err = p.cards.add(resources, node)
		changed = either(ctx, changed, others)
	}
	return resources, changed, err
}

// forgiven leaves out the faults of GPUs in MIG mode that have instances, for how those are divided is known.
func forgiven(gpus []pool.GPU) []pool.GPU {
	for i := range gpus {
		if f := gpus[i].Fault; gpus[i].Form == pool.MIG && f != nil && f.Reason == health.MIGMode {
			gpus[i].Fault = nil
		}
	}
	return gpus
}

// untilOther returns what a function returns, and a channel that is closed when it returns something else and when ctx
// is done. The function's own channel is closed when that may be so.
func untilOther[T any](ctx context.Context, ask func() (T, <-chan struct{})) (T, <-chan struct{}) {
	before, next := ask()
	changed := make(chan struct{})
	go func() {
		defer close(changed)
		for now := before; reflect.DeepEqual(now, before); {
			select {
			case <-next:
			case <-ctx.Done():
				return
			}
			now, next = ask()
		}
	}()
	return before, changed
}

// devices returns the GPUs of the node's pool, of which some can have no swap shares.
func (p *publisher) devices(faults map[string]health.Fault, unswappable map[string]string) []pool.GPU {
	version := p.Library.Version()
	var gpus []pool.GPU
	for _, gpu := range p.gpus {
		kind := p.kinds[gpu.UUID]
		g := pool.GPU{
			UUID: gpu.UUID, Index: gpu.Index, Model: gpu.Name, Architecture: kind.architecture, Brand: kind.brand, Capability: kind.capability,
			Memory: gpu.Capacity(), DriverVersion: version.Driver, CUDA: version.CUDA, NVIDIANames: p.nvidiaNames,
			Unswappable: unswappable[gpu.UUID] != "", Suspends: p.Agent.Unsuspendable() == "",
		}
		if location, ok := p.locations[gpu.UUID]; ok {
			g.Location = &location
		}
		if fault, ok := faults[gpu.UUID]; ok {
			g.Fault = &pool.Fault{Reason: fault.Reason, Lost: fault.Lost}
		}
		gpus = append(gpus, g)
	}
	return gpus
}

// absent describes GPUs that were lost before the agent started, by the bytes that tenants hold of them. They are
// published with a taint, so that the pods that use them are evicted, and with the attributes that every GPU has, because
// a selector that names a missing attribute is an error to the scheduler.
func (p *publisher) absent(held map[string]uint64) []pool.GPU {
	var tenancies []agent.Tenancy
	if p.Agent != nil {
		tenancies = p.Agent.Tenancies()
	}
	had := formsOf(tenancies)
	nothing := backend.Division{}
	version := p.Library.Version()
	var gpus []pool.GPU
	for uuid, bytes := range held {
		gpus = append(gpus, pool.GPU{
			UUID: uuid, Index: -1, Form: had[uuid], Model: "unknown", DriverVersion: version.Driver, CUDA: version.CUDA,
			Memory: max(bytes, pool.LeastMemory), NVIDIANames: p.nvidiaNames, Fault: &pool.Fault{Reason: "lost", Lost: true},
		})
		if had[uuid] == pool.MIG {
			uses := usesOf(p.divider.InstanceUses(), uuid)
			gpus[len(gpus)-1].Division = divided(&nothing, uuid, published{devices: listOf(offered(&nothing, uuid, uses))}, uses)
		}
	}
	return gpus
}

// labels returns what the node's labels say about the GPUs.
func (p *publisher) labels() ([]nodelabels.GPU, <-chan struct{}) {
	_, changed := p.Health.Faults()
	var gpus []nodelabels.GPU
	for _, gpu := range p.gpus {
		gpus = append(gpus, nodelabels.GPU{Model: gpu.Name, Memory: gpu.Capacity()})
	}
	return gpus, changed
}
