package e2e

import (
	"fmt"
	"strings"
	"testing"

	resourcev1 "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/agent/dra/pool"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// TestSlotsUpgrade upgrades Kubernetes beneath running pods of mode slots to the version where claims can share, and then
// changes the node to mode claims.
func TestSlotsUpgrade(t *testing.T) {
	version := slotsVersion(t)
	if !strings.HasPrefix(version, "v1.35.") {
		t.Skip("Kubernetes is upgraded by one minor version at a time, and claims begin with 1.36")
	}
	l := newSlotsLab(t, version, 1, "scheduler.replicas=1")
	l.scenario("slots-lent", lentBySlots)
	l.minutes("slots-upgraded", slotsUpgraded)
}

// Pods that hold shares by slots go on, also in containers that start again, and end with their pods. Afterwards the GPU is
// whole. The GPU in MIG mode beside it is shown with the reason, and nobody gets it.
func slotsUpgraded(l *lab) {
	n := l.Nodes[0]
	l.run(busy("stays", "4Gi", "30"))
	l.run(again("again", "2Gi"))
	l.held(2)
	ctx, cancel := l.bound()
	defer cancel()
	l.must(l.Upgrade(ctx, cluster.DefaultVersion))
	l.slots("n1", 64)
	l.recorded()
	l.unmoved("stays")
	l.toClaims(n)
	l.keptPlugin(n)
	l.unmoved("stays")
	l.held(2)
	l.exec("again", "main", "touch", "/run/end")
	l.restarted("again")
	l.limited("again", "main", 2*gib, 1)
	l.held(2)
	// The scheduler of claims does not know of shares by slots. The agent does.
	l.create(plain("waits", "13Gi", ""))
	if why := l.event("waits", "PrepareFailed"); !strings.Contains(why, "GPU 0") {
		l.t.Errorf("the event does not name the GPU: %s", why)
	}
	l.unmoved("stays")
	l.remove("again")
	l.held(1)
	l.remove("stays")
	l.running("waits")
	l.limited("waits", "main", 13*gib, 1)
	l.agree()
	l.remove("waits")
	l.held(0)
	l.free()
	l.run(whole("whole", 1))
	listing, err := l.listing(n)
	l.must(err)
	l.limited("whole", "main", listing.GPUs[0].Capacity, 1)
	l.agree()
	l.inMIGMode(n, 1)
}

// toClaims upgrades Divvy to mode claims, and returns once claims are offered and pods translated to them.
func (l *lab) toClaims(n *cluster.Machine) {
	l.t.Helper()
	l.must(l.Install(l.ctx, "mode=claims"))
	listing, err := l.listing(n)
	l.must(err)
	var names []string
	for _, gpu := range listing.GPUs {
		names = append(names, pool.Name(gpu.UUID, pool.Shared))
	}
	l.published(n, names...)
	l.translates()
}

// translates waits until pods get claims: a webhook that is still ending translates to slots.
func (l *lab) translates() {
	l.t.Helper()
	l.eventually("pods get claims", func() string {
		p, err := l.Client().CoreV1().Pods(l.namespace).Create(l.ctx, plain("probe", "1Gi", ""), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			return err.Error()
		}
		if len(p.Spec.ResourceClaims) == 0 {
			return fmt.Sprintf("this one has none, and limits %v", p.Spec.Containers[0].Resources.Limits)
		}
		return ""
	})
}

// keptPlugin waits until a node's kubelet knows a plugin without slots. It otherwise forgets the plugin after minutes, and
// then starts no container again that has a slot.
func (l *lab) keptPlugin(n *cluster.Machine) {
	l.t.Helper()
	l.eventually("the kubelet knows a plugin without slots", func() string {
		node, err := l.Client().CoreV1().Nodes().Get(l.ctx, n.Name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if slots, known := node.Status.Capacity[v1alpha1.SlotResource]; !known || !slots.IsZero() {
			return fmt.Sprintf("it has %s slots, and knows the plugin: %t", slots.String(), known)
		}
		return ""
	})
}

// inMIGMode checks that a GPU in MIG mode is shown with the reason and given to nobody, where all others are taken.
func (l *lab) inMIGMode(n *cluster.Machine, index int) {
	l.t.Helper()
	listing, err := l.listing(n)
	l.must(err)
	gpu := listing.GPUs[index]
	if !strings.Contains(gpu.Fault, "MIG mode") || gpu.Granted != 0 {
		l.t.Errorf("divvy ls shows GPU %d with the fault %q and %d bytes granted", index, gpu.Fault, gpu.Granted)
	}
	l.tainted(1)
	published, err := l.Client().ResourceV1().ResourceSlices().List(l.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
	l.must(err)
	for i := range published.Items {
		for _, d := range published.Items[i].Spec.Devices {
			if d.Name != pool.Name(gpu.UUID, pool.Shared) {
				continue
			}
			if len(d.Taints) != 1 || d.Taints[0].Key != v1alpha1.UnhealthyTaint || d.Taints[0].Value != "mig-mode" || d.Taints[0].Effect != resourcev1.DeviceTaintEffectNoSchedule {
				l.t.Errorf("GPU %d has the taints %+v", index, d.Taints)
			}
		}
	}
	l.create(plain("none", "1Gi", ""))
	if why := l.event("none", "NoShareFits"); !strings.Contains(why, fmt.Sprintf("GPU %d of node %s (mig-mode)", index, n.Name)) {
		l.t.Errorf("the event does not name the GPU in MIG mode: %s", why)
	}
	l.pending("none")
}
