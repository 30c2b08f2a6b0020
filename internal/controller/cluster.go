package controller

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/dynamic-resource-allocation/resourceclaim"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// cluster is what nodes have published and what of it is allocated, at one moment. It is not safe for concurrent use,
// because a search takes devices and gives them back.
type cluster struct {
	ctx     context.Context // of the one look that the cluster is made for: it bounds expressions
	devices []*device       // in the order in which they were published
	nodes   map[string]*corev1.Node
	classes map[string]*resourcev1.DeviceClass
	cel     *dracel.Cache
	matched map[match]bool
}

// device is one form of a GPU.
type device struct {
	pool, node string
	spec       *resourcev1.Device
	free       map[resourcev1.QualifiedName]int64
	taken      int // allocations
	draws      []draw
}

// draw is what a device takes of a counter while it is allocated at all.
type draw struct {
	left   *int64
	amount int64
}

type match struct {
	device     *device
	expression string
}

type deviceID struct{ pool, device string }

// celCache is shared by all clusters, because compiled expressions do not change.
func celCache() *dracel.Cache {
	return dracel.NewCache(256, dracel.Features{EnableConsumableCapacity: true})
}

// newCluster reads the published devices and takes from them what is allocated to claims.
func newCluster(ctx context.Context, published []*resourcev1.ResourceSlice, claims []*resourcev1.ResourceClaim, classes []*resourcev1.DeviceClass, nodes []*corev1.Node, compiled *dracel.Cache) *cluster {
	c := &cluster{
		ctx: ctx, nodes: make(map[string]*corev1.Node), classes: make(map[string]*resourcev1.DeviceClass),
		cel: compiled, matched: make(map[match]bool),
	}
	for _, node := range nodes {
		c.nodes[node.Name] = node
	}
	for _, class := range classes {
		c.classes[class.Name] = class
	}
	known := c.publish(newest(published))
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			continue
		}
		for i := range claim.Status.Allocation.Devices.Results {
			r := &claim.Status.Allocation.Devices.Results[i]
			d := known[deviceID{r.Pool, r.Device}]
			if r.Driver != v1alpha1.Driver || d == nil || r.AdminAccess != nil && *r.AdminAccess {
				continue // another driver's, or a GPU that vanished
			}
			consumed := make(map[resourcev1.QualifiedName]int64)
			for name, quantity := range r.ConsumedCapacity {
				consumed[name] = quantity.Value()
			}
			d.take(consumed)
		}
	}
	return c
}

// newest returns the driver's slices of the newest generation of each pool. Older ones are about to be deleted.
func newest(published []*resourcev1.ResourceSlice) []*resourcev1.ResourceSlice {
	generation := make(map[string]int64)
	for _, s := range published {
		generation[s.Spec.Pool.Name] = max(generation[s.Spec.Pool.Name], s.Spec.Pool.Generation)
	}
	var current []*resourcev1.ResourceSlice
	for _, s := range published {
		if s.Spec.Driver == v1alpha1.Driver && s.Spec.Pool.Generation == generation[s.Spec.Pool.Name] && s.Spec.NodeName != nil {
			current = append(current, s)
		}
	}
	return current
}

func (c *cluster) publish(published []*resourcev1.ResourceSlice) map[deviceID]*device {
	type counterID struct{ pool, set, counter string }
	counters := make(map[counterID]*int64)
	for _, s := range published {
		for _, set := range s.Spec.SharedCounters {
			for name, counter := range set.Counters {
				left := counter.Value.Value()
				counters[counterID{s.Spec.Pool.Name, set.Name, name}] = &left
			}
		}
	}
	known := make(map[deviceID]*device)
	for _, s := range published {
		for i := range s.Spec.Devices {
			d := &device{pool: s.Spec.Pool.Name, node: *s.Spec.NodeName, spec: &s.Spec.Devices[i], free: make(map[resourcev1.QualifiedName]int64)}
			for name, capacity := range d.spec.Capacity {
				d.free[name] = capacity.Value.Value()
			}
			for _, use := range d.spec.ConsumesCounters {
				for name, counter := range use.Counters {
					if left := counters[counterID{d.pool, use.CounterSet, name}]; left != nil {
						d.draws = append(d.draws, draw{left, counter.Value.Value()})
					}
				}
			}
			c.devices = append(c.devices, d)
			known[deviceID{d.pool, d.spec.Name}] = d
		}
	}
	return known
}

