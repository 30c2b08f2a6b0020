package e2e

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/internal/simgpu"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// TestSwap has pods with more memory than their GPU, on a node with memory of the host for them.
func TestSwap(t *testing.T) {
	gate(t)
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), begins)
	defer cancel()
	c, err := cluster.Start(ctx, cluster.Options{
		Nodes:  []cluster.Node{{Name: "n1", Machine: "p100-16g", MachineFlags: []string{"--memory", "8Gi"}, Labels: map[string]string{v1alpha1.NodeLabel: ""}}},
		Images: images(t), Log: t.Logf,
	})
	if err != nil {
		t.Fatal(err)
	}
	l := over(t, c, root)
	values := []string{"agent.swapMemory=11Gi", "agent.turnMemory=4608Mi"}
	l.must(l.tryInstall(values...))
	l.ready()
	l.scenario("swap", func(l *lab) {
		takeTurns(l, corev1.DefaultSchedulerName, "NoShareFits", "no GPU has 4608Mi of its host's memory for swap shares free: the most is 2Gi on node n1 (GPU 0)")
	})
	l.must(l.tryInstall(append(values, "scheduler.enabled=true")...))
	l.ready()
	l.scenario("swap-by-divvy", func(l *lab) {
		takeTurns(l, v1alpha1.SchedulerName, "FailedScheduling", "GPU 0 has 2Gi of the host's 11Gi for swap shares not granted and the share needs 4.5Gi")
	})
}

// Two pods of 4.5 GiB take turns on a GPU of 8 that holds what never leaves it and the memory of one of them, and what they have is as they left it. One whose limit of
// memory does not hold what may come back from the GPU is refused with the sum, and one for which the host has no memory waits.
// Event is its reason where this scheduler places pods, and lacks what it says.
func takeTurns(l *lab, scheduler, event, lacks string) {
	swapping := func(name string) *corev1.Pod {
		p := swapping(name)
		p.Spec.SchedulerName = scheduler
		return p
	}
	l.offersSwap(l.Nodes[0], "11Gi", "4608Mi")
	small := swapping("small")
	resources := &small.Spec.Containers[0].Resources
	resources.Limits[corev1.ResourceMemory], resources.Requests = quantity("4Gi"), corev1.ResourceList{corev1.ResourceMemory: quantity("1Gi")}
	const sum = "may have 3584Mi moved from its GPUs into its own memory and requests 1Gi for itself, and its limit of memory is 4Gi: set the limit to 4608Mi or more"
	if why := l.refused(small); !strings.Contains(why, sum) {
		l.t.Errorf("a limit of 4Gi: %s", why)
	}

	l.create(swapping("one"))
	l.create(swapping("two"))
	l.running("one")
	l.running("two")
	l.agree()
	l.create(swapping("third"))
	if why := l.event("third", event); !strings.Contains(why, lacks) {
		l.t.Errorf("the event does not say what is missing: %s", why)
	}
	l.pending("third")

	l.eventually("the memory of both was moved off the GPU and back", func() string {
		report, err := l.Nodes[0].Oracle(l.ctx)
		if err != nil {
			return err.Error()
		}
		return moved(report, 2)
	})
	for _, name := range []string{"one", "two"} {
		l.exec(name, "main", "sh", "-c", "kill -TERM $(pidof gpubench)")
		var swept struct {
			Result  string `json:"result"`
			Steps   int    `json:"steps"`
			Equal   bool   `json:"equal"`
			Changed int    `json:"changed_bytes"`
			Total   uint64 `json:"total_bytes"`
		}
		l.eventually(name+" has compared its memory", func() string {
			text, err := l.PodLogs(l.ctx, l.namespace, name, "main")
			if err == nil {
				err = decode(text, &swept)
			}
			if err == nil && swept.Result == "" {
				return "it goes on"
			}
			return reason(err)
		})
		if !swept.Equal || swept.Steps == 0 || swept.Total != 4608*mib {
			l.t.Errorf("%s: %+v", name, swept)
		}
	}
	l.remove("one", "two")
	l.running("third")
	l.agree()
}

// swapping makes a pod with a swap share of which 3.5 GiB may leave the GPU, that goes through nearly all of them until it is told to end.
func swapping(name string) *corev1.Pod {
	p := plain(name, "4608Mi", "")
	p.Annotations = map[string]string{v1alpha1.SwapAnnotation: "true", v1alpha1.KeptAnnotation: "1Gi"}
	p.Spec.Containers[0].Command = []string{"sh", "-c", "gpubench sweep --bytes=3328Mi --pieces=8 --count=0 --ns=100000000; sleep infinity"}
	return p
}

// moved says which of so many tenants has not had memory moved off the GPU and back, by the driver's own record.
func moved(report *simgpu.Report, tenants int) string {
	n := 0
	for _, t := range report.Tenants {
		for _, g := range t.GPUs {
			if g.Used == 0 {
				continue // it has ended
			}
			n++
			if g.BytesOut == 0 || g.BytesIn == 0 {
				return fmt.Sprintf("of tenant %s, %d bytes came and %d left", t.Tenant, g.BytesIn, g.BytesOut)
			}
		}
	}
	if n != tenants {
		return fmt.Sprintf("%d tenants have memory", n)
	}
	return ""
}

// offersSwap waits until the one GPU of a node has so much of the host for swap shares, and so much of it for one of them.
func (l *lab) offersSwap(n *cluster.Machine, all, most string) {
	l.t.Helper()
	listing, err := l.listing(n)
	l.must(err)
	l.eventually("node "+n.Name+" publishes memory for swap shares", func() string {
		list, err := l.Client().ResourceV1().ResourceSlices().List(l.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
		if err != nil || len(list.Items) != 1 || len(list.Items[0].Spec.Devices) != 1 {
			return fmt.Sprintf("%d slices, %v", len(list.Items), err)
		}
		capacity := list.Items[0].Spec.Devices[0].Capacity
		swap, memory := capacity[v1alpha1.CapacitySwapMemory], capacity[v1alpha1.CapacityMemory].Value
		if swap.RequestPolicy == nil || swap.RequestPolicy.ValidRange.Max == nil {
			return fmt.Sprintf("it has %+v", capacity)
		}
		turn := swap.RequestPolicy.ValidRange.Max
		if swap.Value.Cmp(quantity(all)) != 0 || turn.Cmp(quantity(most)) != 0 || uint64(memory.Value()+turn.Value()) != listing.GPUs[0].Capacity/mib*mib {
			return fmt.Sprintf("it has %s of the host, %s for one, and %s of a GPU of %d bytes", swap.Value.String(), turn.String(), memory.String(), listing.GPUs[0].Capacity)
		}
		return ""
	})
}
