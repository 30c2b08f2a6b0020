package e2e

import (
	"context"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/divvy-gpu/divvy/api/v1alpha1"
	"github.com/divvy-gpu/divvy/test/e2e/cluster"
)

// Shares without settings get those of their node. The scheduler counts them, the agent grants the same, and running
// shares keep what they have when the settings change.
func nodeDefaults(l *lab) {
	l.only(0)
	n := l.Nodes[0]
	l.t.Cleanup(func() {
		after := *l
		after.ctx = context.WithoutCancel(l.ctx)
		after.kubectl("label", "node", n.Name, "divvy.dev/default-policy-", "divvy.dev/default-cores-")
		after.defaultCores(n, 0)
	})
	l.run(plain("before", "1Gi", ""))
	l.kubectl("label", "node", n.Name, "divvy.dev/default-policy=burst", "divvy.dev/default-cores=35")
	l.defaultCores(n, 35)
	l.run(plain("one", "1Gi", ""))
	l.run(plain("two", "1Gi", "30"))
	l.granted(n, "before weighted 0", "one burst 35", "two burst 30")
	// 35 percent of the time are free for those that ask for it, or name what the node does not decide.
	l.run(plain("three", "1Gi", ""))
	l.create(plain("more", "1Gi", ""))
	if why := l.event("more", "NoShareFits"); !strings.Contains(why, "no GPU has free the 35 percent of its time that a share gets by default: the most is 0 percent") {
		l.t.Errorf("the event does not say what is missing: %s", why)
	}
	l.pending("more")
	l.agree()
	l.kubectl("label", "--overwrite", "node", n.Name, "divvy.dev/default-policy=fixed", "divvy.dev/default-cores=10")
	l.killAgent(n) // which the next one reads when it begins
	l.defaultCores(n, 10)
	l.remove("two")
	l.running("more")
	l.granted(n, "before weighted 0", "more fixed 10", "one burst 35", "three burst 35")
	l.agree()
}

// defaultCores waits until a node publishes what shares take that ask for no cores.
func (l *lab) defaultCores(n *cluster.Machine, want int64) {
	l.t.Helper()
	l.eventually(fmt.Sprintf("shares on %s take %d cores", n.Name, want), func() string {
		published, err := l.Client().ResourceV1().ResourceSlices().List(l.ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + n.Name})
		if err != nil {
			return err.Error()
		}
		shared := 0
		for i := range published.Items {
			for _, d := range published.Items[i].Spec.Devices {
				cores, ok := d.Capacity[v1alpha1.CapacityCores]
				if !ok {
					continue
				}
				if got := cores.RequestPolicy.Default.Value(); got != want {
					return fmt.Sprintf("%s has %d", d.Name, got)
				}
				shared++
			}
		}
		if shared == 0 {
			return "it offers no shares"
		}
		return ""
	})
}

// granted checks the policies and cores of a node's shares, by pod.
func (l *lab) granted(n *cluster.Machine, want ...string) {
	l.t.Helper()
	listing, err := l.listing(n)
	l.must(err)
	var got []string
	for i := range listing.Tenants {
		t := &listing.Tenants[i]
		for _, s := range t.Shares {
			got = append(got, fmt.Sprintf("%s %s %d", strings.Join(t.Pods, "+"), s.Policy, s.Cores))
		}
	}
	slices.Sort(got)
	if !slices.Equal(got, want) {
		l.t.Errorf("node %s has granted %q, want %q", n.Name, got, want)
	}
}
