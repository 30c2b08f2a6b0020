package controller

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourcev1 "k8s.io/api/resource/v1"
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
// allow. It does not check CPU and memory. Pods that ask for the same wait for the same reason, which is found once.
func (c *cluster) explain(ctx context.Context, pod *corev1.Pod, claims []*resourcev1.ResourceClaim) string {
	if !waiting(pod) {
		return ""
	}
	about := subject(pod, claims)
	if text, known := c.said[about]; known && about != "" {
		return text
	}
	c.ctx, c.steps = ctx, 0
	text := c.reason(pod, claims)
	if ctx.Err() == nil {
		c.said[about] = text
	}
	return text
}

// subject is everything of a pod and its claims on which the reason depends, "" if it cannot be told.
func subject(pod *corev1.Pod, claims []*resourcev1.ResourceClaim) string {
	type asked struct {
		Spec  *resourcev1.DeviceClaim `json:",omitempty"`
		Pools []string                `json:",omitempty"`
	}
	about := struct {
		Nodes       map[string]string
		Affinity    *corev1.Affinity
		Tolerations []corev1.Toleration
		Claims      []asked
	}{Nodes: pod.Spec.NodeSelector, Affinity: pod.Spec.Affinity, Tolerations: pod.Spec.Tolerations}
	for _, claim := range claims {
		if claim.Status.Allocation == nil {
			about.Claims = append(about.Claims, asked{Spec: &claim.Spec.Devices})
			continue
		}
		about.Claims = append(about.Claims, asked{Pools: sortedNames(poolsOf(claim))})
	}
	text, err := json.Marshal(about)
	if err != nil {
		return ""
	}
	return string(text)
}

// poolsOf are the pools of this driver's devices that a claim has.
func poolsOf(claim *resourcev1.ResourceClaim) map[string]bool {
	pools := make(map[string]bool)
	for i := range claim.Status.Allocation.Devices.Results {
		if r := &claim.Status.Allocation.Devices.Results[i]; r.Driver == v1alpha1.Driver {
			pools[r.Pool] = true
		}
	}
	return pools
}

// reason finds out what explain tells.
func (c *cluster) reason(pod *corev1.Pod, claims []*resourcev1.ResourceClaim) string {
	var needs []need
	pinned := make(map[string]bool) // nodes of claims that are allocated
	for _, claim := range claims {
		if claim.Status.Allocation != nil {
			maps.Copy(pinned, poolsOf(claim))
			maps.DeleteFunc(pinned, func(name string, _ bool) bool { _, remote := v1alpha1.HostOfPool(name); return remote })
			continue
		}
		more, missing := c.needs(claim)
		if missing != "" {
			return fmt.Sprintf("device class %s does not exist: install it again with Divvy", missing)
		}
		needs = append(needs, more...)
	}
	far, needs := apart(needs)
	if why := c.lackOfHosts(far); why != "" || len(needs) == 0 {
		return why
	}
	nodes, elsewhere := c.eligible(pod, pinned)
	if len(nodes) == 0 {
		return noNodes(elsewhere, pinned)
	}
	if c.somewhere(nodes, needs) {
		return ""
	}
	for i := range needs {
		// No node has a single need: that is known already.
		if len(needs) > 1 && c.somewhere(nodes, needs[i:i+1]) {
			continue
		}
		return c.lack(nodes, &needs[i])
	}
	return fmt.Sprintf("no node has room for all GPU requests of the pod at once, but each fits alone; %s", haveGPUs(len(nodes)))
}

// apart parts needs of GPUs that nodes reach through the network from those of a node's own. One that either would satisfy is
// neither: of it nothing is said.
func apart(needs []need) (far, near []need) {
	for i := range needs {
		remote := 0
		for k := range needs[i].ways {
			if needs[i].ways[k].class == v1alpha1.ClassRemote {
				remote++
			}
		}
		switch remote {
		case 0:
			near = append(near, needs[i])
		case len(needs[i].ways):
			far = append(far, needs[i])
		}
	}
	return far, near
}

