package ledger

import (
	"cmp"
	"slices"
	"strings"

	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	dra "github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
)

// published is a pool: what one node has published. Of a pool that is not complete there is only the node.
type published struct {
	name, node string
	// remote tells that nodes reach its GPUs through the network. The node is then the pool itself: no pod is there.
	remote  bool
	slices  []*resourcev1.ResourceSlice
	devices []*device
	byName  map[string]*device
	gpus    []*gpu
	cards   []*device
}

// device is one published device: a GPU in one form, or a MIG instance, or a place for one.
type device struct {
	pool *published
	spec *resourcev1.Device
	gpu  *gpu // nil for a device that stands for no GPU that could be named
	// shared tells that several claims can have the device.
	shared  bool
	profile string // of a MIG instance, which begins at memory slice start
	start   int
	memory  uint64 // in bytes
	// swap is what claims can have of the host for swap shares, and mostSwap what one of them can, in bytes.
	swap, mostSwap uint64
	cores          int // what a claim takes that asks for none
	slots          int
	// fault is the first taint that keeps pods away.
	fault   string
	variety *variety
	// number is that by which selectors remember what they say of the device.
	number int
}

// SetPool takes in all slices of a pool. A pool whose newest generation is not there in full has no devices until it is.
func (l *Ledger) SetPool(name string, all []*resourcev1.ResourceSlice) {
	before := l.pools[name]
	current, complete := newest(all)
	if before == nil && len(current) == 0 || before != nil && slices.Equal(before.slices, current) {
		return
	}
	var after *published
	if len(current) > 0 {
		after = &published{name: name, node: place(current[0]), slices: current, byName: map[string]*device{}}
		_, after.remote = v1alpha1.HostOfPool(after.node)
		if complete {
			after.read(&l.sorts)
		}
	}
	l.number(before, after)
	if before != nil {
		n := l.nodes[before.node]
		n.pools = slices.DeleteFunc(n.pools, func(p *published) bool { return p == before })
		delete(l.pools, name)
		n.there = n.there && !before.remote
		l.change(n, gpusAreStale)
	}
	if after != nil {
		n := l.node(after.node)
		n.there = n.there || after.remote
		at, _ := slices.BinarySearchFunc(n.pools, name, func(p *published, name string) int { return strings.Compare(p.name, name) })
		n.pools = slices.Insert(n.pools, at, after)
		l.pools[name] = after
		l.change(n, gpusAreStale)
	}
	for key := range l.holders[name] {
		l.locate(l.claims[key])
	}
}

// place is where the GPUs of a slice are: its node, or for GPUs that nodes reach through the network the pool, whose name no node can
// have. It is empty for a slice that is of neither.
func place(s *resourcev1.ResourceSlice) string {
	_, remote := v1alpha1.HostOfPool(s.Spec.Pool.Name)
	switch {
	case s.Spec.Driver != v1alpha1.Driver:
	case s.Spec.NodeName != nil && !remote:
		return *s.Spec.NodeName
	case s.Spec.NodeName == nil && remote:
		return s.Spec.Pool.Name
	}
	return ""
}

// newest returns the driver's slices of the newest generation of a pool, by name, and whether they are the whole pool. All
// of them are of one place.
func newest(all []*resourcev1.ResourceSlice) (current []*resourcev1.ResourceSlice, complete bool) {
	generation := int64(0)
	for _, s := range all {
		if place(s) != "" {
			generation = max(generation, s.Spec.Pool.Generation)
		}
	}
	names := map[string]bool{}
	complete = true
	for _, s := range all {
		if place(s) == "" || s.Spec.Pool.Generation != generation {
			continue
		}
		current = append(current, s)
		for i := range s.Spec.Devices {
			complete = complete && !names[s.Spec.Devices[i].Name]
			names[s.Spec.Devices[i].Name] = true
		}
	}
	slices.SortStableFunc(current, func(a, b *resourcev1.ResourceSlice) int {
		return cmp.Or(strings.Compare(a.Name, b.Name), strings.Compare(place(a), place(b)))
	})
	for _, s := range current {
		complete = complete && s.Spec.Pool.ResourceSliceCount == int64(len(current)) && place(s) == place(current[0])
	}
	return current, complete
}

