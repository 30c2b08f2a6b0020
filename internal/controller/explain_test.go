package controller

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/yaml"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
)

// compiled is shared by the tests: what an expression compiles to does not change.
var compiled = celCache()

var classes = []*resourcev1.DeviceClass{
	classOf(v1alpha1.ClassShare, `device.driver == "divvy.dev" && device.attributes["divvy.dev"].form == "shared"`),
	classOf(v1alpha1.ClassMPS, `device.driver == "divvy.dev" && device.attributes["divvy.dev"].form == "mps"`),
	classOf(v1alpha1.ClassWhole, `device.driver == "divvy.dev" && (device.attributes["divvy.dev"].form == "whole" || has(device.attributes["divvy.dev"].whole))`),
	classOf(v1alpha1.ClassNIC, `device.driver == "divvy.dev" && device.attributes["divvy.dev"].form == "nic-shared"`),
	classOf("nic.example.com", `device.driver == "nic.example.com"`),
	classOf("training.example.com", `device.attributes["divvy.dev"].model == "A100"`),
}

func classOf(name, expression string) *resourcev1.DeviceClass {
	class := &resourcev1.DeviceClass{}
	class.Name = name
	class.Spec.Selectors = []resourcev1.DeviceSelector{{CEL: &resourcev1.CELDeviceSelector{Expression: expression}}}
	return class
}

// nodeOf publishes a node's GPUs as its agent does.
func nodeOf(t testing.TB, name string, gpus ...pool.GPU) []*resourcev1.ResourceSlice {
	t.Helper()
	for i := range gpus {
		gpus[i].Index, gpus[i].UUID = i, fmt.Sprintf("GPU-%s-%d", name, i)
		gpus[i].DriverVersion = "560.35.03"
		if gpus[i].Model == "" {
			gpus[i].Model = "A100"
		}
	}
	resources, err := pool.Resources(name, gpus)
	if err != nil {
		t.Fatal(err)
	}
	var published []*resourcev1.ResourceSlice
	for _, slice := range resources.Pools[name].Slices {
		published = append(published, &resourcev1.ResourceSlice{Spec: resourcev1.ResourceSliceSpec{
			Driver: v1alpha1.Driver, NodeName: &name, Pool: resourcev1.ResourcePool{Name: name, Generation: 2, ResourceSliceCount: int64(len(resources.Pools[name].Slices))},
			Devices: slice.Devices, SharedCounters: slice.SharedCounters,
		}})
	}
	return published
}

// earlierNodeOf publishes a node's GPUs as agents of earlier versions did: each as two devices that take one counter.
func earlierNodeOf(t testing.TB, name string, gpus ...pool.GPU) []*resourcev1.ResourceSlice {
	t.Helper()
	published := nodeOf(t, name, gpus...)
	held := slices.Clone(gpus)
	for i := range held {
		held[i].Held = new(uint64)
	}
	wholes := nodeOf(t, name, held...)[0].Spec.Devices
	counters := published[0].DeepCopy()
	counters.Spec.Devices = nil
	one := map[string]resourcev1.Counter{"gpu": {Value: resource.MustParse("1")}}
	devices := &published[0].Spec.Devices
	for i := range wholes {
		counters.Spec.SharedCounters = append(counters.Spec.SharedCounters, resourcev1.CounterSet{Name: wholes[i].Name, Counters: one})
		wholes[i].Taints = nil
		delete((*devices)[i].Attributes, v1alpha1.AttributeWhole)
		*devices = append(*devices, wholes[i])
	}
	for i := range *devices {
		(*devices)[i].ConsumesCounters = []resourcev1.DeviceCounterConsumption{{CounterSet: wholes[i%len(wholes)].Name, Counters: one}}
	}
	return append(published, counters)
}

func gib(n uint64) pool.GPU { return pool.GPU{Memory: n << 30} }

func claimOf(t testing.TB, devices string) *resourcev1.ResourceClaim {
	t.Helper()
	claim := &resourcev1.ResourceClaim{}
	if err := yaml.UnmarshalStrict([]byte("spec: {devices: {"+devices+"}}"), claim); err != nil {
		t.Fatalf("%s: %v", devices, err)
	}
	return claim
}

