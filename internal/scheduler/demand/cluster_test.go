package demand_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	dracel "k8s.io/dynamic-resource-allocation/cel"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/alloc"
	"github.com/divvy-gpu/divvy/internal/scheduler/demand"
)

// cluster is nodes with published GPUs.
type cluster struct {
	slices  []*resourcev1.ResourceSlice
	classes map[string]*resourcev1.DeviceClass
	devices []device
	places  []string
	alike   map[string]uint16 // classes, by what their devices are
	nodes   []alloc.Node
	cel     *dracel.Cache
}

// device is a published device. gpu is its GPU's place in the node.
type device struct {
	node, gpu int
	share     alloc.Share
	*resourcev1.Device
}

// newCluster publishes nodes as their agents do, and installs the device classes.
func newCluster(t testing.TB, nodes ...[]pool.GPU) *cluster {
	t.Helper()
	c := &cluster{classes: installed(t), alike: map[string]uint16{}, cel: dracel.NewCache(256, dracel.Features{EnableConsumableCapacity: true})}
	for i, gpus := range nodes {
		name := fmt.Sprintf("node-%d", i)
		resources, err := pool.Resources(name, gpus)
		if err != nil {
			t.Fatal(err)
		}
		published := resources.Pools[name].Slices
		c.nodes = append(c.nodes, alloc.Node{Name: name, CPU: 64000, Memory: 512 << 30})
		for k := range published {
			c.slices = append(c.slices, &resourcev1.ResourceSlice{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%05x", name, k)},
				Spec: resourcev1.ResourceSliceSpec{
					Driver: v1alpha1.Driver, NodeName: &name, Devices: published[k].Devices, SharedCounters: published[k].SharedCounters,
					Pool: resourcev1.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: int64(len(published))},
				},
			})
			for n := range published[k].Devices {
				c.enter(t, i, &published[k].Devices[n])
			}
		}
	}
	return c
}

// enter notes a device, and its GPU if it is the first of it.
func (c *cluster) enter(t testing.TB, node int, d *resourcev1.Device) {
	t.Helper()
	uuid, form, ok := pool.Parse(d.Name)
	if !ok {
		t.Fatalf("device %s", d.Name)
	}
	n := &c.nodes[node]
	at := slices.IndexFunc(n.GPUs, func(g alloc.GPU) bool { return g.UUID == uuid })
	if at < 0 {
		at = len(n.GPUs)
		n.GPUs = append(n.GPUs, alloc.GPU{UUID: uuid, Index: at})
	}
	g := &n.GPUs[at]
	amount := func(name resourcev1.QualifiedName) (all, unasked int64) {
		capacity := d.Capacity[name]
		if capacity.RequestPolicy != nil && capacity.RequestPolicy.Default != nil {
			unasked = capacity.RequestPolicy.Default.Value()
		}
		return capacity.Value.Value(), unasked
	}
	memory, _ := amount(v1alpha1.CapacityMemory)
	slots, _ := amount(v1alpha1.CapacitySlots)
	_, cores := amount(v1alpha1.CapacityCores)
	if model := d.Attributes[v1alpha1.AttributeModel]; model.StringValue != nil {
		g.Model = *model.StringValue
	}
	one := device{node: node, gpu: at, share: alloc.Share{UUID: uuid, GPU: at}, Device: d}
	g.Location = c.whereabouts(d)
	if form == pool.MIG {
		one.share.Profile, one.share.Start, _ = pool.ParseInstance(d.Name)
		g.Capacity = max(g.Capacity, uint64(memory))
		c.locate(g, &one)
	} else {
		g.Capacity, g.Slots, g.DefaultCores = uint64(memory), int(slots), int(cores)
		if swap, ok := d.Capacity[v1alpha1.CapacitySwapMemory]; ok {
			g.SwapMemory, g.MostSwapMemory = uint64(swap.Value.Value()), uint64(swap.RequestPolicy.ValidRange.Max.Value())
		}
		g.Class = c.classOf(d)
	}
	for _, taint := range d.Taints {
		g.Fault = taint.Key + "=" + taint.Value
	}
	c.devices = append(c.devices, one)
}

