package explanation

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/internal/overview"
)

// gpusOf are a node's GPUs: what its agent publishes, or writes on the node where Kubernetes counts slots.
func gpusOf(node *corev1.Node, devices []*resourcev1.Device) []overview.GPU {
	var gpus []overview.GPU
	for _, d := range devices {
		gpus = append(gpus, gpuOf(d))
	}
	text := node.Annotations[v1alpha1.GPUsAnnotation]
	if len(gpus) > 0 || text == "" {
		return gpus
	}
	described, err := v1alpha1.ParseNodeGPUs(text)
	if err != nil { // the schedulers refuse it too
		return nil
	}
	for i := range described.GPUs {
		g := &described.GPUs[i]
		gpus = append(gpus, overview.GPU{Index: &g.Index, UUID: oneLine(g.UUID), Model: oneLine(g.Model), Form: v1alpha1.BackendSlice, Capacity: g.Memory, Fault: oneLine(g.Fault)})
	}
	return gpus
}

// isMachines reports whether a device is for virtual machines: no program has a share of it.
func isMachines(device string) bool {
	_, ok := pool.ParseFunction(device)
	return ok
}

// gpuOf is the GPU, or MIG instance, that a device stands for.
func gpuOf(d *resourcev1.Device) overview.GPU {
	text := func(name resourcev1.QualifiedName) string {
		if a := d.Attributes[name].StringValue; a != nil {
			return oneLine(*a)
		}
		return ""
	}
	memory := d.Capacity[v1alpha1.CapacityMemory].Value
	g := overview.GPU{
		Device: d.Name, UUID: text(v1alpha1.AttributeUUID), Model: text(v1alpha1.AttributeModel), Profile: text(v1alpha1.AttributeProfile),
		Form: backendOf(text(v1alpha1.AttributeForm)), Capacity: uint64(max(0, memory.Value())),
	}
	if index := d.Attributes[v1alpha1.AttributeIndex].IntValue; index != nil && *index >= 0 {
		n := int(*index)
		g.Index = &n
	}
	var faults []string
	for _, t := range d.Taints {
		switch {
		case t.Key == v1alpha1.HeldTaint:
		case t.Key == v1alpha1.ChangingTaint:
			faults = append(faults, "changing to form "+oneLine(t.Value))
		case t.Effect != resourcev1.DeviceTaintEffectNone:
			faults = append(faults, oneLine(cmp.Or(t.Value, t.Key)))
		}
	}
	g.Fault = strings.Join(faults, ", ")
	return g
}

// backendOf is the backend of the shares of a GPU of a form.
func backendOf(form string) v1alpha1.Backend {
	switch form {
	case v1alpha1.FormShared, v1alpha1.FormWhole:
		return v1alpha1.BackendSlice
	}
	return v1alpha1.Backend(form)
}

// sortGPUs puts GPUs in the order of their indexes, and the shares of each in that of their names.
func sortGPUs(gpus []overview.GPU) {
	index := func(g *overview.GPU) int {
		if g.Index == nil {
			return 1 << 30
		}
		return *g.Index
	}
	slices.SortStableFunc(gpus, func(a, b overview.GPU) int { return cmp.Or(index(&a)-index(&b), cmp.Compare(a.Device, b.Device)) })
	for i := range gpus {
		slices.SortStableFunc(gpus[i].Shares, func(a, b overview.Share) int {
			return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Container, b.Container))
		})
	}
}

// grant is what a claim or a pod has of one GPU.
type grant struct {
	node string
	// device is a claim's, uuid a pod's.
	device, uuid string
	share        overview.Share
	// away tells that it has nothing of the GPU: it is suspended.
	away bool
}

// grantsOf are those of a claim. Admin access takes nothing of a GPU.
func grantsOf(claim *resourcev1.ResourceClaim) []grant {
	if claim.Status.Allocation == nil {
		return nil
	}
	var pods []string
	for _, user := range claim.Status.ReservedFor {
		if user.Resource == "pods" {
			pods = append(pods, user.Name)
		}
	}
	slices.Sort(pods)
	var since time.Time
	if at := claim.Status.Allocation.AllocationTimestamp; at != nil {
		since = at.Time
	}
	var notes []string
	state, whom := suspensionOf(claim)
	if state == Suspended {
		notes = []string{"suspended for " + whom + ": its memory is in the node's host memory"}
	}
	var all []grant
	for i := range claim.Status.Allocation.Devices.Results {
		r := &claim.Status.Allocation.Devices.Results[i]
		if r.Driver != v1alpha1.Driver || r.AdminAccess != nil && *r.AdminAccess || isMachines(r.Device) {
			continue
		}
		if _, card := pool.IsNIC(r.Device); card {
			continue
		}
		memory, cores := r.ConsumedCapacity[v1alpha1.CapacityMemory], r.ConsumedCapacity[v1alpha1.CapacityCores]
		swap := r.ConsumedCapacity[v1alpha1.CapacitySwapMemory]
		node := r.Pool
		if host, ok := v1alpha1.HostOfPool(r.Pool); ok {
			node = host
		}
		all = append(all, grant{node: node, device: r.Device, away: state == Suspended, share: overview.Share{
			Name: claim.Name, Namespace: claim.Namespace, Pods: pods, Since: since, Whole: v1alpha1.IsWholeClass(classOf(claim, r.Request)),
			Memory: uint64(max(0, cmp.Or(swap.Value(), memory.Value()))), Cores: int(cores.Value()), Notes: notes,
		}})
	}
	return all
}