func share(capacity string) string {
	return `requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {` + capacity + `}}}}]`
}

const wholeGPU = `requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev}}]`

// given is a claim that was allocated: "n1/0 4Gi 30" is a share of GPU 0 of node n1, "n1/0" the device of an earlier
// version for the whole GPU.
func given(t testing.TB, text string) *resourcev1.ResourceClaim {
	t.Helper()
	words := strings.Fields(text)
	node, index, _ := strings.Cut(words[0], "/")
	device := "gpu-" + node + "-" + index
	result := `{request: gpu, driver: divvy.dev, pool: ` + node + `, device: ` + device + `}`
	if len(words) > 1 {
		result = `{request: gpu, driver: divvy.dev, pool: ` + node + `, device: ` + device + `-shared, shareID: 3b9e7a9e-7f0c-4f0b-8f65-2b5f0a1c9d1e, consumedCapacity: {memory: ` + words[1] + `, cores: ` + words[2] + `, slots: 1}}`
	}
	claim := &resourcev1.ResourceClaim{}
	if err := yaml.UnmarshalStrict([]byte("status: {allocation: {devices: {results: ["+result+"]}}}"), claim); err != nil {
		t.Fatal(err)
	}
	return claim
}

// pending is a pod that the scheduler has tried to place.
func pending(t testing.TB, spec string) *corev1.Pod {
	t.Helper()
	pod := &corev1.Pod{}
	text := `{metadata: {name: p, namespace: space, uid: u1}, spec: {` + spec + `}, status: {phase: Pending, conditions: [{type: PodScheduled, status: "False", reason: Unschedulable}]}}`
	if err := yaml.UnmarshalStrict([]byte(text), pod); err != nil {
		t.Fatal(err)
	}
	return pod
}

func named(names ...string) []*corev1.Node {
	var nodes []*corev1.Node
	for _, name := range names {
		node := &corev1.Node{}
		node.Name = name
		node.Labels = map[string]string{"kubernetes.io/hostname": name}
		nodes = append(nodes, node)
	}
	return nodes
}

// scene is a cluster and a claim that waits in it.
type scene struct {
	name   string
	slices []*resourcev1.ResourceSlice
	taken  []string
	asked  []string
	pod    string
	want   string
}

func (s *scene) explain(t testing.TB, nodes []*corev1.Node) string {
	t.Helper()
	var all, own []*resourcev1.ResourceClaim
	for _, text := range s.taken {
		all = append(all, given(t, text))
	}
	for _, text := range s.asked {
		own = append(own, claimOf(t, text))
	}
	return newCluster(s.slices, append(all, own...), classes, nodes).explain(t.Context(), pending(t, s.pod), own)
}

// newCluster is a cluster with these objects.
func newCluster(published []*resourcev1.ResourceSlice, claims []*resourcev1.ResourceClaim, classes []*resourcev1.DeviceClass, nodes []*corev1.Node) *cluster {
	c := newEmptyCluster(compiled)
	c.setClasses(classes)
	for _, node := range nodes {
		c.setNode(node.Name, node)
	}
	pools := map[string][]*resourcev1.ResourceSlice{}
	for _, slice := range published {
		pools[slice.Spec.Pool.Name] = append(pools[slice.Spec.Pool.Name], slice)
	}
	for name, slices := range pools {
		c.setPool(name, slices)
	}
	for i, claim := range claims {
		c.setClaim(fmt.Sprint(i), claim)
	}
	return c
}