// whereabouts numbers the places that a device tells: equal texts have equal numbers.
func (c *cluster) whereabouts(d *resourcev1.Device) alloc.Location {
	number := func(name resourcev1.QualifiedName) uint16 {
		value, ok := d.Attributes[name]
		if !ok {
			return 0
		}
		text, _ := yaml.Marshal(value)
		at := slices.Index(c.places, string(text))
		if at < 0 {
			at = len(c.places)
			c.places = append(c.places, string(text))
		}
		return uint16(at + 1)
	}
	return alloc.Location{
		NUMA: number(v1alpha1.AttributeNUMANode), Root: number("resource.kubernetes.io/pcieRoot"),
		Switch: number(v1alpha1.AttributePCIeSwitch), Clique: number(v1alpha1.AttributeNVLinkClique),
	}
}

// locate notes where an instance can be. One without counters takes the slice at which it begins: others begin elsewhere.
func (c *cluster) locate(g *alloc.GPU, d *device) {
	size := 1
	for _, use := range d.ConsumesCounters {
		for name := range use.Counters {
			if strings.HasPrefix(name, "memory-slice-") && name != fmt.Sprint("memory-slice-", d.share.Start) {
				size++
			}
		}
	}
	at := slices.IndexFunc(g.Profiles, func(p alloc.Profile) bool { return p.Name == d.share.Profile })
	if at < 0 {
		at = len(g.Profiles)
		g.Profiles = append(g.Profiles, alloc.Profile{Name: d.share.Profile, Size: size})
	}
	g.Profiles[at].Starts = append(g.Profiles[at].Starts, d.share.Start)
	slices.Sort(g.Profiles[at].Starts)
}

// identities differ from GPU to GPU of a node.
var identities = []resourcev1.QualifiedName{
	v1alpha1.AttributeUUID, v1alpha1.AttributeIndex, v1alpha1.AttributeNUMANode, v1alpha1.AttributePCIeSwitch, v1alpha1.AttributeNVLinkClique,
	"resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/pciBusID", "resource.kubernetes.io/numaNode", "gpu.nvidia.com/uuid", "gpu.nvidia.com/index",
}

// classOf is the number of the devices that are like this one.
func (c *cluster) classOf(d *resourcev1.Device) uint16 {
	like := func(d *resourcev1.Device) string {
		copied := resourcev1.Device{Attributes: map[resourcev1.QualifiedName]resourcev1.DeviceAttribute{}, Capacity: d.Capacity}
		for name, value := range d.Attributes {
			if !slices.Contains(identities, name) {
				copied.Attributes[name] = value
			}
		}
		text, _ := yaml.Marshal(copied)
		return string(text)
	}
	text := like(d)
	if _, known := c.alike[text]; !known {
		c.alike[text] = uint16(len(c.alike) + 1)
	}
	return c.alike[text]
}

func (c *cluster) DeviceClass(name string) *resourcev1.DeviceClass {
	for _, class := range c.classes {
		if class.Name == name || class.Spec.ExtendedResourceName != nil && *class.Spec.ExtendedResourceName == name {
			return class
		}
	}
	return nil
}

func (c *cluster) matches(d *device, expressions []string) bool {
	for _, e := range expressions {
		program := c.cel.GetOrCompile(e)
		if program.Error != nil {
			return false
		}
		ok, _, err := program.DeviceMatches(context.Background(), dracel.Device{
			Driver: v1alpha1.Driver, AllowMultipleAllocations: d.AllowMultipleAllocations, Attributes: d.Attributes, Capacity: d.Capacity,
		})
		if err != nil || !ok {
			return false
		}
	}
	return true
}

// sets are the GPUs of which a device does: by classes, and by name if the classes have others.
func (c *cluster) sets(does func(d *device) bool) (alloc.Classes, alloc.Names) {
	serves := map[string]bool{}
	var classes []uint16
	var names []string
	for i := range c.devices {
		if d := &c.devices[i]; does(d) && !serves[d.share.UUID] {
			serves[d.share.UUID] = true
			names = append(names, d.share.UUID)
			classes = append(classes, c.nodes[d.node].GPUs[d.gpu].Class)
		}
	}
	all := alloc.ClassesOf(classes...)
	for _, n := range c.nodes {
		for _, g := range n.GPUs {
			if all.Has(g.Class) && !serves[g.UUID] && len(names) > 0 {
				return all, alloc.Names(strings.Join(names, "|"))
			}
		}
	}
	return all, ""
}