// lackOfHosts is what no host has for needs of GPUs that nodes reach through the network, whichever node the pod is on.
func (c *cluster) lackOfHosts(needs []need) string {
	pools := c.reached()
	switch {
	case len(needs) == 0:
		return ""
	case len(pools) == 0:
		return "no host has GPUs that other nodes reach"
	}
	for i := range needs {
		if !c.somewhere(pools, needs[i:i+1]) {
			l := c.survey(pools, &needs[i])
			return cmp.Or(l.never(&needs[i]), l.now(&needs[i])) + "; " + hostsHave(len(pools))
		}
	}
	return ""
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

// eligible returns the nodes with devices that the pod may run on, and how many it may not.
func (c *cluster) eligible(pod *corev1.Pod, pinned map[string]bool) (nodes []*nodeDevices, elsewhere int) {
	affinity := nodeaffinity.GetRequiredNodeAffinity(pod)
	for _, p := range c.byName() {
		node := c.nodes[p.name]
		on := func(d *device) bool { return pinned[d.pool] }
		if node == nil || len(pinned) > 0 && !slices.ContainsFunc(p.devices, on) || !allowed(pod, node, affinity) {
			elsewhere++
			continue
		}
		nodes = append(nodes, p)
	}
	return nodes, elsewhere
}

func allowed(pod *corev1.Pod, node *corev1.Node, affinity nodeaffinity.RequiredNodeAffinity) bool {
	if match, err := affinity.Match(node); err != nil || !match {
		return false
	}
	if len(node.Spec.Taints) == 0 {
		return true
	}
	_, untolerated := corehelpers.FindMatchingUntoleratedTaint(klog.Background(), node.Spec.Taints, pod.Spec.Tolerations, func(t *corev1.Taint) bool {
		return t.Effect == corev1.TaintEffectNoSchedule || t.Effect == corev1.TaintEffectNoExecute
	}, true)
	return !untolerated
}

// somewhere reports whether a node has what is needed.
func (c *cluster) somewhere(nodes []*nodeDevices, needs []need) bool {
	return slices.ContainsFunc(nodes, func(p *nodeDevices) bool { return c.fit(p.devices, needs) })
}

// lack returns what no node has for one need alone.
func (c *cluster) lack(nodes []*nodeDevices, n *need) string {
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
func (l *survey) never(n *need) string {
	switch {
	case l.selected == 0 && v1alpha1.IsNICClass(n.ways[0].class):
		return fmt.Sprintf("no node has an RDMA card that request %s of class %s selects", n.name, n.ways[0].class)
	case l.selected == 0:
		return fmt.Sprintf("no GPU is what request %s of class %s selects", n.name, n.ways[0].class)
	case l.large == 0 && n.ways[0].asked[swapMemory] > l.swap:
		return l.neverSwaps(n)
	case l.large == 0:
		return fmt.Sprintf("no GPU has %s: the largest has %s", amountsOf(n.ways), size(l.largest))
	case l.healthy == 0:
		return "no GPU that could serve is healthy: " + l.sick
	}
	return ""
}

// neverSwaps returns why no GPU could have a swap share as large.
func (l *survey) neverSwaps(n *need) string {
	if l.swap == 0 {
		return "no node has memory for swap shares: swapMemory in its agent's configuration says how much"
	}
	return fmt.Sprintf("no GPU has turns for a swap share of %s: the largest has %s", size(n.ways[0].asked[swapMemory]), size(l.swap))
}

// now returns what is missing at this moment.
func (l *survey) now(n *need) string {
	w := &n.ways[0]
	switch {
	case w.all:
		return "no node has all of its GPUs free"
	case l.most >= w.count && len(n.claim.Spec.Devices.Constraints) > 0:
		return fmt.Sprintf("no node has %s that satisfy the claim's constraints", wanted(n.ways))
	case l.most > 0:
		return fmt.Sprintf("no node has %s: the most is %d, on node %s", wanted(n.ways), l.most, l.mostNode)
	case w.whole || l.open == 0 && !l.shares:
		return fmt.Sprintf("no GPU is free as a whole: %[1]d of %[1]d are in use", l.healthy)
	case l.open == 0:
		return fmt.Sprintf("every GPU is in use as a whole: %[1]d of %[1]d", l.healthy)
	}
	return l.shortage(n)
}

// shortage returns which amount no GPU has free, and which GPU has most of it.
func (l *survey) shortage(n *need) string {
	for i, name := range capacityNames {
		if best := l.best[i]; best.short {
			what := amountOf(n.ways, name)
			if what == "" {
				// The node's agent gives cores to shares that ask for none.
				return fmt.Sprintf("no GPU has free the %s of its time that a share gets by default: the most is %s on node %s (%s)",
					quantity(name, best.needed), quantity(name, best.free), best.device.node, best.device.title())
			}
			return fmt.Sprintf("no GPU has %s free: the most is %s on node %s (%s)", what, quantity(name, best.free), best.device.node, best.device.title())
		}
	}
	return fmt.Sprintf("no GPU has %s free at once", amountsOf(n.ways))
}

// survey counts what the GPUs of some nodes have for one need.
type survey struct {
	selected int // devices of the class that satisfy the selectors
	large    int // of these, those that could give the amounts if they were free
	healthy  int // of these, those that are in use as a whole or may be given out
	open     int // of these, those that are not in use as a whole
	shares   bool
	largest  int64  // bytes, of all that are selected
	swap     int64  // bytes, the most that a swap share can have of any of them
	sick     string // the first that is not healthy, and why
	most     int    // GPUs of one node that have everything
	mostNode string
	best     [capacities]most
}

// most is the GPU with most of a capacity free; short says that it is not enough.
type most struct {
	device *device
	free   int64
	needed int64
	short  bool
}

func (c *cluster) survey(nodes []*nodeDevices, n *need) *survey {
	l := &survey{}
	for _, p := range nodes {
		count := 0
		for _, d := range p.devices {
			for i := range n.ways {
				if c.look(l, d, &n.ways[i]) {
					count++
					break
				}
			}
		}
		if count > l.most {
			l.most, l.mostNode = count, p.name
		}
	}
	return l
}

// look adds one device to the survey, and reports whether it has what the way asks.
func (c *cluster) look(l *survey, d *device, w *way) bool {
	c.looked++
	if !c.selectedBy(d, w.selectors) {
		return false
	}
	l.selected++
	l.shares = l.shares || d.shared
	l.largest = max(l.largest, d.total[memory])
	l.swap = max(l.swap, d.rules[swapMemory].most)
	consumed, large := d.consumption(w)
	if !large {
		return false
	}
	l.large++
	if !d.open(w) {
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
	if !d.shared {
		return true
	}
	enough := true
	for i, n := range consumed {
		if !d.has[i] {
			continue
		}
		short := d.free[i] < n
		enough = enough && !short
		best := &l.best[i]
		if best.device == nil || d.free[i] > best.free || best.short && !short {
			*best = most{d, d.free[i], n, short}
		}
	}
	return enough
}