func TestExplain(t *testing.T) {
	one := nodeOf(t, "n1", gib(16))
	two := nodeOf(t, "n1", gib(16), gib(16))
	three := slices.Concat(nodeOf(t, "n1", gib(16)), nodeOf(t, "n2", gib(40)), nodeOf(t, "n3", gib(16)))
	sick := nodeOf(t, "n1", pool.GPU{Memory: 16 << 30, Fault: &pool.Fault{Reason: "xid-79"}}, gib(16))
	half := `requests: [{name: gpu, firstAvailable: [` +
		`{name: small, deviceClassName: share.divvy.dev, selectors: [{cel: {expression: 'device.capacity["divvy.dev"].memory.compareTo(quantity("16Gi")) == 0'}}], capacity: {requests: {memory: 8Gi}}}, ` +
		`{name: large, deviceClassName: share.divvy.dev, selectors: [{cel: {expression: 'device.capacity["divvy.dev"].memory.compareTo(quantity("40Gi")) == 0'}}], capacity: {requests: {memory: 20Gi}}}]}]`
	fixed, withheld, held := gib(16), gib(16), gib(16)
	fixed.DefaultCores, withheld.Fault, held.Held = 5, &pool.Fault{Reason: "node-labels"}, new(uint64)
	earlier := earlierNodeOf(t, "n1", gib(16), gib(16))
	for _, s := range []scene{
		{"room", one, []string{"n1/0 8Gi 50"}, []string{share("memory: 8Gi, cores: 50")}, "", ""},
		{"memory", three, []string{"n1/0 12Gi 0", "n2/0 33Gi 0", "n3/0 12Gi 0"}, []string{share("memory: 8Gi")}, "",
			"no GPU has 8Gi of memory free: the most is 7Gi on node n2 (GPU 0); 3 nodes have GPUs"},
		{"time", two, []string{"n1/0 1Gi 80", "n1/1 1Gi 70"}, []string{share("memory: 1Gi, cores: 50")}, "",
			"no GPU has 50 percent of its time free: the most is 30 percent on node n1 (GPU 1); 1 node has GPUs"},
		{"time that nobody asked for", nodeOf(t, "n1", fixed), []string{"n1/0 1Gi 98"}, []string{share("memory: 1Gi")}, "",
			"no GPU has free the 5 percent of its time that a share gets by default: the most is 2 percent on node n1 (GPU 0); 1 node has GPUs"},
		{"labels that are wrong", nodeOf(t, "n1", withheld), nil, []string{share("memory: 1Gi")}, "",
			"no GPU that could serve is healthy: GPU 0 of node n1 (node-labels); 1 node has GPUs"},
		{"labels that are wrong, and a whole GPU", nodeOf(t, "n1", withheld), nil, []string{wholeGPU}, "",
			"no GPU that could serve is healthy: GPU 0 of node n1 (node-labels); 1 node has GPUs"},
		{"memory here, time there", two, []string{"n1/0 12Gi 0", "n1/1 1Gi 70"}, []string{share("memory: 8Gi, cores: 50")}, "",
			"no GPU has 8Gi of memory and 50 percent of its time free at once; 1 node has GPUs"},
		{"all memory", one, []string{"n1/0 1Gi 0"}, []string{share("cores: 50")}, "",
			"no GPU has all of its memory free: the most is 15Gi on node n1 (GPU 0); 1 node has GPUs"},
		{"too large for any", three, nil, []string{share("memory: 80Gi")}, "", "no GPU has 80Gi of memory: the largest has 40Gi; 3 nodes have GPUs"},
		{"whole, beside a share", two, []string{"n1/0 1Gi 0", "n1/1 16Gi 0"}, []string{wholeGPU}, "", "no GPU is free as a whole: 2 of 2 are in use; 1 node has GPUs"},
		{"whole, and room", two, []string{"n1/0 1Gi 0"}, []string{wholeGPU}, "", ""},
		{"whole, where shares have default cores", nodeOf(t, "n1", fixed), []string{"n1/0 1Gi 98"}, []string{wholeGPU}, "",
			"no GPU is free as a whole: 1 of 1 are in use; 1 node has GPUs"},
		{"share, beside whole", two, []string{"n1/0 16Gi 0", "n1/1 16Gi 0"}, []string{share("memory: 1Gi")}, "",
			"no GPU has 1Gi of memory free: the most is 0 on node n1 (GPU 0); 1 node has GPUs"},
		{"share, beside whole and share", two, []string{"n1/0 16Gi 0", "n1/1 12Gi 0"}, []string{share("memory: 8Gi")}, "",
			"no GPU has 8Gi of memory free: the most is 4Gi on node n1 (GPU 1); 1 node has GPUs"},
		{"whole, beside an earlier version's whole", nodeOf(t, "n1", held), []string{"n1/0"}, []string{wholeGPU}, "",
			"no GPU is free as a whole: 1 of 1 are in use; 1 node has GPUs"},
		{"share, beside an earlier version's whole", nodeOf(t, "n1", held, gib(16)), []string{"n1/0", "n1/1 12Gi 0"}, []string{share("memory: 8Gi")}, "",
			"no GPU has 8Gi of memory free: the most is 4Gi on node n1 (GPU 1); 1 node has GPUs"},
		{"an earlier agent: whole, beside a share", earlier, []string{"n1/0 1Gi 0", "n1/1"}, []string{wholeGPU}, "",
			"no GPU is free as a whole: 2 of 2 are in use; 1 node has GPUs"},
		{"an earlier agent: share, beside whole", earlier, []string{"n1/0", "n1/1"}, []string{share("memory: 1Gi")}, "",
			"every GPU is in use as a whole: 2 of 2; 1 node has GPUs"},
		{"an earlier agent: room for a whole one", earlier, []string{"n1/0 1Gi 0"}, []string{wholeGPU}, "", ""},
		{"several GPUs of one node", slices.Concat(two, nodeOf(t, "n2", gib(16))), nil, []string{`requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev, count: 3}}]`}, "",
			"no node has 3 GPUs free as a whole: the most is 2, on node n1; 2 nodes have GPUs"},
		{"several shares", two, []string{"n1/0 12Gi 0"}, []string{`requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, count: 2, capacity: {requests: {memory: 8Gi, cores: 10}}}}]`}, "",
			"no node has 2 GPUs with 8Gi of memory and 10 percent of its time free: the most is 1, on node n1; 1 node has GPUs"},
		{"a part of unequal GPUs", three, []string{"n1/0 9Gi 0", "n2/0 25Gi 0", "n3/0 16Gi 0"}, []string{half}, "",
			"no GPU has 8Gi or 20Gi, by its size, of memory free: the most is 15Gi on node n2 (GPU 0); 3 nodes have GPUs"},
		{"a part, room", three, []string{"n1/0 9Gi 0", "n2/0 15Gi 0", "n3/0 16Gi 0"}, []string{half}, "", ""},
		{"two claims, each alone would fit", one, []string{"n1/0 4Gi 0"}, []string{share("memory: 8Gi"), share("memory: 8Gi")}, "",
			"no node has room for all GPU requests of the pod at once, but each fits alone; 1 node has GPUs"},
		{"two claims on two GPUs", two, []string{"n1/0 4Gi 0"}, []string{share("memory: 12Gi"), share("memory: 16Gi")}, "", ""},
		{"another driver's claim", one, []string{"n1/0 16Gi 0"}, []string{`requests: [{name: nic, exactly: {deviceClassName: nic.example.com}}]`}, "", ""},
		{"a class of the cluster's own", one, []string{"n1/0 1Gi 0"}, []string{`requests: [{name: gpu, exactly: {deviceClassName: training.example.com}}]`}, "",
			"no GPU has all of its memory free: the most is 15Gi on node n1 (GPU 0); 1 node has GPUs"},
		{"allocated already", one, []string{"n1/0 16Gi 0"}, nil, "", ""},
		{"no GPUs", nil, nil, []string{share("memory: 1Gi")}, "", "no node has a GPU that Divvy knows"},
		{"selectors", one, nil, []string{`requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, selectors: [{cel: {expression: 'device.attributes["divvy.dev"].model == "H100"'}}]}}]`}, "",
			"no GPU is what request gpu of class share.divvy.dev selects; 1 node has GPUs"},
		{"unhealthy", sick, []string{"n1/1 12Gi 0"}, []string{share("memory: 8Gi")}, "",
			"no GPU has 8Gi of memory free: the most is 4Gi on node n1 (GPU 1); not healthy: GPU 0 of node n1 (xid-79); 1 node has GPUs"},
		{"changing its form", nodeOf(t, "n1", pool.GPU{Memory: 16 << 30, Changing: pool.MPS}), nil, []string{share("memory: 8Gi")}, "",
			"no GPU that could serve is healthy: GPU 0 of node n1 (changing to form mps); 1 node has GPUs"},
		{"no GPU of the form", one, nil, []string{`requests: [{name: gpu, exactly: {deviceClassName: mps.divvy.dev, capacity: {requests: {memory: 1Gi}}}}]`}, "",
			"no GPU is what request gpu of class mps.divvy.dev selects; 1 node has GPUs"},
		{"all unhealthy", nodeOf(t, "n1", pool.GPU{Memory: 16 << 30, Fault: &pool.Fault{Reason: "lost", Lost: true}}), nil, []string{share("memory: 8Gi")}, "",
			"no GPU that could serve is healthy: GPU 0 of node n1 (lost); 1 node has GPUs"},
		{"node selector", three, []string{"n2/0 38Gi 0"}, []string{share("memory: 8Gi")}, "nodeSelector: {kubernetes.io/hostname: n2}",
			"no GPU has 8Gi of memory free: the most is 2Gi on node n2 (GPU 0); 1 node has GPUs"},
		{"no node allowed", three, nil, []string{share("memory: 8Gi")}, "nodeSelector: {kubernetes.io/hostname: n9}",
			"the pod may not run on any node with GPUs: its node selector, affinity or tolerations exclude 3 nodes"},
		{"constraint", two, nil, []string{`requests: [{name: gpu, exactly: {deviceClassName: share.divvy.dev, count: 2, capacity: {requests: {memory: 1Gi}}}}], constraints: [{matchAttribute: divvy.dev/uuid}]`}, "",
			"no node has 2 GPUs with 1Gi of memory free that satisfy the claim's constraints; 1 node has GPUs"},
		{"different GPUs wanted", one, nil, []string{`requests: [{name: a, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {memory: 1Gi}}}}, {name: b, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {memory: 1Gi}}}}], constraints: [{distinctAttribute: divvy.dev/uuid}]`}, "",
			"no node has room for all GPU requests of the pod at once, but each fits alone; 1 node has GPUs"},
		{"one GPU for both", one, nil, []string{`requests: [{name: a, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {memory: 1Gi}}}}, {name: b, exactly: {deviceClassName: share.divvy.dev, capacity: {requests: {memory: 1Gi}}}}]`}, "", ""},
		{"no cards", nodeOf(t, "n1", pool.GPU{Memory: 16 << 30, Location: &pool.Location{PCI: "0000:01:00.0"}}), nil, []string{`requests: [{name: gpu-0, exactly: {deviceClassName: gpu.divvy.dev}}, {name: nic-0, exactly: {deviceClassName: nic.divvy.dev}}], constraints: [{requests: [gpu-0, nic-0], matchAttribute: divvy.dev/switch}]`}, "",
			"no node has an RDMA card that request nic-0 of class nic.divvy.dev selects; 1 node has GPUs"},
		{"all GPUs of a node", two, []string{"n1/0 1Gi 0"}, []string{`requests: [{name: gpu, exactly: {deviceClassName: gpu.divvy.dev, allocationMode: All}}]`}, "",
			"no node has all of its GPUs free; 1 node has GPUs"},
	} {
		t.Run(s.name, func(t *testing.T) {
			if got := s.explain(t, named("n1", "n2", "n3")); got != s.want {
				t.Errorf("got  %s\nwant %s", got, s.want)
			}
		})
	}
}

