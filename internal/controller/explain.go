package controller

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	corehelpers "k8s.io/component-helpers/scheduling/corev1"
	"k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	"k8s.io/klog/v2"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
)

// waiting reports whether a pod waits for the scheduler, and the scheduler has tried.
func waiting(pod *corev1.Pod) bool {
	if pod.Spec.NodeName != "" || pod.DeletionTimestamp != nil || pod.Status.Phase != corev1.PodPending && pod.Status.Phase != "" {
		return false
	}
	for i := range pod.Status.Conditions {
		condition := &pod.Status.Conditions[i]
		if condition.Type == corev1.PodScheduled {
			return condition.Status == corev1.ConditionFalse && condition.Reason == corev1.PodReasonUnschedulable
		}
	}
	return false
}

// explain returns one line that says why no node has the GPUs that a waiting pod's claims ask for. It returns "" if a
// node has them: then the pod waits for something else. It looks only at nodes that the pod's selectors and tolerations
// allow. It does not check CPU and memory.
func (c *cluster) explain(pod *corev1.Pod, claims []*resourcev1.ResourceClaim) string {
	if !waiting(pod) {
		return ""
	}
	var needs []need
	pinned := make(map[string]bool) // nodes of claims that are allocated
	for _, claim := range claims {
		if allocation := claim.Status.Allocation; allocation != nil {
			for i := range allocation.Devices.Results {
				if r := &allocation.Devices.Results[i]; r.Driver == v1alpha1.Driver {
					pinned[r.Pool] = true
				}
			}
			continue
		}
		more, missing := c.needs(claim)
		if missing != "" {
			return fmt.Sprintf("device class %s does not exist: install it again with Divvy", missing)
		}
		needs = append(needs, more...)
	}
	if len(needs) == 0 {
		return ""
	}
	nodes, elsewhere := c.eligible(pod, pinned)
	if len(nodes) == 0 {
		return noNodes(elsewhere, pinned)
	}
	for _, node := range sortedNames(nodes) {
		if c.fit(nodes[node], needs) {
			return ""
		}
	}
	for _, n := range needs {
		if text := c.lack(nodes, n); text != "" {
			return text
		}
	}
	return fmt.Sprintf("no node has room for all GPU requests of the pod at once, but each fits alone; %s", haveGPUs(len(nodes)))
}

func noNodes(elsewhere int, pinned map[string]bool) string {
	switch {
	case elsewhere == 0:
		return "no node has a GPU that Divvy knows"
	case len(pinned) > 0:
		return fmt.Sprintf("a claim of the pod is allocated on node %s, but the pod may not run there or the node has no GPUs now", strings.Join(sortedNames(pinned), ", "))
	}
	return fmt.Sprintf("the pod may not run on any node with GPUs: its node selector, affinity or tolerations exclude %s", plural(elsewhere, "node"))
}

// eligible returns the devices of each node that the pod may run on, and how many nodes with GPUs it may not.
func (c *cluster) eligible(pod *corev1.Pod, pinned map[string]bool) (nodes map[string][]*device, elsewhere int) {
	nodes = make(map[string][]*device)
	others := make(map[string]bool)
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	for _, d := range c.devices {
		if _, known := nodes[d.node]; !known && !others[d.node] {
			node := c.nodes[d.node]
			if node == nil || len(pinned) > 0 && !pinned[d.pool] || !allowed(pod, node, affinity) {
				others[d.node] = true
			}
		}
		if !others[d.node] {
			nodes[d.node] = append(nodes[d.node], d)
		}
	}
	return nodes, len(others)
}

func allowed(pod *corev1.Pod, node *corev1.Node, affinity nodeaffinity.RequiredNodeAffinity) bool {
	if match, err := affinity.Match(node); err != nil || !match {
		return false
	}
	_, untolerated := corehelpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, true)
	return !untolerated
}