// read makes devices and GPUs of the slices.
func (p *published) read(s *sorts) {
	gpus, has := map[string]*gpu{}, counters{}
	for _, s := range p.slices {
		has.add(s.Spec.SharedCounters)
		for i := range s.Spec.Devices {
			d := newDevice(p, &s.Spec.Devices[i])
			p.devices = append(p.devices, d)
			p.byName[d.spec.Name] = d
			uuid, ok := d.uuid()
			if !ok {
				if d.isCard() {
					p.cards = append(p.cards, d)
				}
				continue
			}
			if gpus[uuid] == nil {
				gpus[uuid] = &gpu{uuid: uuid}
				p.gpus = append(p.gpus, gpus[uuid])
			}
			d.gpu = gpus[uuid]
			d.gpu.devices = append(d.gpu.devices, d)
		}
	}
	for _, g := range p.gpus {
		g.read(has, s)
	}
}

func newDevice(p *published, spec *resourcev1.Device) *device {
	d := &device{pool: p, spec: spec, number: -1, shared: spec.AllowMultipleAllocations != nil && *spec.AllowMultipleAllocations}
	memory := spec.Capacity[v1alpha1.CapacityMemory]
	d.memory = uint64(bounded(memory.Value.Value()))
	if cores, ok := spec.Capacity[v1alpha1.CapacityCores]; ok && d.shared {
		d.cores = int(min(unasked(cores), v1alpha1.MaxCores))
	}
	d.swap, d.mostSwap = swapOf(spec)
	if slots, ok := spec.Capacity[v1alpha1.CapacitySlots]; ok {
		d.slots = int(min(bounded(slots.Value.Value()), mostSlots))
	}
	if !d.shared {
		d.profile, d.start = d.instance()
	}
	for _, taint := range spec.Taints {
		if d.fault == "" && (taint.Effect == resourcev1.DeviceTaintEffectNoSchedule || taint.Effect == resourcev1.DeviceTaintEffectNoExecute) {
			d.fault = "it has the taint " + taint.Key
			if taint.Value != "" {
				d.fault += "=" + taint.Value
			}
		}
	}
	return d
}

// instance is the profile and the first memory slice of the MIG instance that the device is, "" for another device.
func (d *device) instance() (profile string, start int) {
	profile, start, ok := dra.ParseInstance(d.spec.Name)
	if named, _ := d.text(v1alpha1.AttributeProfile); ok && named != "" {
		profile = named
	}
	return profile, start
}

// swapOf is how much memory of the host a device has for swap shares, and how much one of them can have.
func swapOf(spec *resourcev1.Device) (all, most uint64) {
	swap, ok := spec.Capacity[v1alpha1.CapacitySwapMemory]
	if !ok {
		return 0, 0
	}
	all = uint64(bounded(swap.Value.Value()))
	if p := swap.RequestPolicy; p != nil && p.ValidRange != nil && p.ValidRange.Max != nil {
		return all, uint64(bounded(p.ValidRange.Max.Value()))
	}
	return all, all
}

// mostSlots bounds the slots of a GPU, of which every claim that takes several is counted as so many tenants.
const mostSlots = 1024

// unasked is what a claim takes of a capacity that asks for none of it.
func unasked(c resourcev1.DeviceCapacity) int64 {
	if c.RequestPolicy != nil && c.RequestPolicy.Default != nil {
		return bounded(c.RequestPolicy.Default.Value())
	}
	return bounded(c.Value.Value())
}