// classOf is the device class of a claim's request, which may be one of several that would have served.
func classOf(claim *resourcev1.ResourceClaim, request string) string {
	name, part, _ := strings.Cut(request, "/")
	for i := range claim.Spec.Devices.Requests {
		r := &claim.Spec.Devices.Requests[i]
		switch {
		case r.Name != name:
		case r.Exactly != nil:
			return r.Exactly.DeviceClassName
		default:
			for _, s := range r.FirstAvailable {
				if s.Name == part {
					return s.DeviceClassName
				}
			}
		}
	}
	return ""
}

// assignedTo are what a pod was assigned where Kubernetes counts slots.
func assignedTo(pod *corev1.Pod) []grant {
	text := pod.Annotations[v1alpha1.AssignmentAnnotation]
	if text == "" || pod.Spec.NodeName == "" {
		return nil
	}
	assigned, err := v1alpha1.ParsePodAssignment(text)
	if err != nil || assigned.Pod != string(pod.UID) { // its node's agent refuses it too
		return nil
	}
	var all []grant
	for i := range assigned.Shares {
		s := &assigned.Shares[i]
		for _, g := range s.GPUs {
			share := overview.Share{
				Name: s.Name, Namespace: pod.Namespace, Pods: []string{pod.Name}, Container: s.Name, Since: pod.CreationTimestamp.Time,
				Whole: s.Whole, Memory: g.Memory, Cores: g.Cores,
			}
			if s.Config != nil {
				share.Policy, share.Class, share.Weight = s.Config.Policy, s.Config.Class, s.Config.Weight
			}
			all = append(all, grant{node: pod.Spec.NodeName, uuid: g.UUID, share: share})
		}
	}
	return all
}

// counted are the extended resources of which shares and GPUs are slots.
var counted = []corev1.ResourceName{v1alpha1.SlotResource, "nvidia.com/gpu", "nvidia.com/gpu.shared"}

// places are the GPUs of nodes, by what grants call them.
type places struct {
	gpus  map[[2]string]*overview.GPU
	nodes map[string]*overview.Node
	taken map[string]map[corev1.ResourceName]int64
}

func (s *sight) places() *places {
	at := &places{gpus: map[[2]string]*overview.GPU{}, nodes: map[string]*overview.Node{}, taken: map[string]map[corev1.ResourceName]int64{}}
	for i := range s.seen.Nodes {
		n := &s.seen.Nodes[i]
		at.nodes[n.Name] = n
		for k := range n.GPUs {
			g := &n.GPUs[k]
			at.gpus[[2]string{n.Name, g.Device}] = g
			if g.Profile == "" {
				at.gpus[[2]string{n.Name, g.UUID}] = g
			}
		}
	}
	return at
}

// add puts a grant on its GPU. The GPU of a claim may have gone, or its node not be looked at.
func (p *places) add(g grant) {
	gpu := p.gpus[[2]string{g.node, cmp.Or(g.device, g.uuid)}]
	if gpu == nil {
		return
	}
	if gpu.Profile != "" || g.device != "" && g.share.Memory == 0 {
		g.share.Whole, g.share.Memory = gpu.Profile == "", gpu.Capacity
	}
	gpu.Count++
	if !g.away {
		gpu.Granted += g.share.Memory
		gpu.Cores += g.share.Cores
	}
	gpu.Shares = append(gpu.Shares, g.share)
}

// count adds what a pod has of extended resources.
func (p *places) count(pod *corev1.Pod) {
	if p.nodes[pod.Spec.NodeName] == nil {
		return
	}
	taken := p.taken[pod.Spec.NodeName]
	if taken == nil {
		taken = map[corev1.ResourceName]int64{}
		p.taken[pod.Spec.NodeName] = taken
	}
	for _, name := range counted {
		var running, starting int64
		for i := range pod.Spec.Containers {
			n := pod.Spec.Containers[i].Resources.Limits[name]
			running += n.Value()
		}
		for i := range pod.Spec.InitContainers {
			n := pod.Spec.InitContainers[i].Resources.Limits[name]
			starting = max(starting, n.Value())
		}
		taken[name] += max(running, starting)
	}
}

// tell says what nodes count of extended resources, and what pods have of it.
func (p *places) tell(has map[string]corev1.ResourceList) {
	for name, node := range p.nodes {
		for _, resource := range counted {
			if n, ok := has[name][resource]; ok && !n.IsZero() {
				node.Notes = append(node.Notes, fmt.Sprintf("extended resource %s: the node has %d, its pods have %d", resource, n.Value(), p.taken[name][resource]))
			}
		}
	}
}