func (c *cluster) Serving(expressions []string) (alloc.Classes, alloc.Names) {
	return c.sets(func(d *device) bool { return d.share.Profile == "" && c.matches(d, expressions) })
}

func (c *cluster) Instances(expressions []string) (all []demand.Instances) {
	type profile struct {
		name          string
		memory, cores int64
	}
	var profiles []profile
	for i := range c.devices {
		d := &c.devices[i]
		if d.share.Profile == "" || slices.ContainsFunc(profiles, func(p profile) bool { return p.name == d.share.Profile }) {
			continue
		}
		memory, cores := d.Capacity[v1alpha1.CapacityMemory], d.Capacity[v1alpha1.CapacityCores]
		profiles = append(profiles, profile{d.share.Profile, memory.Value.Value(), cores.Value.Value()})
	}
	slices.SortFunc(profiles, func(x, y profile) int {
		return cmp.Or(cmp.Compare(x.memory, y.memory), cmp.Compare(x.cores, y.cores), cmp.Compare(x.name, y.name))
	})
	for _, p := range profiles {
		found := false
		classes, among := c.sets(func(d *device) bool {
			ok := d.share.Profile == p.name && c.matches(d, expressions)
			found = found || ok
			return ok
		})
		if found {
			all = append(all, demand.Instances{Profile: p.name, Classes: classes, Among: among})
		}
	}
	return all
}

func (c *cluster) Device(node string, share *alloc.Share) (string, *resourcev1.Device, bool) {
	for i := range c.devices {
		if d := &c.devices[i]; c.nodes[d.node].Name == node && d.share.UUID == share.UUID && d.share.Profile == share.Profile && d.share.Start == share.Start {
			return node, d.Device, true
		}
	}
	return "", nil, false
}

func (c *cluster) Location(pool, name string) (string, alloc.Share, bool) {
	for i := range c.devices {
		if d := &c.devices[i]; d.Name == name && c.nodes[d.node].Name == pool {
			return pool, d.share, true
		}
	}
	return "", alloc.Share{}, false
}

// installed reads the classes from what users install, and those for NVIDIA's names.
func installed(t testing.TB) map[string]*resourcev1.DeviceClass {
	t.Helper()
	text, err := os.ReadFile("../../../deploy/manifests/divvy.yaml")
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]*resourcev1.DeviceClass{}
	for document := range strings.SplitSeq(string(text), "\n---\n") {
		if !strings.Contains(document, "\nkind: DeviceClass\n") {
			continue
		}
		var class resourcev1.DeviceClass
		if err := yaml.Unmarshal([]byte(document), &class); err != nil {
			t.Fatal(err)
		}
		found[class.Name] = &class
	}
	if len(found) < 5 {
		t.Fatalf("installed are only %d classes", len(found))
	}
	found[v1alpha1.ClassNVIDIA] = madeClass(v1alpha1.ClassNVIDIA, `device.driver == "divvy.dev" && has(device.attributes["gpu.nvidia.com"].type) && has(device.attributes["divvy.dev"].whole)`)
	found[v1alpha1.ClassNVIDIA].Spec.ExtendedResourceName = ptr.To("nvidia.com/gpu")
	found[v1alpha1.ClassNVIDIAMIG] = madeClass(v1alpha1.ClassNVIDIAMIG, `device.driver == "divvy.dev" && has(device.attributes["gpu.nvidia.com"].type) && device.attributes["gpu.nvidia.com"].type == "mig"`)
	return found
}

func madeClass(name string, expressions ...string) *resourcev1.DeviceClass {
	return &resourcev1.DeviceClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.DeviceClassSpec{Selectors: selecting(expressions...)}}
}

func selecting(expressions ...string) (all []resourcev1.DeviceSelector) {
	for _, e := range expressions {
		all = append(all, resourcev1.DeviceSelector{CEL: &resourcev1.CELDeviceSelector{Expression: e}})
	}
	return all
}

// kindOf is the form of a device, or the profile of an instance.
func kindOf(name string) string {
	if profile, _, ok := pool.ParseInstance(name); ok {
		return profile
	}
	_, form, _ := pool.Parse(name)
	return string(form)
}