func TestExplainOnlyWhoWaitsForAGPU(t *testing.T) {
	full := scene{slices: nodeOf(t, "n1", gib(16)), taken: []string{"n1/0 16Gi 0"}, asked: []string{share("memory: 1Gi")}}
	if full.explain(t, named("n1")) == "" {
		t.Fatal("a full cluster says nothing")
	}
	own := []*resourcev1.ResourceClaim{claimOf(t, full.asked[0])}
	c := newCluster(full.slices, []*resourcev1.ResourceClaim{given(t, "n1/0 16Gi 0")}, classes, named("n1"))
	for name, change := range map[string]func(*corev1.Pod){
		"has a node":          func(p *corev1.Pod) { p.Spec.NodeName = "n1" },
		"was not tried":       func(p *corev1.Pod) { p.Status.Conditions = nil },
		"is gated":            func(p *corev1.Pod) { p.Status.Conditions[0].Reason = corev1.PodReasonSchedulingGated },
		"is being terminated": func(p *corev1.Pod) { p.DeletionTimestamp = &p.CreationTimestamp },
		"is finished":         func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed },
	} {
		pod := pending(t, "")
		change(pod)
		if text := c.explain(t.Context(), pod, own); text != "" {
			t.Errorf("a pod that %s: %s", name, text)
		}
	}
	tainted := named("n1")
	tainted[0].Spec.Taints = []corev1.Taint{{Key: "reserved", Value: "x", Effect: corev1.TaintEffectNoSchedule}}
	if got := full.explain(t, tainted); !strings.Contains(got, "exclude 1 node") {
		t.Errorf("a tainted node: %s", got)
	}
	full.pod = "tolerations: [{key: reserved, operator: Exists}]"
	if got := full.explain(t, tainted); !strings.Contains(got, "1Gi of memory free") {
		t.Errorf("a tolerated taint: %s", got)
	}
	missing := newCluster(full.slices, nil, nil, named("n1"))
	if got := missing.explain(t.Context(), pending(t, ""), own); got != "device class share.divvy.dev does not exist: install it again with Divvy" {
		t.Errorf("no classes: %s", got)
	}
}