// shared reports whether several claims can have the device.
func (d *device) shared() bool {
	return d.spec.AllowMultipleAllocations != nil && *d.spec.AllowMultipleAllocations
}

func (d *device) take(consumed map[resourcev1.QualifiedName]int64) {
	if d.taken++; d.taken == 1 {
		for _, draw := range d.draws {
			*draw.left -= draw.amount
		}
	}
	for name, n := range consumed {
		d.free[name] -= n
	}
}

func (d *device) giveBack(consumed map[resourcev1.QualifiedName]int64) {
	if d.taken--; d.taken == 0 {
		for _, draw := range d.draws {
			*draw.left += draw.amount
		}
	}
	for name, n := range consumed {
		d.free[name] += n
	}
}

// open reports whether the device can be allocated in this form: not if another form of its GPU is, nor once more if
// it is not shared.
func (d *device) open() bool {
	if d.taken > 0 {
		return d.shared()
	}
	for _, draw := range d.draws {
		if *draw.left < draw.amount {
			return false
		}
	}
	return true
}

// consumption is what an allocation takes of a shared device; ok is false where the device could never give it.
func (d *device) consumption(asked *resourcev1.CapacityRequirements) (consumed map[resourcev1.QualifiedName]int64, ok bool) {
	var requests map[resourcev1.QualifiedName]resource.Quantity
	if asked != nil {
		requests = asked.Requests
	}
	for name, quantity := range requests {
		if capacity, has := d.spec.Capacity[name]; !has || capacity.Value.Cmp(quantity) < 0 {
			return nil, false
		}
	}
	if !d.shared() {
		return nil, true
	}
	consumed = make(map[resourcev1.QualifiedName]int64)
	for name, capacity := range d.spec.Capacity {
		quantity, given := requests[name]
		n := quantity.Value()
		policy := capacity.RequestPolicy
		switch {
		case given:
			n = rounded(n, policy)
		case policy != nil && policy.Default != nil:
			n = policy.Default.Value()
		default:
			n = capacity.Value.Value()
		}
		if n > capacity.Value.Value() {
			return nil, false
		}
		consumed[name] = n
	}
	return consumed, true
}

// rounded is what Kubernetes makes of an amount by the device's policy.
func rounded(n int64, policy *resourcev1.CapacityRequestPolicy) int64 {
	if policy == nil {
		return n
	}
	for _, valid := range policy.ValidValues {
		if valid.Value() >= n {
			return valid.Value()
		}
	}
	if r := policy.ValidRange; r != nil && r.Min != nil {
		least := r.Min.Value()
		n = max(n, least)
		if r.Step != nil && r.Step.Value() > 0 {
			step := r.Step.Value()
			n = least + (n-least+step-1)/step*step
		}
	}
	return n
}

// selected reports whether the device satisfies an expression; one that does not compile selects nothing.
func (c *cluster) selected(d *device, expression string) bool {
	key := match{d, expression}
	if known, ok := c.matched[key]; ok {
		return known
	}
	ok := false
	if program := c.cel.GetOrCompile(expression); program.Error == nil {
		found, _, err := program.DeviceMatches(c.ctx, dracel.Device{
			Driver: v1alpha1.Driver, AllowMultipleAllocations: d.spec.AllowMultipleAllocations,
			Attributes: d.spec.Attributes, Capacity: d.spec.Capacity,
		})
		ok = err == nil && found
	}
	c.matched[key] = ok
	return ok
}

// healthy reports whether the device's taints let something be placed on it.
func (d *device) healthy(tolerations []resourcev1.DeviceToleration) bool {
	for _, taint := range d.spec.Taints {
		if taint.Effect != resourcev1.DeviceTaintEffectNoSchedule && taint.Effect != resourcev1.DeviceTaintEffectNoExecute {
			continue
		}
		tolerated := false
		for _, toleration := range tolerations {
			tolerated = tolerated || resourceclaim.ToleratesTaint(toleration, taint)
		}
		if !tolerated {
			return false
		}
	}
	return true
}

// attribute returns an attribute of the device by its full name, nil for none.
func (d *device) attribute(name resourcev1.FullyQualifiedName) *resourcev1.DeviceAttribute {
	if a, ok := d.spec.Attributes[resourcev1.QualifiedName(name)]; ok {
		return &a
	}
	if short, ours := strings.CutPrefix(string(name), v1alpha1.Driver+"/"); ours {
		if a, ok := d.spec.Attributes[resourcev1.QualifiedName(short)]; ok {
			return &a
		}
	}
	return nil
}