// lack returns what no node has for one need alone, or "" if a node has it.
func (c *cluster) lack(nodes map[string][]*device, n need) string {
	for _, node := range sortedNames(nodes) {
		if c.fit(nodes[node], []need{n}) {
			return ""
		}
	}
	l := c.survey(nodes, n)
	text := l.never(n)
	if text == "" {
		text = l.now(n)
	}
	if l.sick != "" && l.healthy > 0 {
		text += "; not healthy: " + l.sick
	}
	return text + "; " + haveGPUs(len(nodes))
}

// never returns why no GPU could satisfy the need even if all were free, or "" if one could.
func (l *survey) never(n need) string {
	switch {
	case l.selected == 0:
		return fmt.Sprintf("no GPU is what request %s of class %s selects", n.name, n.ways[0].class)
	case l.large == 0:
		return fmt.Sprintf("no GPU has %s: the largest has %s", amounts(n.ways), size(l.largest))
	case l.healthy == 0:
		return "no GPU that could serve is healthy: " + l.sick
	}
	return ""
}

// now returns what is missing at this moment.
func (l *survey) now(n need) string {
	w := &n.ways[0]
	switch {
	case w.all:
		return "no node has all of its GPUs free"
	case l.most >= w.count && len(n.claim.Spec.Devices.Constraints) > 0:
		return fmt.Sprintf("no node has %s that satisfy the claim's constraints", wanted(n.ways))
	case l.most > 0:
		return fmt.Sprintf("no node has %s: the most is %d, on node %s", wanted(n.ways), l.most, l.mostNode)
	case w.class == v1alpha1.ClassWhole || l.open == 0 && !l.shares:
		return fmt.Sprintf("no GPU is free as a whole: %[1]d of %[1]d are in use", l.healthy)
	case l.open == 0:
		return fmt.Sprintf("every GPU is in use as a whole: %[1]d of %[1]d", l.healthy)
	}
	return l.shortage(n)
}

// shortage returns which amount no GPU has free, and which GPU has most of it.
func (l *survey) shortage(n need) string {
	for _, name := range []resourcev1.QualifiedName{v1alpha1.CapacityMemory, v1alpha1.CapacityCores, v1alpha1.CapacitySlots} {
		if best := l.best[name]; best.short {
			what := amountOf(n.ways, name)
			if what == "" {
				// The node's agent gives cores to shares that ask for none.
				return fmt.Sprintf("no GPU has free the %s of its time that a share gets by default: the most is %s on node %s (%s)",
					quantity(name, best.needed), quantity(name, best.free), best.device.node, best.device.title())
			}
			return fmt.Sprintf("no GPU has %s free: the most is %s on node %s (%s)", what, quantity(name, best.free), best.device.node, best.device.title())
		}
	}
	return fmt.Sprintf("no GPU has %s free at once", amounts(n.ways))
}

// survey counts what the GPUs of some nodes have for one need.
type survey struct {
	selected int // devices of the class that satisfy the selectors
	large    int // of these, those that could give the amounts if they were free
	healthy  int // of these, those that are in use as a whole or may be given out
	open     int // of these, those that are not in use as a whole
	shares   bool
	largest  int64  // bytes, of all that are selected
	sick     string // the first that is not healthy, and why
	most     int    // GPUs of one node that have everything
	mostNode string
	best     map[resourcev1.QualifiedName]most
}

// most is the GPU with most of a capacity free; short says that it is not enough.
type most struct {
	device *device
	free   int64
	needed int64
	short  bool
}

func (c *cluster) survey(nodes map[string][]*device, n need) *survey {
	l := &survey{best: make(map[resourcev1.QualifiedName]most)}
	for _, node := range sortedNames(nodes) {
		count := 0
		for _, d := range nodes[node] {
			for i := range n.ways {
				if c.look(l, d, &n.ways[i]) {
					count++
					break
				}
			}
		}
		if count > l.most {
			l.most, l.mostNode = count, node
		}
	}
	return l
}

