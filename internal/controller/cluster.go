package controller

import (
	"context"
	"maps"
	"reflect"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	dracel "k8s.io/dynamic-resource-allocation/cel"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// cluster is what nodes have published and what of it is allocated. It follows changes one by one, so that what a look
// costs depends on what has changed and not on how many claims there are. It is not safe for concurrent use, and a search
// takes devices and gives them back.
type cluster struct {
	ctx     context.Context // of the explanation under way: it bounds expressions
	cel     *dracel.Cache
	nodes   map[string]*corev1.Node
	classes map[string]*resourcev1.DeviceClass
	pools   map[string]*nodePool
	claims  map[string][]taking // what each claim has, by its key
	holders map[string]map[string]bool
	// places are the nodes with devices, by name; nil after a change.
	places []*nodeDevices

	selectors map[string]*selector
	numbers   int   // devices that were numbered
	vacant    []int // numbers that are free again

	// said are explanations by what they are about, until something changes.
	said map[string]string
	// theirs are the classes of others that are known not to select a device, until something changes.
	theirs map[string]bool

	steps int // of the searches of the explanation under way
	// evaluated and looked count expressions and devices: what explanations have cost.
	evaluated, looked int
}

// nodePool is what one node has published.
type nodePool struct {
	node    string
	devices []*device
	byName  map[string]*device
}

// nodeDevices is a node with its devices.
type nodeDevices struct {
	name    string
	devices []*device
}

// taking is what a claim has of one device.
type taking struct {
	pool, device string
	consumed     amounts
}

func newEmptyCluster(compiled *dracel.Cache) *cluster {
	return &cluster{
		ctx: context.Background(), cel: compiled, nodes: map[string]*corev1.Node{}, classes: map[string]*resourcev1.DeviceClass{},
		pools: map[string]*nodePool{}, claims: map[string][]taking{}, holders: map[string]map[string]bool{},
		selectors: map[string]*selector{}, said: map[string]string{}, theirs: map[string]bool{},
	}
}

// change notes that explanations may be different now.
func (c *cluster) change() {
	clear(c.said)
	clear(c.theirs)
}

// setNode takes in a node, nil for one that is gone.
func (c *cluster) setNode(name string, node *corev1.Node) {
	if before := c.nodes[name]; before != nil && node != nil && sameNode(before, node) {
		return
	}
	c.change()
	if node == nil {
		delete(c.nodes, name)
		return
	}
	c.nodes[name] = node
}

// sameNode reports whether pods may run on a node as before: nodes change every few seconds in what does not matter here.
func sameNode(before, after *corev1.Node) bool {
	return maps.Equal(before.Labels, after.Labels) && apiequality.Semantic.DeepEqual(before.Spec.Taints, after.Spec.Taints)
}

// setClasses takes in all device classes.
func (c *cluster) setClasses(classes []*resourcev1.DeviceClass) {
	c.change()
	clear(c.classes)
	for _, class := range classes {
		c.classes[class.Name] = class
	}
}

// setPool takes in all slices of a pool.
func (c *cluster) setPool(name string, published []*resourcev1.ResourceSlice) {
	c.change()
	c.places = nil
	before := c.pools[name]
	delete(c.pools, name)
	if current := newest(published); len(current) > 0 {
		p := newPool(name, current)
		for _, d := range p.devices {
			if old := before.known(d.spec); old != nil {
				d.number, old.number = old.number, -1
				continue
			}
			d.number = c.takeNumber()
		}
		c.pools[name] = p
	}
	if before != nil {
		for _, d := range before.devices {
			if d.number >= 0 {
				c.giveNumber(d.number)
			}
		}
	}
	for key := range c.holders[name] {
		for _, t := range c.claims[key] {
			if d := c.find(t); d != nil && t.pool == name {
				d.take(t.consumed)
			}
		}
	}
}

// known is the device of the pool for which every selector says the same, nil if there is none.
func (p *nodePool) known(spec *resourcev1.Device) *device {
	if p == nil {
		return nil
	}
	old := p.byName[spec.Name]
	if old == nil || old.number < 0 || !apiequality.Semantic.DeepEqual(old.spec.AllowMultipleAllocations, spec.AllowMultipleAllocations) ||
		!apiequality.Semantic.DeepEqual(old.spec.Attributes, spec.Attributes) || !apiequality.Semantic.DeepEqual(old.spec.Capacity, spec.Capacity) {
		return nil
	}
	return old
}

// newest returns the driver's slices of the newest generation of a pool, by name. Older ones are about to be deleted.
func newest(published []*resourcev1.ResourceSlice) []*resourcev1.ResourceSlice {
	generation := int64(0)
	for _, s := range published {
		generation = max(generation, s.Spec.Pool.Generation)
	}
	var current []*resourcev1.ResourceSlice
	for _, s := range published {
		if s.Spec.Driver == v1alpha1.Driver && s.Spec.Pool.Generation == generation && placeOf(s) != "" {
			current = append(current, s)
		}
	}
	slices.SortStableFunc(current, func(a, b *resourcev1.ResourceSlice) int { return strings.Compare(a.Name, b.Name) })
	return current
}

// placeOf is the node of a slice, or the pool of GPUs that nodes reach through the network, "" for neither.
func placeOf(s *resourcev1.ResourceSlice) string {
	_, remote := v1alpha1.HostOfPool(s.Spec.Pool.Name)
	switch {
	case s.Spec.NodeName != nil && !remote:
		return *s.Spec.NodeName
	case s.Spec.NodeName == nil && remote:
		return s.Spec.Pool.Name
	}
	return ""
}

func newPool(name string, published []*resourcev1.ResourceSlice) *nodePool {
	type counterID struct{ set, counter string }
	counters := make(map[counterID]*int64)
	for _, s := range published {
		for _, set := range s.Spec.SharedCounters {
			for name, counter := range set.Counters {
				left := counter.Value.Value()
				counters[counterID{set.Name, name}] = &left
			}
		}
	}
	p := &nodePool{node: placeOf(published[0]), byName: make(map[string]*device)}
	for _, s := range published {
		for i := range s.Spec.Devices {
			d := newDevice(name, p.node, &s.Spec.Devices[i])
			if n := len(p.devices); n > 0 && reflect.DeepEqual(p.devices[n-1].rules, d.rules) {
				d.rules = p.devices[n-1].rules // a look at all GPUs then reads less
			}
			for _, use := range d.spec.ConsumesCounters {
				for name, counter := range use.Counters {
					if left := counters[counterID{use.CounterSet, name}]; left != nil {
						d.draws = append(d.draws, draw{left, counter.Value.Value()})
					}
				}
			}
			p.devices = append(p.devices, d)
			p.byName[d.spec.Name] = d
		}
	}
	return p
}

// setClaim takes in a claim, nil for one that is gone.
func (c *cluster) setClaim(key string, claim *resourcev1.ResourceClaim) {
	before, after := c.claims[key], takingsOf(claim)
	if slices.Equal(before, after) {
		return
	}
	c.change()
	for _, t := range before {
		if d := c.find(t); d != nil {
			d.giveBack(t.consumed)
		}
		if delete(c.holders[t.pool], key); len(c.holders[t.pool]) == 0 {
			delete(c.holders, t.pool)
		}
	}
	delete(c.claims, key)
	for _, t := range after {
		if d := c.find(t); d != nil {
			d.take(t.consumed)
		}
		if c.holders[t.pool] == nil {
			c.holders[t.pool] = make(map[string]bool)
		}
		c.holders[t.pool][key] = true
		c.claims[key] = after
	}
}

// find is the device of a taking, nil for a GPU that vanished.
func (c *cluster) find(t taking) *device {
	if p := c.pools[t.pool]; p != nil {
		return p.byName[t.device]
	}
	return nil
}

// takingsOf are what a claim has of this driver's devices.
func takingsOf(claim *resourcev1.ResourceClaim) []taking {
	if claim == nil || claim.Status.Allocation == nil {
		return nil
	}
	var all []taking
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		if r.Driver != v1alpha1.Driver || r.AdminAccess != nil && *r.AdminAccess {
			continue
		}
		t := taking{pool: r.Pool, device: r.Device}
		for i, name := range capacityNames {
			if quantity, ok := r.ConsumedCapacity[name]; ok {
				t.consumed[i] = quantity.Value()
			}
		}
		all = append(all, t)
	}
	return all
}

// reached are the pools of GPUs that nodes reach through the network.
func (c *cluster) reached() (pools []*nodeDevices) {
	for _, name := range sortedNames(c.pools) {
		if _, remote := v1alpha1.HostOfPool(name); remote {
			pools = append(pools, &nodeDevices{name: name, devices: c.pools[name].devices})
		}
	}
	return pools
}

// byName returns the nodes with devices, in order of their names.
func (c *cluster) byName() []*nodeDevices {
	if c.places != nil {
		return c.places
	}
	at := make(map[string]*nodeDevices)
	for _, name := range sortedNames(c.pools) {
		p := c.pools[name]
		if _, remote := v1alpha1.HostOfPool(p.node); remote {
			continue
		}
		if at[p.node] == nil {
			at[p.node] = &nodeDevices{name: p.node}
		}
		at[p.node].devices = append(at[p.node].devices, p.devices...)
	}
	c.places = make([]*nodeDevices, 0, len(at))
	for _, name := range sortedNames(at) {
		c.places = append(c.places, at[name])
	}
	return c.places
}