// rounded is what a claim takes of a device's capacity that asks for an amount of it.
func (d *device) rounded(name resourcev1.QualifiedName, amount uint64) uint64 {
	policy := d.spec.Capacity[name].RequestPolicy
	if policy == nil {
		return amount
	}
	for i := range policy.ValidValues {
		if valid := uint64(bounded(policy.ValidValues[i].Value())); valid >= amount {
			return valid
		}
	}
	within := policy.ValidRange
	if within == nil || within.Min == nil {
		return amount
	}
	least := uint64(bounded(within.Min.Value()))
	amount = max(amount, least)
	if within.Step != nil && within.Step.Value() > 0 {
		step := uint64(bounded(within.Step.Value()))
		amount = least + (amount-least+step-1)/step*step
	}
	return min(amount, mostAmount)
}

// uuid is that of the device's GPU; ok is false where the device tells none.
func (d *device) uuid() (uuid string, ok bool) {
	for _, name := range []resourcev1.QualifiedName{v1alpha1.AttributeParent, v1alpha1.AttributeUUID} {
		if text, ok := d.text(name); ok && isUUID(text) {
			return text, true
		}
	}
	uuid, _, ok = dra.Parse(d.spec.Name)
	return uuid, ok && isUUID(uuid)
}

// isUUID reports whether a text can name a GPU in a set of names, where an index could stand as well.
func isUUID(text string) bool {
	return strings.HasPrefix(text, "GPU-") && len(text) <= resourcev1.DeviceAttributeMaxValueLength && !strings.Contains(text, "|")
}

// attribute returns an attribute of Divvy's, written with its domain or without.
func (d *device) attribute(name resourcev1.QualifiedName) (resourcev1.DeviceAttribute, bool) {
	a, ok := d.spec.Attributes[name]
	if !ok {
		a, ok = d.spec.Attributes[v1alpha1.Driver+"/"+name]
	}
	return a, ok
}

func (d *device) text(name resourcev1.QualifiedName) (string, bool) {
	a, ok := d.attribute(name)
	if !ok || a.StringValue == nil {
		return "", false
	}
	return *a.StringValue, true
}

// same reports whether every expression says of two devices the same.
func (d *device) same(e *device) bool {
	return apiequality.Semantic.DeepEqual(d.spec.AllowMultipleAllocations, e.spec.AllowMultipleAllocations) &&
		apiequality.Semantic.DeepEqual(d.spec.Attributes, e.spec.Attributes) && apiequality.Semantic.DeepEqual(d.spec.Capacity, e.spec.Capacity)
}

// Device returns the device that stands for a share on a node, and its pool.
func (l *Ledger) Device(nodeName string, share *alloc.Share) (pool string, spec *resourcev1.Device, ok bool) {
	d := l.device(nodeName, share)
	if d == nil {
		return "", nil, false
	}
	return d.pool.name, d.spec, true
}

// device is the one that a share on a node takes, nil for none.
func (l *Ledger) device(nodeName string, share *alloc.Share) *device {
	n := l.nodes[nodeName]
	if n == nil {
		return nil
	}
	for _, p := range n.pools {
		for _, g := range p.gpus {
			if g.uuid == share.UUID {
				return g.device(share)
			}
		}
		if d := p.byName[share.NIC]; share.UUID == "" && d != nil && d.isCard() {
			return d
		}
	}
	return nil
}

// Location returns the node and the GPU of a device. MIG instances have profile and start.
func (l *Ledger) Location(pool, name string) (nodeName string, share alloc.Share, ok bool) {
	p := l.pools[pool]
	if p == nil {
		return "", alloc.Share{}, false
	}
	d := p.byName[name]
	if d != nil && d.isCard() {
		return p.node, alloc.Share{NIC: name}, true
	}
	if d == nil || d.gpu == nil {
		return "", alloc.Share{}, false
	}
	return p.node, d.share(), true
}

// share is the device as a share without amounts.
func (d *device) share() alloc.Share {
	return alloc.Share{UUID: d.gpu.uuid, Profile: d.profile, Start: d.start}
}