// look adds one device to the survey, and reports whether it has what the way asks.
func (c *cluster) look(l *survey, d *device, w *way) bool {
	if !c.selectedBy(d, w.expressions) {
		return false
	}
	l.selected++
	l.shares = l.shares || d.shared()
	if total, ok := d.spec.Capacity[v1alpha1.CapacityMemory]; ok {
		l.largest = max(l.largest, total.Value.Value())
	}
	consumed, large := d.consumption(w.capacity)
	if !large {
		return false
	}
	l.large++
	if !d.open() {
		l.healthy++
		return false
	}
	if !d.healthy(w.tolerations) {
		if l.sick == "" {
			l.sick = d.title() + " of node " + d.node + " (" + d.complaint() + ")"
		}
		return false
	}
	l.healthy++
	l.open++
	enough := true
	for name, n := range consumed {
		short := d.free[name] < n
		enough = enough && !short
		best, known := l.best[name]
		if !known || d.free[name] > best.free || best.short && !short {
			l.best[name] = most{d, d.free[name], n, short}
		}
	}
	return enough
}

// title names a GPU as people do, by its index in its node.
func (d *device) title() string {
	if index := d.attribute(v1alpha1.Driver + "/" + v1alpha1.AttributeIndex); index != nil && index.IntValue != nil {
		return fmt.Sprintf("GPU %d", *index.IntValue)
	}
	return d.spec.Name
}

// complaint is the value of the first taint.
func (d *device) complaint() string {
	for _, taint := range d.spec.Taints {
		return cmp.Or(taint.Value, taint.Key)
	}
	return "unknown"
}

// wanted writes what is asked with its number of GPUs.
func wanted(ways []way) string {
	count := plural(ways[0].count, "GPU")
	if text := amounts(ways); text != "" {
		return count + " with " + text + " free"
	}
	return count + " free as a whole"
}

// amounts writes what is asked of one GPU.
func amounts(ways []way) string {
	var all []string
	for _, name := range []resourcev1.QualifiedName{v1alpha1.CapacityMemory, v1alpha1.CapacityCores} {
		if text := amountOf(ways, name); text != "" {
			all = append(all, text)
		}
	}
	return strings.Join(all, " and ")
}

// amountOf writes what is asked of one capacity: of several ways, all amounts that differ.
func amountOf(ways []way, name resourcev1.QualifiedName) string {
	if name == v1alpha1.CapacitySlots {
		return "a place for another share"
	}
	var different []string
	for _, w := range ways {
		if w.capacity == nil {
			continue
		}
		if q, ok := w.capacity.Requests[name]; ok && !q.IsZero() {
			if text := quantity(name, q.Value()); !slices.Contains(different, text) {
				different = append(different, text)
			}
		}
	}
	switch {
	case len(different) == 0 && name == v1alpha1.CapacityMemory && ways[0].class != v1alpha1.ClassWhole:
		return "all of its memory"
	case len(different) == 0:
		return ""
	}
	text := strings.Join(different, " or ")
	if len(different) > 1 {
		text += ", by its size,"
	}
	if name == v1alpha1.CapacityMemory {
		return text + " of memory"
	}
	return text + " of its time"
}

func quantity(name resourcev1.QualifiedName, n int64) string {
	switch name {
	case v1alpha1.CapacityMemory:
		return size(n)
	case v1alpha1.CapacityCores:
		return fmt.Sprintf("%d percent", n)
	}
	return fmt.Sprint(n)
}

// size writes bytes, rounded down to whole MiB.
func size(n int64) string {
	return resource.NewQuantity(max(n, 0)>>20<<20, resource.BinarySI).String()
}

func haveGPUs(nodes int) string {
	if nodes == 1 {
		return "1 node has GPUs"
	}
	return fmt.Sprintf("%d nodes have GPUs", nodes)
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

func sortedNames[V any](m map[string]V) []string {
	return slices.Sorted(maps.Keys(m))
}