// TestExplainAfterAllocation: a claim that is on a node binds the pod's others to it.
func TestExplainAfterAllocation(t *testing.T) {
	published := slices.Concat(nodeOf(t, "n1", gib(16)), nodeOf(t, "n2", gib(16)))
	shared, more := given(t, "n1/0 12Gi 0"), claimOf(t, share("memory: 8Gi"))
	c := newCluster(published, []*resourcev1.ResourceClaim{shared, more}, classes, named("n1", "n2"))
	want := "no GPU has 8Gi of memory free: the most is 4Gi on node n1 (GPU 0); 1 node has GPUs"
	if got := c.explain(t.Context(), pending(t, ""), []*resourcev1.ResourceClaim{shared, more}); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// TestOldGenerations: slices of an older generation are about to be deleted, and must not be counted twice.
func TestOldGenerations(t *testing.T) {
	published := nodeOf(t, "n1", gib(16))
	for _, slice := range nodeOf(t, "n1", gib(16), gib(80)) {
		slice.Spec.Pool.Generation = 1
		published = append(published, slice)
	}
	c := newCluster(published, nil, classes, named("n1"))
	if n := len(c.pools["n1"].devices); n != 1 {
		t.Errorf("%d devices", n)
	}
}

// TestSearchGivesBack: a search leaves the cluster as it was, whether it finds anything or not.
func TestSearchGivesBack(t *testing.T) {
	s := scene{slices: nodeOf(t, "n1", gib(16), gib(16), gib(16)), asked: []string{share("memory: 9Gi"), share("memory: 9Gi"), share("memory: 9Gi"), share("memory: 9Gi")}}
	var own []*resourcev1.ResourceClaim
	for _, text := range s.asked {
		own = append(own, claimOf(t, text))
	}
	c := newCluster(s.slices, nil, classes, named("n1"))
	for range 3 {
		c.change() // so that it searches again
		if got := c.explain(t.Context(), pending(t, ""), own); !strings.Contains(got, "at once") {
			t.Errorf("four of 9Gi on three of 16Gi: %q", got)
		}
		if got := c.explain(t.Context(), pending(t, ""), own[:3]); got != "" {
			t.Errorf("three of 9Gi on three of 16Gi: %q", got)
		}
	}
	for _, d := range c.pools["n1"].devices {
		if d.taken != 0 || d.free[memory] != 16<<30 || !d.open(&way{}) {
			t.Errorf("%s: taken %d, %d free", d.spec.Name, d.taken, d.free[memory])
		}
	}
}
